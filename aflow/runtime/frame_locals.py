"""The local variables of finished functions, which an exception keeps alive by its traceback."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Final, cast

#: Before Python 3.13, to clear the frame of a suspended coroutine or generator closes it.
_CLOSES_SUSPENDED: Final = sys.version_info < (3, 13)

_RESUMABLE: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def release_locals(error: BaseException) -> None:
    """Delete the local variables in the tracebacks of ``error`` and its causes; their lines remain.

    Otherwise an error that is kept would keep the tasks of its attempt with all records in flight. Variables of
    functions that run remain, and before Python 3.13 those of the user's coroutines and generators: one of them may
    have caught the error before, and be suspended.
    """
    for one in _chain(error):
        trace = one.__traceback__
        while trace is not None:
            if _can_be_cleared(trace.tb_frame):
                with suppress(RuntimeError):  # it runs, or is suspended
                    trace.tb_frame.clear()
            trace = trace.tb_next


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error``, and all errors that it refers to, each once."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [other for other in (one.__cause__, one.__context__) if other is not None]
        if isinstance(one, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", one).exceptions


def _can_be_cleared(frame: FrameType) -> bool:
    if not (_CLOSES_SUSPENDED and frame.f_code.co_flags & _RESUMABLE):
        return True
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "aflow"
