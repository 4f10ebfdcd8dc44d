"""One job in a process of its own: event loop, Ctrl-C, and what is said on the terminal meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, TypeAlias

from aflow.api.flow import Flow
from aflow.cli.recovering import Recovering, told
from aflow.cli.usage import DONE, STOPPED_AT_ONCE
from aflow.runtime.failures import first_cause
from aflow.runtime.job import Job
from aflow.runtime.metrics import JobMetrics
from aflow.runtime.recovery import JobEvent

_DRAINING: Final = (
    "draining: sources are stopped, what they gave is processed, windows give their results; "
    "Ctrl-C again stops at once"
)
_DRAINED: Final = "drained: everything that was read is processed"
_PAUSING: Final = (
    "stopping: what was read is processed, and open windows wait in a last checkpoint for the next run; "
    "Ctrl-C again stops at once"
)
_PAUSED: Final = "stopped: the next run goes on from here"
_STOPPING: Final = "stopping at once: what is in flight is lost"

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class _NotAnswered(BaseException):
    """Raised by a second Ctrl-C in whatever holds up the event loop, for example in a function that never returns.

    Not a KeyboardInterrupt, for which asyncio leaves the loop at once: the job is to close what it has opened.
    """


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
    recovering: Recovering = field(default_factory=Recovering)
    """Whether checkpoints are taken, where the job begins, and whether it is started again."""
    follow: Callable[[Job], Awaitable[None]] | None = None
    """Looks at the job while it runs, in a task of its own; cancelled at the job's end."""

    def to_the_end(self) -> int:
        """Run until the sources have ended, or the user ends it; the exit status.

        The first SIGINT or SIGTERM drains, SIGINT while draining ends the job at once, also where a function of the
        user's holds up the loop. Raises the job's failure.
        """
        try:
            with asyncio.Runner(loop_factory=loop_factory(self.uvloop)) as runner:
                stopping = _Stopping(self.say, keeps=self.recovering.checkpointing is not None)
                with _signals(runner.get_loop(), stopping):
                    return runner.run(self._run(stopping))
        except _NotAnswered:
            return STOPPED_AT_ONCE
        except BaseExceptionGroup as group:
            failure = first_cause(group)
        if isinstance(failure, _NotAnswered):
            return STOPPED_AT_ONCE
        raise failure  # out here, so that the group does not become its context, and its cause stays

    async def _run(self, stopping: _Stopping) -> int:
        stopping.running(asyncio.current_task())
        try:
            await self._job(stopping)
        except asyncio.CancelledError:
            if not stopping.at_once:
                raise
            return STOPPED_AT_ONCE  # by whose wish it was cancelled: the user's; nobody else waits for it
        if stopping.draining:
            self.say(_PAUSED if stopping.keeps else _DRAINED)
        return DONE

    async def _job(self, stopping: _Stopping) -> None:
        async with self.flow.start(
            parallelism=self.parallelism,
            checkpointing=self.recovering.checkpointing,
            restart=self.recovering.restarts,
            restore=self.recovering.restore,
            allow_dropped_state=self.recovering.allow_dropped_state,
            on_event=self._on_event,
        ) as job:
            try:
                async with asyncio.TaskGroup() as group:
                    stopping.started(job, group)
                    following = group.create_task(self._follow(job))
                    await job.wait()
                    following.cancel()
            finally:
                self.report(job.metrics())

    def _on_event(self, event: JobEvent) -> None:
        text = told(event)
        if text is not None:
            self.say(text)

    async def _follow(self, job: Job) -> None:
        if self.follow is not None:
            await self.follow(job)


class _Stopping:
    """What the user has asked for, one signal after the other. Signals may come while the job is still starting."""

    def __init__(self, say: Callable[[str], None], *, keeps: bool) -> None:
        #: True if a last checkpoint keeps what is unfinished: then windows need not give what they have.
        self.keeps = keeps
        #: The task of the whole run; cancelling it ends the job at once, wherever it stands.
        self._whole: asyncio.Task[int] | None = None
        self._say = say
        self._drain: Callable[[], None] | None = None
        self.draining = False
        self.at_once = False

    def running(self, whole: asyncio.Task[int] | None) -> None:
        """The run has begun; it is over at once if that was asked for before."""
        self._whole = whole
        if self.at_once and whole is not None:
            whole.cancel()

    def started(self, job: Job, group: asyncio.TaskGroup) -> None:
        """The job can be drained from now on, by a task of ``group``; it is, if that was asked for before."""

        def drain() -> None:
            _ = group.create_task(job.stop(drain=not self.keeps))

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
            self._say(_PAUSING if self.keeps else _DRAINING)
            if self._drain is not None:
                self._drain()


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stopping: _Stopping) -> Generator[None]:
    """Lets ``stopping`` have the signals meanwhile; afterwards they do what they did before.

    Plain handlers, which run also while the loop does not: they hand each signal on to the loop, and a Ctrl-C that
    finds an earlier signal still waiting there breaks off what holds the loop up.
    """
    wanted = {signal.SIGINT: stopping.interrupt, signal.SIGTERM: stopping.terminate}
    #: Signals that came and that the loop has not heard of.
    waiting: deque[int] = deque()

    def hear() -> None:
        wanted[signal.Signals(waiting.popleft())]()

    def handle(number: int, _: FrameType | None) -> None:
        unheard = len(waiting)
        waiting.append(number)
        loop.call_soon_threadsafe(hear)
        if unheard and number == signal.SIGINT:
            raise _NotAnswered

    before: dict[signal.Signals, _Handler] = {}
    loop.set_exception_handler(_report)
    try:
        for one in wanted:
            before[one] = signal.signal(one, handle)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio reports that nobody waited for; not what the user's own Ctrl-C left in tasks that were cancelled."""
    error = context.get("exception")
    if error is None or not isinstance(first_cause(error), _NotAnswered):
        loop.default_exception_handler(context)


def loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's if it is ``wanted`` and installed, otherwise that of asyncio."""
    if wanted:
        try:
            import uvloop
        except ImportError:
            return asyncio.new_event_loop
        return uvloop.new_event_loop
    return asyncio.new_event_loop
