"""The metrics that tools export: their names, and where their values are in ``Job.metrics()``.

Names follow the conventions of Prometheus: seconds and bytes, ``_total`` for counters. Other tools derive theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from aflow.model.elements import CheckpointKind
from aflow.operators.latency import LatencyMetrics
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome
from aflow.runtime.job_status import JobStatus
from aflow.runtime.metrics import (
    CallMetrics,
    CheckpointMetrics,
    JobMetrics,
    StepMetrics,
    TaskMetrics,
)
from aflow.runtime.telemetry import ObservedJob

T = TypeVar("T")

#: A busy time that is smaller than before by less than this (seconds) is a rounding error. It is computed as the
#: difference of floats, and tools would take a smaller counter for one that was reset.
_ROUNDING: Final = 0.001

_JOB: Final = ("job",)
_STEP: Final = ("job", "step")
_TASK: Final = ("job", "task", "subtask")
_LATENCY: Final = ("job", "source", "sink")


@dataclass(frozen=True, slots=True)
class ExportedMetric(Generic[T]):
    """A metric with one value for each ``T``; counters end with ``_total``."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[T], float | None]
    """Returns the value; None if there is none now."""


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


OF_JOBS: Final[Sequence[ExportedMetric[JobMetrics]]] = [
    ExportedMetric(
        "aflow_job_restarts_total",
        "Restarts of the job after failures.",
        _JOB,
        lambda of: of.restarts,
    ),
    ExportedMetric(
        "aflow_loop_blocked_total",
        "Blockages of the event loop that lasted longer than Options.watchdog.",
        _JOB,
        lambda of: of.blocked.times,
    ),
    ExportedMetric(
        "aflow_loop_longest_blocked_seconds",
        "The longest of these blockages.",
        _JOB,
        lambda of: of.blocked.longest_ms / 1000,
    ),
    ExportedMetric(
        "aflow_left_behind_total",
        "Calls and resources that did not end when they were cancelled or closed.",
        _JOB,
        lambda of: of.left_behind,
    ),
]

OF_STEPS: Final[Sequence[ExportedMetric[StepMetrics]]] = [
    ExportedMetric(
        "aflow_step_records_in_total",
        "Records that the step has received.",
        _STEP,
        lambda of: of.records_in,
    ),
    ExportedMetric(
        "aflow_step_batches_in_total",
        "Batches that the step has received.",
        _STEP,
        lambda of: of.batches_in,
    ),
    ExportedMetric(
        "aflow_step_records_out_total",
        "Records that the step has emitted to its main output.",
        _STEP,
        lambda of: of.records_out,
    ),
    ExportedMetric(
        "aflow_step_watermark_timestamp_seconds",
        "Watermark of the step, in seconds since the epoch; absent before the first and after the end of the input.",
        _STEP,
        lambda of: None if of.lag_ms is None else _seconds(of.watermark),
    ),
    ExportedMetric(
        "aflow_step_watermark_lag_seconds",
        "Lag of the watermark behind processing time; absent as the watermark is.",
        _STEP,
        lambda of: _seconds(of.lag_ms),
    ),
]

OF_CALLS: Final[Sequence[ExportedMetric[CallMetrics]]] = [
    ExportedMetric(
        "aflow_calls_total",
        "Calls of an async step; each attempt counts.",
        _STEP,
        lambda of: of.calls,
    ),
    ExportedMetric(
        "aflow_call_retries_total",
        "Calls that were not the first for their record.",
        _STEP,
        lambda of: of.retries,
    ),
    ExportedMetric(
        "aflow_call_timeouts_total",
        "Records with an expired timeout.",
        _STEP,
        lambda of: of.timeouts,
    ),
    ExportedMetric(
        "aflow_call_dropped_records_total",
        "Records whose calls failed finally, dropped by Drop().",
        _STEP,
        lambda of: of.dropped,
    ),
    ExportedMetric(
        "aflow_call_dead_letters_total",
        "Records whose calls failed finally, sent to a side output by DeadLetter(tag).",
        _STEP,
        lambda of: of.dead_letters,
    ),
    ExportedMetric(
        "aflow_call_fallbacks_total",
        "Records whose calls failed finally, with the result of a Fallback(function).",
        _STEP,
        lambda of: of.fallbacks,
    ),
    ExportedMetric(
        "aflow_calls_abandoned_total",
        "Calls that did not end when they were cancelled.",
        _STEP,
        lambda of: of.abandoned,
    ),
    ExportedMetric(
        "aflow_call_cache_hits_total",
        "Records with a cached result.",
        _STEP,
        lambda of: of.cache_hits,
    ),
    ExportedMetric(
        "aflow_call_cache_misses_total",
        "Records that were not in the cache.",
        _STEP,
        lambda of: of.cache_misses,
    ),
    ExportedMetric(
        "aflow_call_merged_records_total",
        "Records with the result of a call for another record that was under way.",
        _STEP,
        lambda of: of.merged,
    ),
    ExportedMetric("aflow_calls_in_flight", "Calls under way now.", _STEP, lambda of: of.in_flight),
    ExportedMetric(
        "aflow_call_waiting_records",
        "Records whose results were not emitted yet, and that have no call under way.",
        _STEP,
        lambda of: of.waiting,
    ),
    ExportedMetric(
        "aflow_calls_limit", "The most calls that may be under way now.", _STEP, lambda of: of.limit
    ),
]

OF_TASKS: Final[Sequence[ExportedMetric[TaskMetrics]]] = [
    ExportedMetric(
        "aflow_task_idle_seconds_total",
        "Time in which the subtask had no input.",
        _TASK,
        lambda of: of.idle_s,
    ),
    ExportedMetric(
        "aflow_task_backpressured_seconds_total",
        "Time in which the subtask waited for capacity downstream.",
        _TASK,
        lambda of: of.backpressured_s,
    ),
    ExportedMetric(
        "aflow_task_calling_seconds_total",
        "Time in which async steps of the subtask accepted no input until calls ended.",
        _TASK,
        lambda of: of.calling_s,
    ),
    ExportedMetric(
        "aflow_task_aligning_seconds_total",
        "Time in which a source waited for slower ones of its Alignment group.",
        _TASK,
        lambda of: of.aligning_s,
    ),
    ExportedMetric(
        "aflow_task_queued_records",
        "Records in the input channels of the subtask.",
        _TASK,
        lambda of: of.queued_records,
    ),
]

OF_LATENCIES: Final[Sequence[ExportedMetric[LatencyMetrics]]] = [
    ExportedMetric(
        "aflow_latency_p50_seconds",
        "Median latency from a source to the writer of a sink, of the latest 256 measurements.",
        _LATENCY,
        lambda of: of.p50_ms / 1000,
    ),
    ExportedMetric(
        "aflow_latency_p99_seconds",
        "99th percentile of the same measurements.",
        _LATENCY,
        lambda of: of.p99_ms / 1000,
    ),
    ExportedMetric(
        "aflow_latency_measurements_total",
        "Measurements of the latency.",
        _LATENCY,
        lambda of: of.count,
    ),
]

OF_CHECKPOINTS: Final[Sequence[ExportedMetric[CheckpointMetrics]]] = [
    ExportedMetric(
        "aflow_checkpoints_completed_total",
        "Completed checkpoints and savepoints.",
        _JOB,
        lambda of: of.completed,
    ),
    ExportedMetric(
        "aflow_checkpoints_failed_total",
        "Failed checkpoints and savepoints.",
        _JOB,
        lambda of: of.failed,
    ),
    ExportedMetric(
        "aflow_checkpoint_last_duration_seconds",
        "Of the last completed checkpoint, from its trigger until it could be restored.",
        _JOB,
        lambda of: _seconds(of.last_duration_ms),
    ),
    ExportedMetric(
        "aflow_checkpoint_last_size_bytes",
        "Stored for the last completed checkpoint by all subtasks.",
        _JOB,
        lambda of: _if_any(of, of.last_bytes),
    ),
    ExportedMetric(
        "aflow_checkpoint_last_in_flight_records",
        "Records that barriers of the last completed checkpoint have overtaken.",
        _JOB,
        lambda of: _if_any(of, of.last_in_flight_records),
    ),
    ExportedMetric(
        "aflow_checkpoint_last_in_flight_bytes",
        "The part of the last completed checkpoint for records in flight.",
        _JOB,
        lambda of: _if_any(of, of.last_in_flight_bytes),
    ),
    ExportedMetric(
        "aflow_checkpoint_last_alignment_seconds",
        "From the first barrier to the last, in the slowest subtask of the last completed checkpoint.",
        _JOB,
        lambda of: _if_any(of, of.last_alignment_ms / 1000),
    ),
    ExportedMetric(
        "aflow_checkpoint_last_start_delay_seconds",
        "From the trigger to the first barrier, in the slowest subtask of the last completed checkpoint.",
        _JOB,
        lambda of: _if_any(of, of.last_start_delay_ms / 1000),
    ),
    ExportedMetric(
        "aflow_checkpoint_longest_pause_seconds",
        "The longest pause of a subtask in any of the latest checkpoints.",
        _JOB,
        lambda of: _if_any(of, of.longest_pause_ms / 1000),
    ),
]


def _if_any(metrics: CheckpointMetrics, value: float) -> float | None:
    return value if metrics.completed else None


#: Metrics that are not read by one of the tables above: name, help, labels.
BUILD: Final = ("aflow_build_info", "The version of aflow; the value is 1.", ("version",))
STATUS: Final = (
    "aflow_job_status",
    "1 for the present status of the job, 0 for all others.",
    ("job", "status"),
)
SIDES: Final = (
    "aflow_step_side_records_total",
    "Records that the step has emitted to a side output; 'late' has the late records of windows.",
    ("job", "step", "side"),
)
BUSY: Final = (
    "aflow_task_busy_seconds_total",
    "Time in which the subtask has worked.",
    _TASK,
)
LAST_CHECKPOINT: Final = (
    "aflow_checkpoint_last_completed_timestamp_seconds",
    "Completion of the last checkpoint that is no savepoint, in seconds since the epoch.",
    _JOB,
)


@dataclass(slots=True)
class MetricMemory:
    """Busy times of the tasks of one job at the preceding reading, and its last checkpoint."""

    #: Seconds, by task and subtask.
    seen: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    #: Epoch seconds. Kept, since the history of checkpoints is limited.
    last_checkpoint: float | None = None

    def busy(self, task: TaskMetrics) -> float:
        """Return the busy time in seconds, without decreases that are rounding errors."""
        key = (task.name, task.subtask)
        before = self.seen.get(key, 0.0)
        rounded = before - _ROUNDING < task.busy_s < before
        self.seen[key] = before if rounded else task.busy_s
        return self.seen[key]

    def completed(self, checkpoints: Sequence[CheckpointInfo]) -> float | None:
        """Return the completion of the last of ``checkpoints`` but savepoints, in epoch seconds; None before it."""
        for info in reversed(checkpoints):
            if info.outcome is Outcome.COMPLETED and info.kind is not CheckpointKind.SAVEPOINT:
                self.last_checkpoint = (info.triggered_at + (info.duration_ms or 0)) / 1000
                break
        return self.last_checkpoint


Sample: TypeAlias = tuple[str, tuple[str, ...], float]
"""The name of a metric, the values of its labels, and its value."""


def samples(job: ObservedJob, memory: MetricMemory) -> Iterator[Sample]:
    """Yield the present values of all metrics of a job. ``memory`` is that of the job and of one tool."""
    metrics, name = job.metrics(), job.name
    yield from status_samples(job.status, name)
    yield from read_metrics(OF_JOBS, metrics, name)
    for step in metrics.steps.values():
        yield from step_samples(step, name)
    for task in metrics.tasks:
        yield from read_metrics(OF_TASKS, task, name, task.name, str(task.subtask))
        yield BUSY[0], (name, task.name, str(task.subtask)), memory.busy(task)
    for latency in metrics.latencies:
        yield from read_metrics(OF_LATENCIES, latency, name, latency.source, latency.sink)
    if job.takes_checkpoints:
        yield from read_metrics(OF_CHECKPOINTS, metrics.checkpoints, name)
        completed = memory.completed(job.checkpoints)
        if completed is not None:
            yield LAST_CHECKPOINT[0], (name,), completed


def status_samples(status: JobStatus, job: str) -> Iterator[Sample]:
    """Yield 1 for the present status of ``job``, and 0 for all others."""
    for one in JobStatus:
        yield STATUS[0], (job, one.value), float(one is status)


def step_samples(step: StepMetrics, job: str) -> Iterator[Sample]:
    """Yield the values of all metrics of one step of ``job``."""
    yield from read_metrics(OF_STEPS, step, job, step.name)
    for side, records in step.sides.items():
        yield SIDES[0], (job, step.name, side), records
    if step.calls is not None:
        yield from read_metrics(OF_CALLS, step.calls, job, step.name)


def read_metrics(group: Sequence[ExportedMetric[T]], metrics: T, *labels: str) -> Iterator[Sample]:
    """Yield the values of a table of metrics, which have ``labels``."""
    for one in group:
        value = one.read(metrics)
        if value is not None:
            yield one.name, labels, value


def described_metrics() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the name, help and labels of each metric."""
    groups = (OF_JOBS, OF_STEPS, OF_CALLS, OF_TASKS, OF_LATENCIES, OF_CHECKPOINTS)
    in_groups = [(one.name, one.help, one.labels) for group in groups for one in group]
    return [BUILD, STATUS, SIDES, BUSY, LAST_CHECKPOINT, *in_groups]
