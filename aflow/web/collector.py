"""The metrics of jobs for Prometheus: read at each scrape, with no work for each record.

Names follow the conventions of Prometheus: seconds and bytes, ``_total`` for counters. Counters of steps and tasks
start from zero when a job restarts, which ``rate`` and ``increase`` of Prometheus take into account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aflow.model.distribution import VERSION
from aflow.model.elements import CheckpointKind
from aflow.operators.latency import LatencyMetrics
from aflow.runtime.checkpoints.statistics import Outcome
from aflow.runtime.job import Job
from aflow.runtime.job_status import JobStatus
from aflow.runtime.metrics import (
    CallMetrics,
    CheckpointMetrics,
    JobMetrics,
    StepMetrics,
    TaskMetrics,
)
from aflow.web.jobs import Jobs, PresentJobs

T = TypeVar("T")

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily

#: A busy time that is smaller than before by less than this (seconds) is a rounding error. It is computed as the
#: difference of floats, and Prometheus would take a smaller counter for one that was reset.
_ROUNDING: Final = 0.001

_JOB: Final = ("job",)
_STEP: Final = ("job", "step")
_TASK: Final = ("job", "task", "subtask")
_LATENCY: Final = ("job", "source", "sink")


@dataclass(frozen=True, slots=True)
class _Exported(Generic[T]):
    """A metric with one value for each ``T``; counters end with ``_total``."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[T], float | None]
    """Returns the value; None if there is none now."""


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


_OF_JOBS: Final[Sequence[_Exported[JobMetrics]]] = [
    _Exported(
        "aflow_job_restarts_total",
        "Restarts of the job after failures.",
        _JOB,
        lambda of: of.restarts,
    ),
    _Exported(
        "aflow_loop_blocked_total",
        "Blockages of the event loop that lasted longer than Options.watchdog.",
        _JOB,
        lambda of: of.blocked.times,
    ),
    _Exported(
        "aflow_loop_longest_blocked_seconds",
        "The longest of these blockages.",
        _JOB,
        lambda of: of.blocked.longest_ms / 1000,
    ),
    _Exported(
        "aflow_left_behind_total",
        "Calls and resources that did not end when they were cancelled or closed.",
        _JOB,
        lambda of: of.left_behind,
    ),
]

_OF_STEPS: Final[Sequence[_Exported[StepMetrics]]] = [
    _Exported(
        "aflow_step_records_in_total",
        "Records that the step has received.",
        _STEP,
        lambda of: of.records_in,
    ),
    _Exported(
        "aflow_step_batches_in_total",
        "Batches that the step has received.",
        _STEP,
        lambda of: of.batches_in,
    ),
    _Exported(
        "aflow_step_records_out_total",
        "Records that the step has emitted to its main output.",
        _STEP,
        lambda of: of.records_out,
    ),
    _Exported(
        "aflow_step_watermark_timestamp_seconds",
        "Watermark of the step, in seconds since the epoch; absent before the first and after the end of the input.",
        _STEP,
        lambda of: None if of.lag_ms is None else _seconds(of.watermark),
    ),
    _Exported(
        "aflow_step_watermark_lag_seconds",
        "Lag of the watermark behind processing time; absent as the watermark is.",
        _STEP,
        lambda of: _seconds(of.lag_ms),
    ),
]

_OF_CALLS: Final[Sequence[_Exported[CallMetrics]]] = [
    _Exported(
        "aflow_calls_total",
        "Calls of an async step; each attempt counts.",
        _STEP,
        lambda of: of.calls,
    ),
    _Exported(
        "aflow_call_retries_total",
        "Calls that were not the first for their record.",
        _STEP,
        lambda of: of.retries,
    ),
    _Exported(
        "aflow_call_timeouts_total",
        "Records with an expired timeout.",
        _STEP,
        lambda of: of.timeouts,
    ),
    _Exported(
        "aflow_call_dropped_records_total",
        "Records whose calls failed finally, dropped by Drop().",
        _STEP,
        lambda of: of.dropped,
    ),
    _Exported(
        "aflow_call_dead_letters_total",
        "Records whose calls failed finally, sent to a side output by DeadLetter(tag).",
        _STEP,
        lambda of: of.dead_letters,
    ),
    _Exported(
        "aflow_call_fallbacks_total",
        "Records whose calls failed finally, with the result of a Fallback(function).",
        _STEP,
        lambda of: of.fallbacks,
    ),
    _Exported(
        "aflow_calls_abandoned_total",
        "Calls that did not end when they were cancelled.",
        _STEP,
        lambda of: of.abandoned,
    ),
    _Exported(
        "aflow_call_cache_hits_total",
        "Records with a cached result.",
        _STEP,
        lambda of: of.cache_hits,
    ),
    _Exported(
        "aflow_call_cache_misses_total",
        "Records that were not in the cache.",
        _STEP,
        lambda of: of.cache_misses,
    ),
    _Exported(
        "aflow_call_merged_records_total",
        "Records with the result of a call for another record that was under way.",
        _STEP,
        lambda of: of.merged,
    ),
    _Exported("aflow_calls_in_flight", "Calls under way now.", _STEP, lambda of: of.in_flight),
    _Exported(
        "aflow_call_waiting_records",
        "Records whose results were not emitted yet, and that have no call under way.",
        _STEP,
        lambda of: of.waiting,
    ),
    _Exported(
        "aflow_calls_limit", "The most calls that may be under way now.", _STEP, lambda of: of.limit
    ),
]

_OF_TASKS: Final[Sequence[_Exported[TaskMetrics]]] = [
    _Exported(
        "aflow_task_idle_seconds_total",
        "Time in which the subtask had no input.",
        _TASK,
        lambda of: of.idle_s,
    ),
    _Exported(
        "aflow_task_backpressured_seconds_total",
        "Time in which the subtask waited for capacity downstream.",
        _TASK,
        lambda of: of.backpressured_s,
    ),
    _Exported(
        "aflow_task_calling_seconds_total",
        "Time in which async steps of the subtask accepted no input until calls ended.",
        _TASK,
        lambda of: of.calling_s,
    ),
    _Exported(
        "aflow_task_aligning_seconds_total",
        "Time in which a source waited for slower ones of its Alignment group.",
        _TASK,
        lambda of: of.aligning_s,
    ),
    _Exported(
        "aflow_task_queued_records",
        "Records in the input channels of the subtask.",
        _TASK,
        lambda of: of.queued_records,
    ),
]

_OF_LATENCIES: Final[Sequence[_Exported[LatencyMetrics]]] = [
    _Exported(
        "aflow_latency_p50_seconds",
        "Median latency from a source to the writer of a sink, of the latest 256 measurements.",
        _LATENCY,
        lambda of: of.p50_ms / 1000,
    ),
    _Exported(
        "aflow_latency_p99_seconds",
        "99th percentile of the same measurements.",
        _LATENCY,
        lambda of: of.p99_ms / 1000,
    ),
    _Exported(
        "aflow_latency_measurements_total",
        "Measurements of the latency.",
        _LATENCY,
        lambda of: of.count,
    ),
]

_OF_CHECKPOINTS: Final[Sequence[_Exported[CheckpointMetrics]]] = [
    _Exported(
        "aflow_checkpoints_completed_total",
        "Completed checkpoints and savepoints.",
        _JOB,
        lambda of: of.completed,
    ),
    _Exported(
        "aflow_checkpoints_failed_total",
        "Failed checkpoints and savepoints.",
        _JOB,
        lambda of: of.failed,
    ),
    _Exported(
        "aflow_checkpoint_last_duration_seconds",
        "Of the last completed checkpoint, from its trigger until it could be restored.",
        _JOB,
        lambda of: _seconds(of.last_duration_ms),
    ),
    _Exported(
        "aflow_checkpoint_last_size_bytes",
        "Stored for the last completed checkpoint by all subtasks.",
        _JOB,
        lambda of: _if_any(of, of.last_bytes),
    ),
    _Exported(
        "aflow_checkpoint_last_in_flight_records",
        "Records that barriers of the last completed checkpoint have overtaken.",
        _JOB,
        lambda of: _if_any(of, of.last_in_flight_records),
    ),
    _Exported(
        "aflow_checkpoint_last_in_flight_bytes",
        "The part of the last completed checkpoint for records in flight.",
        _JOB,
        lambda of: _if_any(of, of.last_in_flight_bytes),
    ),
    _Exported(
        "aflow_checkpoint_last_alignment_seconds",
        "From the first barrier to the last, in the slowest subtask of the last completed checkpoint.",
        _JOB,
        lambda of: _if_any(of, of.last_alignment_ms / 1000),
    ),
    _Exported(
        "aflow_checkpoint_last_start_delay_seconds",
        "From the trigger to the first barrier, in the slowest subtask of the last completed checkpoint.",
        _JOB,
        lambda of: _if_any(of, of.last_start_delay_ms / 1000),
    ),
    _Exported(
        "aflow_checkpoint_longest_pause_seconds",
        "The longest pause of a subtask in any of the latest checkpoints.",
        _JOB,
        lambda of: _if_any(of, of.longest_pause_ms / 1000),
    ),
]


def _if_any(metrics: CheckpointMetrics, value: float) -> float | None:
    return value if metrics.completed else None


#: Metrics that are not read by one of the tables above: name, help, labels.
_BUILD: Final = ("aflow_build_info", "The version of aflow; the value is 1.", ("version",))
_STATUS: Final = (
    "aflow_job_status",
    "1 for the present status of the job, 0 for all others.",
    ("job", "status"),
)
_SIDES: Final = (
    "aflow_step_side_records_total",
    "Records that the step has emitted to a side output; 'late' has the late records of windows.",
    ("job", "step", "side"),
)
_BUSY: Final = (
    "aflow_task_busy_seconds_total",
    "Time in which the subtask has worked.",
    _TASK,
)
_LAST_CHECKPOINT: Final = (
    "aflow_checkpoint_last_completed_timestamp_seconds",
    "Completion of the last checkpoint that is no savepoint, in seconds since the epoch.",
    _JOB,
)


@dataclass(slots=True)
class ScrapeMemory:
    """Busy times of the tasks of one job at the preceding scrape, and its last checkpoint."""

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

    def completed(self, job: Job) -> float | None:
        """Return the completion of the last checkpoint other than a savepoint, in epoch seconds; None before it."""
        for info in reversed(job.checkpoints):
            if info.outcome is Outcome.COMPLETED and info.kind is not CheckpointKind.SAVEPOINT:
                self.last_checkpoint = (info.triggered_at + (info.duration_ms or 0)) / 1000
                break
        return self.last_checkpoint


class JobCollector(Collector):
    """A collector of ``prometheus_client``: ``registry.register(JobCollector(job))``.

    Takes a job, several jobs, or a function that returns the present ones. Register one collector for all jobs: a
    registry refuses a second one, which has the same names. Scrape it on the thread of the event loop. Raises
    ``FlowDefinitionError`` for other values, and if two jobs have one name.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = PresentJobs(jobs)
        self._memory: WeakKeyDictionary[Job, ScrapeMemory] = WeakKeyDictionary()

    def describe(self) -> Iterable[Family]:
        """Return all metrics without values."""
        return _families().values()

    def collect(self) -> Iterable[Family]:
        """Return all metrics with their present values. Raises errors of the function that returns the jobs."""
        families = _families()
        families[_BUILD[0]].add_metric([VERSION], 1)
        for job in self._jobs.by_name().values():
            self._add_job(families, job)
        return families.values()

    def _add_job(self, families: Mapping[str, Family], job: Job) -> None:
        metrics, name = job.metrics(), _text(job.name)
        for status in JobStatus:
            families[_STATUS[0]].add_metric([name, status.name], float(status is job.status))
        _add(families, _OF_JOBS, metrics, name)
        for step in metrics.steps.values():
            _add_step(families, step, name, _text(step.name))
        memory = self._memory.setdefault(job, ScrapeMemory())
        for task in metrics.tasks:
            subtask = [name, _text(task.name), str(task.subtask)]
            _add(families, _OF_TASKS, task, *subtask)
            families[_BUSY[0]].add_metric(subtask, memory.busy(task))
        for latency in metrics.latencies:
            ends = [name, _text(latency.source), _text(latency.sink)]
            _add(families, _OF_LATENCIES, latency, *ends)
        if job.setup.recovery.checkpointing is not None:
            _add(families, _OF_CHECKPOINTS, metrics.checkpoints, name)
            completed = memory.completed(job)
            if completed is not None:
                families[_LAST_CHECKPOINT[0]].add_metric([name], completed)


def labels_of(name: str) -> tuple[str, ...]:
    """Return the labels of the metric ``name``. Raises ``KeyError`` for an unknown one."""
    return {name: labels for name, _, labels in _described()}[name]


def _families() -> dict[str, Family]:
    """Return all metrics by name, without values."""
    return {name: _family(name, text, labels) for name, text, labels in _described()}


def _described() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the name, help and labels of each metric."""
    groups = (_OF_JOBS, _OF_STEPS, _OF_CALLS, _OF_TASKS, _OF_LATENCIES, _OF_CHECKPOINTS)
    in_groups = [(one.name, one.help, one.labels) for group in groups for one in group]
    return [_BUILD, _STATUS, _SIDES, _BUSY, _LAST_CHECKPOINT, *in_groups]


def _family(name: str, text: str, labels: Sequence[str]) -> Family:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(name, text, labels=labels)


def _add(
    families: Mapping[str, Family], group: Sequence[_Exported[T]], metrics: T, *labels: str
) -> None:
    for one in group:
        value = one.read(metrics)
        if value is not None:
            families[one.name].add_metric(labels, value)


def _add_step(families: Mapping[str, Family], step: StepMetrics, job: str, name: str) -> None:
    _add(families, _OF_STEPS, step, job, name)
    for side, records in step.sides.items():
        families[_SIDES[0]].add_metric([job, name, _text(side)], records)
    if step.calls is not None:
        _add(families, _OF_CALLS, step.calls, job, name)


def _text(name: str) -> str:
    """Return ``name`` without lone surrogates, which the exposition cannot contain."""
    return name.encode("utf-8", "replace").decode("utf-8")
