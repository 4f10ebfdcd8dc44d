"""Run a flow in a process of its own: the first Ctrl-C drains the job, the second one cancels it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from typing import Final, Protocol, cast

import aflow as af

_DRAINING: Final = "draining: no more input is read, open windows emit; Ctrl-C again cancels"
_DRAINED: Final = "drained: all input that was read is processed"
_STOPPING: Final = (
    "stopping: a last checkpoint keeps open windows for the next run; Ctrl-C again cancels"
)
_STOPPED: Final = "stopped: the next run continues from the last checkpoint"
_STAYS: Final = "the job has ended; the page shows it until Ctrl-C"
_CANCELLED: Final = "cancelled: records in flight are lost"


class ExitStatus(IntEnum):
    """Exit status of the process."""

    DONE = 0
    FAILED = 1
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Checkpoints of a job, where it starts, and its restarts after failures."""

    checkpointing: af.Checkpointing | None = None
    restore: af.checkpoints.StartFrom | str = af.checkpoints.StartFrom.LATEST
    restart: af.restart.NoRestart | af.restart.FixedDelay = field(
        default_factory=af.restart.NoRestart
    )


NO_RECOVERY: Final = Recovery()


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended."""

    status: ExitStatus
    metrics: af.metrics.JobMetrics


class Display(Protocol):
    """Output on the terminal while a job runs."""

    def shown(self) -> AbstractContextManager[None]:
        """Use the terminal during the block."""
        ...

    def say(self, text: str) -> None:
        """Print a message."""
        ...

    async def follow(self, job: af.Job) -> None:
        """Show the progress of ``job`` until cancelled."""
        ...

    def update(self, metrics: af.metrics.JobMetrics) -> None:
        """Show progress once."""
        ...


def run_job(
    flow: af.Flow,
    display: Display,
    *,
    parallelism: int = 1,
    recovery: Recovery = NO_RECOVERY,
    web: bool = False,
) -> Ended:
    """Run ``flow`` until its sources end or the user stops it. Raises the error that made the job fail.

    SIGINT and SIGTERM drain the job; with checkpoints they take a last one instead, which keeps open windows. SIGINT
    after that cancels the job. With ``web`` the page of aflow.web shows the job, also after its end, until a signal.
    """
    if web:
        import_module("aflow.web")  # needs the extra `web`; before there is a loop to block
    with display.shown(), asyncio.Runner(loop_factory=_new_loop) as runner:
        try:
            return runner.run(_run(flow, display, parallelism, recovery, web=web))
        except BaseExceptionGroup as group:
            error = _first_error(group)
    raise error


async def _run(
    flow: af.Flow, display: Display, parallelism: int, recovery: Recovery, *, web: bool
) -> Ended:
    metrics = af.metrics.JobMetrics(steps={}, tasks=[])
    interrupts = _Interrupts(display, takes_checkpoints=recovery.checkpointing is not None)
    try:
        async with flow.start(
            parallelism=parallelism,
            checkpointing=recovery.checkpointing,
            restart=recovery.restart,
            restore=recovery.restore,
            on_event=lambda event: _report(event, display),
            options=af.Options(samples=af.metrics.RecordSamples() if web else None),
        ) as job:
            try:
                async with asyncio.TaskGroup() as group, _page(job, display, shown=web):
                    following = group.create_task(display.follow(job))
                    with interrupts.handled(job, group):
                        await job.wait()
                        following.cancel()
                        if web and not interrupts.stopping:
                            display.say(_STAYS)
                            await interrupts.signalled.wait()
            finally:
                metrics = job.metrics()
                display.update(metrics)
    except asyncio.CancelledError:
        if not interrupts.cancelled:
            raise
        return Ended(ExitStatus.INTERRUPTED, metrics)
    interrupts.report_end()
    return Ended(ExitStatus.DONE, metrics)


@asynccontextmanager
async def _page(job: af.Job, display: Display, *, shown: bool) -> AsyncGenerator[None]:
    """Serve the page of ``job`` during the block if it is to be ``shown``."""
    if not shown:
        yield
        return
    import aflow.web

    token = os.environ.get("AFLOW_TOKEN") or secrets.token_urlsafe(6)
    async with aflow.web.serve(job, token=token) as server:
        display.say(f"watch the job at {server.url}")
        display.say(f"token for savepoints and stops: {token}")
        yield


class _Interrupts:
    """Reaction to signals: stop the job, then cancel the task that runs it."""

    def __init__(self, display: Display, *, takes_checkpoints: bool) -> None:
        self._display = display
        self._takes_checkpoints = takes_checkpoints
        self.stopping = False
        self.cancelled = False
        #: Set by the first signal.
        self.signalled = asyncio.Event()

    @contextmanager
    def handled(self, job: af.Job, group: asyncio.TaskGroup) -> Generator[None]:
        """Handle signals during the block; ``group`` owns the task that stops ``job``."""
        loop, running = asyncio.get_running_loop(), asyncio.current_task()
        assert running is not None

        def stop() -> None:
            self.signalled.set()
            if not self.stopping and job.running:
                self.stopping = True
                self._display.say(_STOPPING if self._takes_checkpoints else _DRAINING)
                _ = group.create_task(job.stop(drain=not self._takes_checkpoints))

        def interrupt() -> None:
            if not self.stopping:
                stop()
            elif not self.cancelled:
                self.cancelled = True
                self._display.say(_CANCELLED)
                running.cancel()

        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, stop)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)

    def report_end(self) -> None:
        """Say that the job was stopped, if it was."""
        if self.stopping:
            self._display.say(_STOPPED if self._takes_checkpoints else _DRAINED)


def _report(event: af.JobEvent, display: Display) -> None:
    match event:
        case af.restart.JobRestored(checkpoint=checkpoint, path=path):
            display.say(f"continuing from checkpoint {checkpoint}{f' in {path}' if path else ''}")
        case af.restart.JobRestarted(cause=cause, delay_ms=delay):
            display.say(f"failed, restarting in {delay / 1000:g} s: {cause}")
        case af.checkpoints.CheckpointInfo(outcome=af.checkpoints.Outcome.FAILED):
            display.say(f"{event.kind.value} {event.id} failed: {event.reason}")
        case _:
            pass


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of aflow in ``group``, else the first of all."""
    errors = list(_single_errors(group))
    return next((error for error in errors if isinstance(error, af.AflowError)), errors[0])


def _single_errors(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _single_errors(one)
    else:
        yield error


def _new_loop() -> asyncio.AbstractEventLoop:
    """Create the event loop: that of uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
