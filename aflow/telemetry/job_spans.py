"""Spans of checkpoints, restores and restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from aflow.errors import described
from aflow.model.record_trace import RecordTracer
from aflow.model.time import Timestamp
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.job_status import JobStatus
from aflow.runtime.recovery import JobEvent, JobRestarted, JobRestored
from aflow.runtime.telemetry import JobTelemetry, ObservedJob
from aflow.telemetry.guard import Guard
from aflow.telemetry.instruments import ObservedMetrics
from aflow.telemetry.record_spans import RecordSpans

#: Nanoseconds in a millisecond.
_MILLI: Final = 1_000_000

Attributes = Mapping[str, str | int | float | bool]


class JobSpans(JobTelemetry):
    """The telemetry of one job.

    Spans of checkpoints begin and end at the times of the job's clock, and are made when they have ended. They belong
    to no request, so each is a trace of its own; a restore after a failure is below the restart.
    """

    def __init__(
        self,
        job: ObservedJob,
        clock: RuntimeClock,
        tracer: Tracer,
        guard: Guard,
        records: RecordSpans,
        metrics: ObservedMetrics,
    ) -> None:
        """``metrics`` are exported as long as this object lives."""
        self._name: Final = job.name
        self._clock = clock
        self._tracer = tracer
        self._guard = guard
        self._records = records
        self._metrics = metrics
        #: The present restart, from the failure until the job runs again.
        self._restart: Span | None = None
        #: The present restore, until the job runs.
        self._restore: Span | None = None

    @property
    def tracer(self) -> RecordTracer:
        return self._records

    def on_status(self, status: JobStatus) -> None:
        if status is JobStatus.RUNNING or status is JobStatus.DRAINING:
            self._end_start(None)
        elif status.has_ended:
            reason = f"the job is {status.value}"
            self._end_start(reason)
            self._records.end_all(reason)

    def on_attempt_failed(self, error: BaseException) -> None:
        reason = f"the job has failed: {described(error)}"
        self._end_start(reason)
        self._records.end_all(reason)

    def on_event(self, event: JobEvent) -> None:
        with self._guard.suppressed():
            match event:
                case CheckpointInfo():
                    self._add_checkpoint(event)
                case JobRestarted():
                    self._begin_restart(event)
                case JobRestored():
                    self._begin_restore(event)
                case _:  # of the event loop and of calls: metrics and logs have them
                    pass

    def _add_checkpoint(self, info: CheckpointInfo) -> None:
        kind = "savepoint" if info.path else "checkpoint"
        took = info.duration_ms
        end = self._clock.now() if took is None else info.triggered_at + round(took)
        parts = info.subtasks
        span = self._start(
            kind,
            {
                "aflow.checkpoint.id": info.id,
                "aflow.checkpoint.kind": info.kind.value,
                "aflow.checkpoint.outcome": info.outcome.value,
                "aflow.checkpoint.path": info.path,
                "aflow.checkpoint.size": info.bytes,
                "aflow.checkpoint.subtasks": len(parts),
                "aflow.checkpoint.unaligned": any(one.unaligned for one in parts),
                "aflow.checkpoint.in_flight_records": sum(one.in_flight_records for one in parts),
                "aflow.checkpoint.in_flight_size": sum(one.in_flight_bytes for one in parts),
                # Seconds, of the slowest subtask in each.
                "aflow.checkpoint.start_delay": _longest([one.start_delay_ms for one in parts]),
                "aflow.checkpoint.alignment": _longest([one.alignment_ms for one in parts]),
                "aflow.checkpoint.pause": _longest([one.sync_ms for one in parts]),
                "aflow.checkpoint.storing": _longest([one.async_ms for one in parts]),
            },
            at=info.triggered_at,
        )
        if info.outcome is not Outcome.COMPLETED:
            span.set_attribute("aflow.checkpoint.reason", info.reason)
        if info.outcome is Outcome.FAILED:
            span.set_status(Status(StatusCode.ERROR, info.reason))
        span.end(max(end, info.triggered_at) * _MILLI)

    def _begin_restart(self, event: JobRestarted) -> None:
        self._restart = self._start(
            "restart",
            {
                "aflow.restart.attempt": event.attempt,
                "aflow.restart.delay": event.delay_ms / 1000,
                "error.type": type(event.cause).__name__,
            },
            at=event.failed_at,
        )
        self._restart.record_exception(event.cause, timestamp=event.failed_at * _MILLI)

    def _begin_restore(self, event: JobRestored) -> None:
        self._restore = self._start(
            "restore",
            {
                "aflow.checkpoint.id": event.checkpoint,
                "aflow.checkpoint.path": event.path,
                "aflow.restore.passed_over": len(event.passed_over),
            },
            at=self._clock.now(),
            parent=self._restart,
        )

    def _end_start(self, error: str | None) -> None:
        """End the spans of a start of the job; ``error`` is the reason why it does not run."""
        for span in (self._restore, self._restart):
            if span is not None:
                with self._guard.suppressed():
                    if error is not None:
                        span.set_status(Status(StatusCode.ERROR, error))
                    span.end(self._clock.now() * _MILLI)
        self._restore = self._restart = None

    def _start(
        self, name: str, attributes: Attributes, *, at: Timestamp, parent: Span | None = None
    ) -> Span:
        # An empty context: the span of the host that has started the job is over, or never ends.
        context = Context() if parent is None else set_span_in_context(parent, Context())
        return self._tracer.start_span(
            name,
            context,
            SpanKind.INTERNAL,
            {"aflow.job": self._name, **attributes},
            start_time=at * _MILLI,
        )


def _longest(milliseconds: list[float]) -> float:
    """Return the longest duration, in seconds."""
    return max(milliseconds, default=0.0) / 1000
