"""Distinguishes cancellations by the job from those that user code raises.

A coroutine of the user may raise ``CancelledError`` because something of its own was cancelled, and asyncio would take
that for the end of our task: the job would hang, or end as if it had succeeded. It may also swallow the cancellation
that was meant to end it. In both cases the answer is if the job was ending our task.

``Task.cancelling()`` alone does not tell that: before Python 3.13 it remains 1 after a task group of the user has
failed and was caught. So the job creates its tasks in a ``JobTaskGroup``, which records when it ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

from aflow.errors import AflowError

T = TypeVar("T")


class _Scope:
    """The tasks of one task group of a job."""

    def __init__(self, parent: _Scope | None) -> None:
        self._parent = parent
        #: The task that waits for the group. If it is cancelled, so are the others.
        self._owner = asyncio.current_task()
        #: True once the job, or a failure in the group, ends the tasks.
        self.ended = False

    @property
    def is_ending(self) -> bool:
        """True if the job is ending the tasks of the group."""
        if self.ended or (self._owner is not None and self._owner.cancelling() > 0):
            return True
        return self._parent is not None and self._parent.is_ending


#: The group that the current task was created in; None in tasks that are not in a ``JobTaskGroup``.
_SCOPE: ContextVar[_Scope | None] = ContextVar("aflow_task_group", default=None)


class JobTaskGroup(asyncio.TaskGroup):
    """A task group of a job. Its tasks can tell if the job is ending them."""

    _scope: _Scope
    _token: Token[_Scope | None]

    async def __aenter__(self) -> JobTaskGroup:
        self._scope = _Scope(_SCOPE.get())
        self._token = _SCOPE.set(self._scope)
        await super().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _SCOPE.reset(self._token)
        if kind is not None:
            self.end()
        await super().__aexit__(kind, error, trace)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Create a task of the group; its failure ends the others."""
        base_group = asyncio.TaskGroup
        task = base_group.create_task(self, coro, name=name, context=context)
        # The callback of the base class, which cancels the other tasks, runs just before this one. They run later.
        task.add_done_callback(self._on_done)
        return task

    def end(self) -> None:
        """Record that the tasks are being ended; to be called before one of them is cancelled."""
        self._scope.ended = True

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.end()


def asked_to_end() -> bool:
    """Return True if the job has cancelled the current task, even if the cancellation was swallowed since."""
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return False
    scope = _SCOPE.get()
    return scope is None or scope.is_ending


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


class GuardedTask:
    """A task that is not cancelled while ``is_cancellable`` returns False; ``wait`` is awaited by a task of a group.

    A shield would not do: some libraries require one task for all that the work awaits, and a shield of anyio does not
    hold against the cancellation of a task.
    """

    def __init__(
        self, is_cancellable: Callable[[], bool], work: Coroutine[Any, Any, None], *, name: str
    ) -> None:
        """Start ``work`` in a task called ``name``."""
        self._is_cancellable = is_cancellable
        # No group owns it: a group would cancel it.
        self.task = asyncio.create_task(work, name=name)

    def cancel(self) -> None:
        """Cancel the task if it is cancellable."""
        if self._is_cancellable():
            self.task.cancel()

    async def wait(self) -> None:
        """Wait for its end. A cancellation of the caller is passed on, and raised after the end."""
        cancellation: asyncio.CancelledError | None = None
        while not self.task.done():
            try:
                await asyncio.wait([self.task])
            except asyncio.CancelledError as exc:
                cancellation = exc
                self.cancel()
        if cancellation is not None and (self.task.cancelled() or self.task.exception() is None):
            raise cancellation
        self.task.result()
