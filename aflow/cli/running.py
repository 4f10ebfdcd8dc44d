"""One job in a process of its own: event loop, Ctrl-C, and what is said on the terminal meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, TypeAlias

from aflow.api.flow import Flow
from aflow.cli.usage import DONE, STOPPED_AT_ONCE
from aflow.runtime.failures import first_cause
from aflow.runtime.job import Job
from aflow.runtime.metrics import JobMetrics

_DRAINING: Final = (
    "draining: sources are stopped, what they gave is processed, windows give their results; "
    "Ctrl-C again stops at once"
)
_DRAINED: Final = "drained: everything that was read is processed"
_STOPPING: Final = "stopping at once: what is in flight is lost"

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one flow is run from the command line."""

    flow: Flow
    parallelism: int
    uvloop: bool
    say: Callable[[str], None]
    """Tells the user something, line by line."""
    report: Callable[[JobMetrics], None]
    """Gets the job's metrics at its end, also when it has failed."""
    follow: Callable[[Job], Awaitable[None]] | None = None
    """Looks at the job while it runs, in a task of its own; cancelled at the job's end."""

    def to_the_end(self) -> int:
        """Run until the sources have ended, or the user ends it; the exit status.

        The first SIGINT or SIGTERM drains, SIGINT while draining ends the job at once. Raises the job's failure.
        """
        try:
            with asyncio.Runner(loop_factory=_loop_factory(self.uvloop)) as runner:
                return runner.run(self._run())
        except BaseExceptionGroup as group:
            failure = first_cause(group)
        raise failure  # out here, so that the group does not become its context, and its cause stays

    async def _run(self) -> int:
        stopping = _Stopping(asyncio.current_task(), self.say)
        with _signals(asyncio.get_running_loop(), stopping):
            try:
                await self._job(stopping)
            except asyncio.CancelledError:
                if not stopping.at_once:
                    raise
                return STOPPED_AT_ONCE  # by whose wish it was cancelled: the user's; nobody else waits for it
        if stopping.draining:
            self.say(_DRAINED)
        return DONE

    async def _job(self, stopping: _Stopping) -> None:
        async with self.flow.start(parallelism=self.parallelism) as job:
            try:
                async with asyncio.TaskGroup() as group:
                    stopping.started(job, group)
                    following = group.create_task(self._follow(job))
                    await job.wait()
                    following.cancel()
            finally:
                self.report(job.metrics())

    async def _follow(self, job: Job) -> None:
        if self.follow is not None:
            await self.follow(job)


class _Stopping:
    """What the user has asked for, one signal after the other. Signals may come while the job is still starting."""

    def __init__(self, whole: asyncio.Task[int] | None, say: Callable[[str], None]) -> None:
        #: The task of the whole run; cancelling it ends the job at once, wherever it stands.
        self._whole = whole
        self._say = say
        self._drain: Callable[[], None] | None = None
        self.draining = False
        self.at_once = False

    def started(self, job: Job, group: asyncio.TaskGroup) -> None:
        """The job can be drained from now on, by a task of ``group``; it is, if that was asked for before."""

        def drain() -> None:
            _ = group.create_task(job.stop(drain=True))

        self._drain = drain
        if self.draining:
            self._drain()

    def interrupt(self) -> None:
        """Drain; if that is under way, end at once."""
        if not self.draining:
            self.terminate()
        elif not self.at_once:
            self.at_once = True
            self._say(_STOPPING)
            if self._whole is not None:
                self._whole.cancel()

    def terminate(self) -> None:
        """Drain, once: process managers may repeat themselves, and kill when they have waited enough."""
        if not self.draining:
            self.draining = True
            self._say(_DRAINING)
            if self._drain is not None:
                self._drain()


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stopping: _Stopping) -> Generator[None]:
    """Lets ``stopping`` have the signals meanwhile; afterwards they do what they did before."""
    handlers = {signal.SIGINT: stopping.interrupt, signal.SIGTERM: stopping.terminate}
    before: dict[signal.Signals, _Handler] = {one: signal.getsignal(one) for one in handlers}
    try:
        for one, handler in handlers.items():
            loop.add_signal_handler(one, handler)
        yield
    finally:
        for one in handlers:
            loop.remove_signal_handler(one)
            signal.signal(one, before[one])


def _loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's, where it is installed and not refused."""
    if wanted:
        try:
            import uvloop
        except ImportError:
            return asyncio.new_event_loop
        return uvloop.new_event_loop
    return asyncio.new_event_loop
