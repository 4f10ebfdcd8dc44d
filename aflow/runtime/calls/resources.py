"""Resources of calls: opened before the first record, closed after the last call.

A task of its own, the *keeper*, enters and exits each resource: a context manager may hold a task group or a cancel
scope, whose failure cancels the task that entered it, and must not cancel the job. A close that hangs can be abandoned
with its keeper. No task group owns a keeper, since a group waits without a bound; ``OpenResources.close`` has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

from aflow.errors import OperatorError, described, shown
from aflow.graph.plan import Plan
from aflow.model.resource import Resource
from aflow.runtime.calls.reports import Reports
from aflow.runtime.calls.slots import GRACE
from aflow.runtime.cancellation import user_code
from aflow.runtime.failures import closing_async, first_cause

#: Seconds that a close has, once it was cancelled because it took too long, before it is abandoned.
_LAST_GRACE: Final = 1.0


class Keeper:
    """Holds one resource open. ``step`` is the first that uses it."""

    def __init__(
        self, step: str, resource: Resource[Any], reports: Reports, grace: float = GRACE
    ) -> None:
        self.step: Final = step
        self.label: Final = resource.label
        self._resource = resource
        self._reports = reports
        self._grace = grace
        self._opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        #: True once its failure was raised, so that it is not raised twice.
        self._told = False
        self.task = asyncio.create_task(self._keep(), name=f"resource {self._what}")

    async def opened(self) -> object:
        """Return the opened object. Raises ``OperatorError``."""
        await asyncio.wait([self._opened, self.task], return_when=asyncio.FIRST_COMPLETED)
        if self._opened.done():
            return self._opened.result()
        raise self.ended()

    def ended(self) -> Exception:
        """Return the error for a task that ended too early."""
        self._told = True
        if self.task.cancelled():
            return self._failed_while("in use", "it was cancelled, and not by the job")
        error = self.task.exception()
        if error is None:
            return self._failed_while("in use", "it was left before it was to be closed")
        if not isinstance(error, Exception):
            raise error  # KeyboardInterrupt: the program's
        return error

    async def close(self) -> None:
        """Close it, whatever becomes of the task that waits for that. Raises ``OperatorError``.

        A close that takes longer than the grace time is cancelled, reported, and abandoned if that does not end it.
        """
        self._over.set()
        if not self._opened.done():
            self.task.cancel()  # the job ends while it is being opened
        began = asyncio.get_running_loop().time()
        cancelled = await _wait(self.task, self._grace)
        if not self.task.done():
            self.task.cancel()
            cancelled = await _wait(self.task, _LAST_GRACE) or cancelled
            seconds = asyncio.get_running_loop().time() - began
            self._reports.give_up(self.step, f"its resource {self.label!r} does not close", seconds)
            self.task.add_done_callback(_forget)
        elif not self.task.cancelled() and not self._told:
            self.task.result()
        if cancelled is not None:
            raise cancelled

    async def _keep(self) -> None:
        with user_code(self._failed):
            async with self._manager() as opened:
                self._opened.set_result(opened)
                await self._over.wait()

    def _manager(self) -> AbstractAsyncContextManager[Any]:
        made = self._resource.open()
        if not hasattr(made, "__aenter__") or not hasattr(made, "__aexit__"):
            raise TypeError(
                f"{shown(made)} is no async context manager: it has no __aenter__ and __aexit__"
            )
        return made

    def _failed(self, cause: BaseException) -> OperatorError:
        cause = first_cause(cause)
        why = described(cause)
        if not self._opened.done():
            return self._error(f"could not open its resource {self.label!r}: {why}")
        if not self._over.is_set():
            return self._failed_while("in use", why)
        return self._error(f"could not close its resource {self.label!r}: {why}")

    def _failed_while(self, doing: str, why: str) -> OperatorError:
        return self._error(f"lost its resource {self.label!r} while it was {doing}: {why}")

    def _error(self, what: str) -> OperatorError:
        return OperatorError(f"step {self.step!r} {what}", operator=self.step)

    @property
    def _what(self) -> str:
        return f"{self.label!r} of {self.step}"


class OpenResources:
    """All resources of one attempt to run a job."""

    def __init__(self, plan: Plan, reports: Reports, grace: float = GRACE) -> None:
        self._plan = plan
        self._keep = partial(Keeper, reports=reports, grace=grace)
        #: In the order in which they were opened.
        self._keepers: list[Keeper] = []
        #: Open resources, by step and subtask.
        self._opened: dict[tuple[int, int], object] = {}

    def of(self, node: int, subtask: int) -> object:
        """Return the object that was opened for ``subtask`` of the step; None if it has no resource."""
        return self._opened.get((node, subtask))

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Open all that the plan names, in its order, and close them after the block, the last one first.

        Raises ``OperatorError`` if one cannot be opened, or closed; a failure of the block goes before the latter.
        """
        async with closing_async(self._closers()):
            await self._open_all()
            yield

    async def watch(self) -> None:
        """Raise ``OperatorError`` as soon as one ends by itself; for a task of the job's group."""
        if self._keepers:
            tasks = {keeper.task: keeper for keeper in self._keepers}
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            raise tasks[ended.pop()].ended()

    async def _open_all(self) -> None:
        shared: dict[str, object] = {}
        for task in self._plan.tasks:
            for node in task.nodes:
                resource = node.resource
                if resource is None:
                    continue
                for subtask in range(task.parallelism):
                    name = resource.shared
                    if name is None or name not in shared:
                        opened = await self._open(node.name, resource)
                    else:
                        opened = shared[name]
                    if name is not None:
                        shared[name] = opened
                    self._opened[node.id, subtask] = opened

    async def _open(self, step: str, resource: Resource[Any]) -> object:
        keeper = self._keep(step, resource)
        self._keepers.append(keeper)
        return await keeper.opened()

    def _closers(self) -> Iterator[Callable[[], Awaitable[None]]]:
        # A generator, so that it looks at the list when the block has ended, and not before.
        for keeper in reversed(self._keepers):
            yield keeper.close


async def _wait(task: asyncio.Task[None], seconds: float) -> asyncio.CancelledError | None:
    """Wait for the end of ``task``, ``seconds`` at most; give back a cancellation that arrives meanwhile."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    cancelled = None
    while not task.done() and (left := until - loop.time()) > 0:
        try:
            await asyncio.wait([task], timeout=left)
        except asyncio.CancelledError as exc:
            cancelled = exc
    return cancelled


def _forget(task: asyncio.Task[None]) -> None:
    """Retrieve the failure of an abandoned task: otherwise asyncio would log that it was never retrieved."""
    if not task.cancelled():
        task.exception()
