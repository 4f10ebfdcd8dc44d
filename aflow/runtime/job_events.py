"""The events of one job: written to the log, told to ``on_event`` of the host, and to the job's telemetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aflow.errors import message_of, text_of
from aflow.graph.plan import Plan
from aflow.runtime import log_events
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome
from aflow.runtime.current_job import outside_of_jobs
from aflow.runtime.frame_locals import release_locals
from aflow.runtime.job_status import JobStatus
from aflow.runtime.recovery import JobEvent, JobRestarted, JobRestored
from aflow.runtime.telemetry import JobTelemetry, TracedSource


class JobEvents:
    """Tells of the events of the job ``job``."""

    def __init__(self, job: str, on_event: Callable[[JobEvent], None] | None) -> None:
        self._job: Final = job
        self._on_event = on_event
        #: None in a job without telemetry.
        self.telemetry: JobTelemetry | None = None

    def status_changed(self, status: JobStatus) -> None:
        """The job has entered ``status``, which is logged by ``StatusRecord``."""
        if self.telemetry is not None:
            self.telemetry.on_status(status)

    def failed(self, error: BaseException) -> None:
        """The job ends with ``error``. An interrupt is no failure of the job, and not logged."""
        if isinstance(error, Exception):
            log_events.FAILED.log(
                "job %r failed: %s",
                self._job,
                message_of(error),
                job=self._job,
                error_type=type(error).__name__,
                error=text_of(error),
            )
        if self.telemetry is not None:
            self.telemetry.on_attempt_failed(error)

    def restarted(self, event: JobRestarted) -> None:
        """The job has failed, and is restarted. The local variables in the traceback of its cause are released."""
        log_events.RESTART.log(
            "job %r failed and is restarted in %d ms: %s",
            self._job,
            event.delay_ms,
            message_of(event.cause),
            job=self._job,
            attempt=event.attempt,
            delay_ms=event.delay_ms,
            error_type=type(event.cause).__name__,
            error=text_of(event.cause),
        )
        if self.telemetry is not None:
            self.telemetry.on_attempt_failed(event.cause)
        self.emit(event)
        # After ``on_event``, which may report them.
        release_locals(event.cause)

    def restored(self, event: JobRestored) -> None:
        """The next attempt continues from a checkpoint."""
        for reason in event.passed_over:
            log_events.CHECKPOINT_SKIPPED.log(
                "job %r skips a checkpoint: %s", self._job, reason, job=self._job, reason=reason
            )
        log_events.RESTORED.log(
            "job %r continues from checkpoint %d%s",
            self._job,
            event.checkpoint,
            f" in {event.path}" if event.path else "",
            job=self._job,
            checkpoint=event.checkpoint,
            path=event.path,
            passed_over=len(event.passed_over),
        )
        self.emit(event)

    def checkpoint_ended(self, info: CheckpointInfo) -> None:
        """A checkpoint or savepoint has an outcome."""
        what = (self._job, info.kind.value, info.id)
        fields = {"job": self._job, "checkpoint": info.id, "kind": info.kind.value}
        if info.outcome is Outcome.COMPLETED:
            log_events.CHECKPOINT_COMPLETED.log(
                "job %r: %s %d completed in %.0f ms, %d bytes",
                *what,
                info.duration_ms,
                info.bytes,
                **fields,
                duration_ms=info.duration_ms,
                bytes=info.bytes,
                path=info.path,
            )
        elif info.outcome is Outcome.FAILED:
            log_events.CHECKPOINT_FAILED.log(
                "job %r: %s %d failed: %s", *what, info.reason, **fields, reason=info.reason
            )
        else:
            log_events.CHECKPOINT_ABORTED.log(
                "job %r: %s %d aborted: %s",
                *what,
                info.reason,
                **fields,
                outcome=info.outcome.value,
                reason=info.reason,
            )
        self.emit(info)

    def stop_requested(self, *, drain: bool, savepoint: str | None, seconds: float | None) -> None:
        """The host stops the job, within ``seconds`` if it has a deadline."""
        log_events.STOP_REQUESTED.log(
            "job %r was asked to stop%s",
            self._job,
            " and drain" if drain else "",
            job=self._job,
            drain=drain,
            savepoint=savepoint or "",
            deadline_s=seconds,
        )

    def stop_timed_out(self, seconds: float, left: str) -> None:
        """The job did not end within ``seconds`` and was cancelled; ``left`` names what was in flight."""
        log_events.STOP_TIMED_OUT.log(
            "job %r did not stop within %g s and was cancelled; left: %s",
            self._job,
            seconds,
            left,
            job=self._job,
            deadline_s=seconds,
            left=left,
        )

    def emit(self, event: JobEvent) -> None:
        """Tell the host and the telemetry."""
        if self.telemetry is not None:
            self.telemetry.on_event(event)
        if self._on_event is not None:
            try:
                with outside_of_jobs():
                    self._on_event(event)
            except Exception:
                log_events.ON_EVENT_FAILED.log_exception(
                    "job %r: on_event failed", self._job, job=self._job
                )


def trace_sources(plan: Plan, telemetry: JobTelemetry | None) -> Callable[[], None]:
    """Let the sources that take records from the host ask for traces. Return the function that ends this."""
    traced: list[tuple[TracedSource, str]] = []
    for task in plan.tasks:
        source = task.head.source
        if not isinstance(source, TracedSource) or telemetry is None:
            continue
        if source.trace_with(telemetry.tracer, task.head.name):
            traced.append((source, task.head.name))

    def end() -> None:
        for source, name in traced:
            source.trace_with(None, name)

    return end
