"""Distinguishes cancellations by the job from those that user code raises.

A coroutine of the user may raise ``CancelledError`` because something of its own was cancelled, and asyncio would take
that for the end of our task: the job would hang, or end as if it had succeeded. It may also swallow the cancellation
that was meant to end it. In both cases the answer is if our task was cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from aflow.errors import AflowError


def asked_to_end() -> bool:
    """Return True if the current task was cancelled, even if the cancellation was swallowed since."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def end_if_asked() -> None:
    """Raise ``CancelledError`` if user code has swallowed the one that was meant to end the current task."""
    if asked_to_end():
        raise asyncio.CancelledError


@contextmanager
def user_code(describe: Callable[[BaseException], Exception]) -> Generator[None]:
    """Raise the result of ``describe`` for errors of the block other than aflow's own and our cancellations."""
    try:
        yield
    except AflowError:
        raise
    except asyncio.CancelledError as exc:
        if asked_to_end():
            raise
        raise describe(exc) from exc
    except (Exception, SystemExit) as exc:
        raise describe(exc) from exc
