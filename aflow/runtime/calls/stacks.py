"""Find the step, and the function and line of the user, in the stack of a thread."""

from __future__ import annotations

import linecache
import os
import sysconfig
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import Final, NamedTuple

from aflow.operators import fused
from aflow.operators.base import Operator
from aflow.runtime.calls.overdue import StackSample
from aflow.runtime.calls.reports import CodeLocation
from aflow.runtime.calls.resources import Keeper
from aflow.runtime.calls.slots import CallSlots
from aflow.runtime.clock import release_gil
from aflow.runtime.fetcher import Fetcher
from aflow.runtime.limited_budget import LimitedBudget
from aflow.runtime.loop_budget import LoopBudget

#: Folders of code that the user has not written.
_LIBRARIES: Final = tuple(
    {
        os.path.join(sysconfig.get_path(kind), "")
        for kind in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)

#: Packages whose functions call those of the user.
_ENGINE: Final = frozenset({"aflow", "asyncio", "uvloop"})

#: Functions in which a busy job yields the loop or releases the interpreter's lock. Others delay their return.
_HAND_OVERS: Final = frozenset(
    {release_gil.__code__, LoopBudget.hand_over.__code__, LimitedBudget.hand_over.__code__}
)

#: Modules that are on the stack while a debugger is used.
_DEBUGGERS: Final = frozenset({"bdb", "pdb", "ipdb", "pudb", "pydevd", "_pydevd_bundle", "debugpy"})


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield ``frame`` and its callers, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def depth_of(frame: FrameType | None) -> int:
    """Return the number of ``frames``."""
    return sum(1 for _ in frames(frame))


def sample(frame: FrameType, below: int) -> StackSample:
    """Return the code that runs in ``frame``; the ``below`` outermost frames belong to the program of the loop."""
    stack = list(frames(frame))
    stack = stack[: max(0, len(stack) - below)]
    if not stack or any(_package(one) in _DEBUGGERS for one in stack):
        return StackSample(None, excused=True)
    if stack[0].f_code in _HAND_OVERS:
        return StackSample(object())  # a root of its own, as of a short callback
    owner = _owner_of(stack)
    return StackSample(stack[-1], owner.step, _where(stack), resource=owner.resource)


def raised_at(error: BaseException) -> CodeLocation | None:
    """Return the innermost function of the user in the traceback of ``error``; None if there is none."""
    found: TracebackType | None = None
    trace = error.__traceback__
    while trace is not None:
        if _is_own(trace.tb_frame):
            found = trace
        trace = trace.tb_next
    if found is None:
        return None
    called = None if found.tb_next is None else _qualified(found.tb_next.tb_frame)
    return _location(found.tb_frame, found.tb_lineno, called or "")


def _where(stack: Sequence[FrameType]) -> CodeLocation:
    """Return the innermost function of the user, else one of a library that aflow called, else one of aflow."""
    index = next((i for i, one in enumerate(stack) if _is_own(one)), None)
    if index is None:
        called = [i for i, one in enumerate(stack) if not _is_engine(one)]
        index = called[-1] if called else 0
    frame = stack[index]
    return _location(frame, frame.f_lineno or 0, _qualified(stack[index - 1]) if index else "")


def _location(frame: FrameType, line: int, calls: str) -> CodeLocation:
    file = frame.f_code.co_filename
    code = linecache.getline(file, line).strip()
    return CodeLocation(function=_qualified(frame), file=file, line=line, code=code, calls=calls)


class _Owner(NamedTuple):
    """The step that a frame belongs to, and the resource of this step."""

    step: str | None
    resource: str | None = None


def _owner_of(stack: Sequence[FrameType]) -> _Owner:
    """Return the owner of the innermost frame in an operator, slots, source or resource; no step if there is none."""
    line = 0
    for frame in stack:
        if frame.f_code.co_filename == fused.FILE:
            line = line or frame.f_lineno or 0
        elif _package(frame) == "aflow":
            owner = _owner(frame, line)
            if owner is not None and owner.step is not None:
                return owner
    return _Owner(None)


def _owner(frame: FrameType, line: int) -> _Owner | None:
    # Only for frames of aflow: before Python 3.13 a frame keeps a copy of its locals once they were read.
    here = frame.f_locals
    for local in (here.get("self"), here.get("sink")):
        if isinstance(local, fused.FusedOperator) and line:
            return _Owner(local.name_at(line))
        if isinstance(local, Operator):
            return _Owner(local.name) if hasattr(local, "context") else None
        if isinstance(local, CallSlots):
            return _Owner(local.step)
        if isinstance(local, Fetcher):
            return _Owner(local.name)
        if isinstance(local, Keeper):
            return _Owner(local.step, local.label)
    return None


def _is_own(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not _is_engine(frame) and not file.startswith((*_LIBRARIES, "<frozen "))


def _is_engine(frame: FrameType) -> bool:
    # Functions of the demo count as the user's, although they are in aflow.
    return frame.f_code.co_filename == fused.FILE or (
        _package(frame) in _ENGINE and not _module(frame).startswith("aflow.cli.")
    )


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _qualified(frame: FrameType) -> str:
    module, name = _module(frame), frame.f_code.co_qualname
    return f"{module}.{name}" if module else name


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
