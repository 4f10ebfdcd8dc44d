"""A job in a process of its own: event loop, Ctrl-C, and messages on the terminal."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, TypeAlias

from aflow.api.flow import Flow
from aflow.cli.errors import DONE, INTERRUPTED
from aflow.cli.options import RecoverySettings
from aflow.errors import message_of
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome
from aflow.runtime.failures import first_cause
from aflow.runtime.job import Job
from aflow.runtime.metrics import JobMetrics
from aflow.runtime.recovery import JobEvent, JobRestarted, JobRestored

_DRAINING: Final = (
    "draining: sources are stopped, records in flight are processed, open windows emit; "
    "Ctrl-C again stops at once"
)
_DRAINED: Final = "drained: all input that was read is processed"
_PAUSING: Final = (
    "stopping: records in flight are processed, and a last checkpoint keeps open windows for the next run; "
    "Ctrl-C again stops at once"
)
_PAUSED: Final = "stopped: the next run continues from here"
_STOPPING: Final = "stopping at once: records in flight are lost"

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class _Interrupted(BaseException):
    """Raised by a second Ctrl-C in the code that blocks the event loop, such as a function that never returns.

    It is no KeyboardInterrupt, for which asyncio leaves the loop at once: the job has to close its resources.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRun:
    """One run of a flow from the command line."""

    flow: Flow
    parallelism: int
    uvloop: bool
    say: Callable[[str], None]
    """Print a message, line by line."""
    report: Callable[[JobMetrics], None]
    """Receive the metrics of the job at its end, also after a failure."""
    recovery: RecoverySettings = field(default_factory=RecoverySettings)

    def run(self) -> int:
        """Run until the sources end or the user stops the job; return the exit status.

        The first SIGINT or SIGTERM drains. A SIGINT after that stops the job at once, even if a function of the user
        blocks the event loop. Raises the failure of the job.
        """
        try:
            with asyncio.Runner(loop_factory=loop_factory(self.uvloop)) as runner:
                stop = _Stop(self.say, keeps=self.recovery.checkpointing is not None)
                with _signals(runner.get_loop(), stop):
                    return runner.run(self._run(stop))
        except _Interrupted:
            return INTERRUPTED
        except BaseExceptionGroup as group:
            failure = first_cause(group)
        if isinstance(failure, _Interrupted):
            return INTERRUPTED
        raise failure  # outside of the handler: the group does not become its context, and its cause is kept

    async def _run(self, stop: _Stop) -> int:
        stop.on_run_started(asyncio.current_task())
        try:
            await self._run_job(stop)
        except asyncio.CancelledError:
            if not stop.at_once:
                raise
            return INTERRUPTED
        if stop.draining:
            self.say(_PAUSED if stop.keeps else _DRAINED)
        return DONE

    async def _run_job(self, stop: _Stop) -> None:
        async with self.flow.start(
            parallelism=self.parallelism,
            checkpointing=self.recovery.checkpointing,
            restart=self.recovery.restarts,
            restore=self.recovery.restore,
            allow_dropped_state=self.recovery.allow_dropped_state,
            on_event=self._on_event,
        ) as job:
            try:
                async with asyncio.TaskGroup() as group:
                    stop.on_job_started(job, group)
                    await job.wait()
            finally:
                self.report(job.metrics())

    def _on_event(self, event: JobEvent) -> None:
        text = event_text(event)
        if text is not None:
            self.say(text)


def event_text(event: JobEvent) -> str | None:
    """Return the message about ``event``; None if it needs none."""
    match event:
        case JobRestored(checkpoint=checkpoint, passed_over=passed_over, path=path):
            lines = [f"passed over: {reason}" for reason in passed_over]
            where = f" in {path}" if path else ""
            return "\n".join([*lines, f"continuing from checkpoint {checkpoint}{where}"])
        case JobRestarted(cause=cause, delay_ms=delay):
            return f"failed, restarting in {delay / 1000:g} s: {message_of(cause)}"
        case CheckpointInfo(outcome=Outcome.FAILED):
            return f"{event.kind.value} {event.id} failed: {event.reason}"
        case _:
            return None


class _Stop:
    """Request of the user to stop, signal by signal. Signals may arrive before the job has started."""

    def __init__(self, say: Callable[[str], None], *, keeps: bool) -> None:
        #: True if a last checkpoint keeps open windows, so they need not emit.
        self.keeps = keeps
        #: The task of the run; cancelling it stops the job at once, in any phase.
        self._task: asyncio.Task[int] | None = None
        self._say = say
        self._drain: Callable[[], None] | None = None
        self.draining = False
        self.at_once = False

    def on_run_started(self, task: asyncio.Task[int] | None) -> None:
        """Cancel ``task`` if a stop at once was requested before."""
        self._task = task
        if self.at_once and task is not None:
            task.cancel()

    def on_job_started(self, job: Job, group: asyncio.TaskGroup) -> None:
        """Drain ``job``, in a task of ``group``, on the first signal; now, if that was received before."""

        def drain() -> None:
            _ = group.create_task(job.stop(drain=not self.keeps))

        self._drain = drain
        if self.draining:
            self._drain()

    def interrupt(self) -> None:
        """Drain; stop at once if the job drains already."""
        if not self.draining:
            self.terminate()
        elif not self.at_once:
            self.at_once = True
            self._say(_STOPPING)
            if self._task is not None:
                self._task.cancel()

    def terminate(self) -> None:
        """Drain once: process managers may repeat the signal, and kill the process after a timeout."""
        if not self.draining:
            self.draining = True
            self._say(_PAUSING if self.keeps else _DRAINING)
            if self._drain is not None:
                self._drain()


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stop: _Stop) -> Generator[None]:
    """Pass signals to ``stop`` during the block, and restore the handlers after it.

    The handlers run even while the event loop is blocked: they forward each signal to the loop. A Ctrl-C that finds an
    earlier signal unhandled raises in the code that blocks the loop.
    """
    reactions = {signal.SIGINT: stop.interrupt, signal.SIGTERM: stop.terminate}
    #: Signals that the loop has not handled yet.
    pending: deque[int] = deque()

    def handle_pending() -> None:
        while pending:
            reactions[signal.Signals(pending.popleft())]()

    def receive(number: int, _: FrameType | None) -> None:
        # A second signal may interrupt this function anywhere, and raise in it: one callback handles both.
        pending.append(number)
        is_second = len(pending) > 1
        loop.call_soon_threadsafe(handle_pending)
        if is_second and number == signal.SIGINT:
            raise _Interrupted

    before: dict[signal.Signals, _Handler] = {}
    loop.set_exception_handler(_on_loop_error)
    try:
        for one in reactions:
            before[one] = signal.signal(one, receive)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report errors that no task awaited, except the user's own Ctrl-C in cancelled tasks."""
    error = context.get("exception")
    if error is None or not isinstance(first_cause(error), _Interrupted):
        loop.default_exception_handler(context)


def loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of uvloop if it is ``wanted`` and installed, else that of asyncio."""
    if wanted:
        try:
            import uvloop
        except ImportError:
            return asyncio.new_event_loop
        return uvloop.new_event_loop
    return asyncio.new_event_loop
