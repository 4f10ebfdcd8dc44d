"""A running pipeline: the handle with which the host observes and stops it, and its restarts after failures.

The coroutines of the job run in one task of their own, so a failure cancels the host's code only if it asks for that;
the host is told by ``wait``, by the end of the ``async with`` block, and by what it awaits at the sources and sinks. In
that task, one ``JobAttempt`` runs after the other, until one ends normally or the restart strategy gives up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, TypeVar

from aflow.connect import Source
from aflow.errors import CheckpointError, FlowDefinitionError, JobStopped, StopTimeout
from aflow.graph.plan import Plan
from aflow.machines.restart import Restart
from aflow.model.elements import CheckpointKind
from aflow.model.time import Instant, positive_millis
from aflow.runtime.attempt import Checkpoints, JobAttempt
from aflow.runtime.block_cancellation import CancelOnFailure
from aflow.runtime.builtin_connectors.result_sink import Results, ResultSink
from aflow.runtime.calls.reports import Reports
from aflow.runtime.calls.watchdog import watching
from aflow.runtime.checkpoints.directory.threads import in_a_task
from aflow.runtime.checkpoints.statistics import CheckpointInfo, CheckpointTally
from aflow.runtime.checkpoints.storage import CheckpointStorage
from aflow.runtime.checkpoints.stored_state import StoredReads
from aflow.runtime.close_limit import GRACE, CloseLimit
from aflow.runtime.current_job import enter_job, is_inside, refuse_inside
from aflow.runtime.failures import closing_async, first_cause
from aflow.runtime.job_events import JobEvents, trace_sources
from aflow.runtime.job_metrics import job_metrics
from aflow.runtime.job_setup import JobSetup
from aflow.runtime.job_status import JobStatus, StatusRecord
from aflow.runtime.metrics import JobMetrics
from aflow.runtime.options import Options
from aflow.runtime.plan_ends import (
    check_without_checkpoints,
    fail_results,
    keep_results,
    release_results,
    sources_of,
)
from aflow.runtime.questions import OpenQuestions
from aflow.runtime.recovery import (
    JobRestarted,
    JobRestored,
    RecoveryOptions,
    StartFrom,
    checkpoint_of,
    new_savepoint,
    opened_storage,
    require_checkpointing,
    start_from,
)
from aflow.runtime.restart_rule import RestartRule
from aflow.runtime.restarts import NoRestart
from aflow.runtime.samples import RecordSample
from aflow.runtime.start_reminder import StartReminder
from aflow.runtime.state_query import JobNow, StateReader
from aflow.runtime.unfinished_work import unfinished_work

T = TypeVar("T")


class Job:
    """A running pipeline, to be used with ``async with``.

    Entering starts it, and raises what prevents the start. Leaving the block stops it if it still runs: after a normal
    end of the block, records in flight are processed; after an exception, it ends at once. Leaving raises the failure
    of the job unless ``wait`` has raised it already; after an exception only in place of a ``JobStopped``, which
    sources and sinks raise for it.
    """

    def __init__(
        self, plan: Plan, options: Options, recovery: RecoveryOptions | None = None
    ) -> None:
        self._plan = plan
        self._options = options
        self._recovery = recovery or RecoveryOptions()
        #: The plan, options and recovery of the job, for tools that show it.
        self.setup = JobSetup(plan, options, self._recovery)
        if self._recovery.checkpointing is None:
            check_without_checkpoints(plan)
        self._start_from = start_from(self._recovery.restore)
        self._events = JobEvents(plan.flow, self._recovery.on_event)
        self._reports = Reports(plan.flow, self._events.emit, lambda: self._options.clock.now())
        self._attempt = JobAttempt(plan, options, self._reports)
        self._storage: CheckpointStorage | None = None
        self._tally = CheckpointTally()
        self._restarts: deque[JobRestarted] = deque(maxlen=100)
        self._running: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        #: True once the failure was raised to the host, so that it is raised once.
        self._raised = False
        #: The argument ``drain`` of ``stop``; None before. A job that is being stopped is not restarted.
        self._stopping: bool | None = None
        #: Set with it: ends the wait for the next attempt.
        self._stop_wanted = asyncio.Event()
        self._last_savepoint: str | None = None
        self._cancelled = False
        self._reminder = StartReminder(plan.flow)
        self._status = StatusRecord(plan.flow, self._events.status_changed)
        self._questions = OpenQuestions(plan)
        self._stored_reads = StoredReads()
        self._closes = CloseLimit()

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self._plan.flow

    @property
    def running(self) -> bool:
        """True while records may still be processed, also between a failure and the restart: see ``status``."""
        return self._running is not None and not self._running.done()

    @property
    def status(self) -> JobStatus:
        """The present phase of the job; healthy is ``RUNNING``."""
        return self._status.now

    @property
    def failure(self) -> BaseException | None:
        """The error with which the job has ended; None before, and after a normal end. Reading it raises nothing."""
        return self._failure

    async def ready(self) -> None:
        """Wait until the job processes records, also after a restart; return at once if it does.

        Raises ``JobStopped`` if the job is being stopped or has ended.
        """
        if await self._status.settled() is not JobStatus.RUNNING:
            raise JobStopped(f"job {self.name!r} is {self.status.value}") from self._failure

    async def __aenter__(self) -> Job:
        if self._running is not None:
            raise FlowDefinitionError(
                f"job {self.name!r} was started already; start the flow again for another run"
            )
        self._reminder.settled = True
        loop = asyncio.get_running_loop()
        self._options = self._options.on(loop)
        if self._options.telemetry is not None:
            telemetry = self._options.telemetry.observe(self, self._options.clock)
            self._events.telemetry, self._reports.tracer = telemetry, telemetry.tracer
        self._status.change(JobStatus.STARTING)
        started: asyncio.Future[None] = loop.create_future()
        self._running = asyncio.create_task(self._run(started), name=f"aflow {self.name}")
        try:
            await asyncio.wait([started, self._running], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cancel_for_good()
            raise
        if self._running.done():
            await self.wait()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            told = self._raised
            await self._cancel_for_good()
            if isinstance(error, JobStopped) and self._failure is not None and not told:
                raise self._failure  # the error of the block is only its consequence
            return
        try:
            release_results(self._plan)
            await self.stop()
        except asyncio.CancelledError:
            await self._cancel_for_good()
            raise

    async def wait(self) -> None:
        """Wait until the job has ended by itself or was stopped. Raises its failure, once.

        Being cancelled while waiting does not stop the job; leaving the ``async with`` block does.
        Raises ``FlowDefinitionError`` if called from within the pipeline, where it would wait for its own caller.
        """
        running = self._started()
        refuse_inside(self, "wait()")
        await asyncio.wait([running])
        self._raise_failure()

    def cancel_on_failure(self) -> CancelOnFailure:
        """Return a context whose block is cancelled, and raises the failure, if the job fails for good."""
        refuse_inside(self, "cancel_on_failure()")
        return CancelOnFailure(self._started(), lambda: self._failure)

    async def stop(
        self,
        *,
        drain: bool = False,
        savepoint: str | PathLike[str] | None = None,
        deadline: timedelta | None = None,
    ) -> None:
        """Stop the sources, process everything in flight up to the sinks, and wait until that is done.

        ``drain=True`` also ends event time: all windows and event timers fire, as at the end of a bounded input.
        Without it they do not fire, and are kept in the last checkpoint for a job that continues from it. ``savepoint``
        is a new folder for a copy of that checkpoint. Raises ``CheckpointError`` if the folder exists; the job then
        continues.

        Does nothing if the job has ended, but raises ``JobStopped`` if a savepoint was requested. Raises the failure of
        the job, once. Called from within the pipeline (a callback of a sink, for example) it returns at once, since the
        job cannot end before its caller.

        If the job has not ended within ``deadline``, it is cancelled, and ``StopTimeout`` says what was left. Readers
        and writers have 5 s then to close. With checkpoints the next job continues from the last completed one.
        """
        _ = self._started()
        seconds = None
        if deadline is not None:
            seconds = positive_millis(deadline, what="deadline of stop()") / 1000
        place = None
        if savepoint is not None:
            storage = self._storage if self.running else None
            place = new_savepoint(self._recovery, savepoint, "stop(savepoint=…)", storage)
            self._last_savepoint = self._attempt.last_savepoint = place
        if self.running and self._stopping is not drain:
            self._events.stop_requested(drain=drain, savepoint=place, seconds=seconds)
        self._stopping = drain
        self._stop_wanted.set()
        if self._status.now is JobStatus.RUNNING:
            self._status.change(JobStatus.DRAINING)
        self._attempt.stop(drain=drain)
        if not is_inside(self):
            if seconds is not None:
                await self._end_within(seconds)
            await self.wait()
            self._tally.check_written(self.name, place)

    async def _end_within(self, seconds: float) -> None:
        """Wait for the end of the job, then cancel it. Raises ``StopTimeout``."""
        await asyncio.wait([self._started()], timeout=seconds)
        if self.running:
            left = self.unfinished_work()
            await self.cancel(close_within=GRACE)
            left += self._closes.left
            self._events.stop_timed_out(seconds, left)
            raise StopTimeout(
                f"job {self.name!r} was cancelled, since stop() did not end within {seconds:g} s; left: {left}"
            )

    async def cancel(self, *, close_within: timedelta | None = None) -> None:
        """End the job at once: records in flight are lost; everything that was opened is closed. Raises nothing.

        With ``close_within`` (above 0), readers and writers that have not closed by then are cancelled; None: no limit.
        """
        running = self._started()
        if close_within is not None:
            self._closes.start(close_within)
        if not self._cancelled and not self._attempt.closing:
            running.cancel()
        self._cancelled = True
        while self.running:
            await asyncio.wait([running])
        self._raised = True

    async def _cancel_for_good(self) -> None:
        """Cancel, and wait for the end also if the host is cancelled again, as at each await in a scope of anyio."""
        await in_a_task(self.cancel, shielded=True)

    async def savepoint(self, path: str | PathLike[str]) -> CheckpointInfo:
        """Write a savepoint into the new folder ``path`` while the job continues.

        It is complete in itself: a job with another parallelism, another state backend or a changed pipeline can
        continue from it. Raises ``CheckpointError`` if it cannot be taken, ``FlowDefinitionError`` in a job without
        checkpointing, and ``JobStopped`` if the job has ended.

        Raises ``FlowDefinitionError`` also if called from within the pipeline (a callback, a call, a reader, or a task
        created by one of them): the checkpoint could not complete before its caller returns. The function given as
        ``on_event``, and tasks that it creates, may call it.
        """
        refuse_inside(self, "savepoint()")
        storage = self._storage if self.running else None
        place = new_savepoint(self._recovery, path, "savepoint()", storage)
        return await self._take(CheckpointKind.SAVEPOINT, place)

    async def checkpoint(self) -> CheckpointInfo:
        """Take a checkpoint now, regardless of the interval. Raises the errors of ``savepoint``."""
        require_checkpointing(self._recovery, "checkpoint()")
        refuse_inside(self, "checkpoint()")
        return await self._take(CheckpointKind.PERIODIC, None)

    @property
    def checkpoints(self) -> Sequence[CheckpointInfo]:
        """The latest checkpoints with their outcomes, oldest first, over all restarts."""
        return list(self._tally.latest.values())

    @property
    def takes_checkpoints(self) -> bool:
        """True if the job was started with ``checkpointing``."""
        return self._recovery.checkpointing is not None

    @property
    def restarts(self) -> Sequence[JobRestarted]:
        """The latest restarts with their causes, oldest first."""
        return list(self._restarts)

    def metrics(self) -> JobMetrics:
        """Return the counters and the present activity of the job; valid after its end, too.

        Counters of steps and tasks start from zero at each restart.
        """
        return job_metrics(
            self._attempt.built,
            self._tally,
            self._reports,
            restarts=self._restarts[-1].attempt if self._restarts else 0,  # the length is limited
            clock=self._options.clock,
        )

    def unfinished_work(self) -> str:
        """Return a phrase that names the records, calls and writes in flight, which a stop waits for."""
        return unfinished_work(self._attempt)

    @property
    def samples(self) -> Sequence[RecordSample]:
        """The latest records that each step has emitted, if ``Options.samples`` asks for them."""
        return self._attempt.built.sampled()

    def state(self, step: str, name: str | None = None) -> StateReader:
        """Return a reader of the keyed state of a step; ``name`` is the one of a ``KeyedProcess`` with several.

        ``await job.state("totals").get(key)``. Raises ``FlowDefinitionError`` for an unknown step.
        """
        return StateReader(self.setup, step, name, self._stored_reads, self._now)

    def _now(self) -> JobNow:
        return JobNow(self.status, self._attempt, self._storage, self._options, self._running)

    async def ask(
        self,
        source: Source[Any],
        value: Any,
        timestamp: Instant | None = None,
        *,
        timeout: timedelta | None = None,
    ) -> Any:
        """Send ``value`` to a ``PushSource`` or ``DurablePushSource``, and return the first result in a ``ReplySink``.

        Raises ``NoResult`` as soon as no result can follow, ``TimeoutError`` after ``timeout``, ``JobStopped`` if the
        job ends first, or restarts without the record, ``FlowDefinitionError`` for a source of another job or a flow
        without ``ReplySink``, and the errors of ``send``. A cancellation does not withdraw the record.
        """
        refuse_inside(self, "ask()")
        return await self._questions.ask(self._started(), source, value, timestamp, timeout)

    def results(self, sink: ResultSink[T]) -> Results[T]:
        """Return an iterator over records that arrive in ``sink``. It ends with the job, or raises ``JobStopped``."""
        return aiter(sink)

    def _started(self) -> asyncio.Task[None]:
        if self._running is None:
            self._reminder.settled = True
            raise JobStopped(
                f"job {self.name!r} was not started; use 'async with flow.start() as job:'"
            )
        return self._running

    def _raise_failure(self) -> None:
        if self._failure is not None and not self._raised:
            self._raised = True
            raise self._failure

    async def _run(self, started: asyncio.Future[None]) -> None:
        """Run the job's own task. It keeps a failure instead of raising it, since the host may not await it."""
        enter_job(self)
        self._closes.enter()
        try:
            async with AsyncExitStack() as stack:
                steps = [node.name for task in self._plan.tasks for node in task.nodes]
                stack.enter_context(watching(self._options.watchdog, self._reports, steps))
                stack.push(partial(fail_results, self._plan))
                stack.callback(self._questions.job_ended)
                stack.callback(self._stored_reads.clear)
                if not isinstance(self._recovery.restarts, NoRestart):
                    keep_results(self._plan)
                stack.callback(trace_sources(self._plan, self._events.telemetry))
                closers = [source.on_job_end for source in reversed(sources_of(self._plan))]
                await stack.enter_async_context(closing_async(closers))
                # Also if the last attempt did not run: what follows cannot be cancelled.
                stack.callback(lambda: self._attempt.begin_closing())
                self._storage = await opened_storage(self._recovery.checkpointing, self.name)
                if self._storage is not None:
                    closers.insert(0, self._storage.close)
                await self._run_attempts(started)
            self._status.change(JobStatus.FINISHED)
        except asyncio.CancelledError:
            self._status.change(JobStatus.CANCELLED)
            raise
        except BaseException as exc:
            self._failure = first_cause(exc)
            self._events.failed(self._failure)
            self._status.change(JobStatus.FAILED)
            if not isinstance(self._failure, Exception):
                raise  # KeyboardInterrupt and SystemExit are errors of the program, not of the job

    async def _run_attempts(self, started: asyncio.Future[None]) -> None:
        """Run attempts until one ends normally or the failure is final."""
        rule = RestartRule(self._recovery.restarts, self._tally)
        clock = self._options.clock
        first = True
        while True:
            self._attempt = await self._next_attempt(first=first)
            try:
                await self._attempt.run(partial(self._on_started, started))
                return
            except Exception as exc:
                cause = first_cause(exc)
                unwanted = self._cancelled or self._stopping is not None
                if unwanted or not isinstance(cause, Exception):
                    raise
                decision = rule.on_failure(cause, clock.now(), self._options.random())
                if decision is None:
                    raise
            first = first and not self._tally.can_restore
            await self._back_off(cause, decision)

    def _on_started(self, started: asyncio.Future[None]) -> None:
        draining = self._stopping is not None
        self._status.change(JobStatus.DRAINING if draining else JobStatus.RUNNING)
        if not started.done():
            started.set_result(None)

    async def _next_attempt(self, *, first: bool) -> JobAttempt:
        # The content of a checkpoint is large: only the attempt refers to it, until it has restored it.
        checkpoints = await self._next_checkpoints(first=first)
        attempt = JobAttempt(self._plan, self._options, self._reports, checkpoints)
        attempt.last_savepoint = self._last_savepoint
        if self._stopping is not None:
            attempt.stop(drain=self._stopping)
        return attempt

    async def _back_off(self, cause: Exception, decision: Restart) -> None:
        restarting = JobRestarted(
            cause=cause,
            attempt=decision.attempt,
            delay_ms=decision.delay,
            failed_at=self._options.clock.now(),
        )
        self._restarts.append(restarting)
        self._questions.attempt_failed()
        self._status.change(JobStatus.RESTARTING)
        self._events.restarted(restarting)
        self._attempt.closing = False  # everything is closed, and the wait can be cancelled
        with suppress(TimeoutError):
            async with asyncio.timeout(decision.delay / 1000):
                await self._stop_wanted.wait()
        if self._stopping is not None:
            raise cause

    async def _next_checkpoints(self, *, first: bool) -> Checkpoints | None:
        """Return the checkpointing and the start of the next attempt; None in a job without checkpoints."""
        settings, storage = self._recovery.checkpointing, self._storage
        if settings is None or storage is None:
            return None
        start = self._start_from if first else StartFrom.LATEST
        own = not isinstance(start, str)
        restored = await checkpoint_of(start, storage)
        if restored is not None:
            self._status.change(JobStatus.RESTORING)
            self._events.restored(
                JobRestored(
                    checkpoint=restored.manifest.id,
                    passed_over=restored.passed_over,
                    path="" if own else str(self._start_from),
                )
            )
        draw, on_ended = self._options.random(), self._checkpoint_ended
        dropped = self._recovery.allow_dropped_state
        return Checkpoints(settings, storage, restored, own, dropped, draw, on_ended)

    def _checkpoint_ended(self, info: CheckpointInfo) -> None:
        self._tally.count(info)
        self._events.checkpoint_ended(info)

    async def _take(self, kind: CheckpointKind, path: str | None) -> CheckpointInfo:
        coordinator = self._attempt.coordinator
        if not self.running:
            raise JobStopped(f"job {self.name!r} is not running, so no {kind.value} can be taken")
        if coordinator is None:
            raise CheckpointError(
                f"job {self.name!r} is still starting, so no {kind.value} can be taken yet: try again"
            )
        return await coordinator.request(kind, path)
