"""Metrics of a job: counters that cost one addition for each batch, read by ``job.metrics()``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields

from aflow.machines.calls.counters import CallCounters
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.latency import LatencyMetrics
from aflow.runtime.calls.reports import BlockedMetrics


@dataclass(slots=True)
class StepCounters:
    """Counters of one subtask of one step."""

    records_in: int = 0
    batches_in: int = 0
    records_out: int = 0
    watermark: Timestamp = MIN_TIMESTAMP
    idle: bool = False
    #: Records sent to each side output, including those without readers.
    sides: dict[str, int] = field(default_factory=dict[str, int])
    #: The counters of the calls of an asynchronous step.
    calls: Callable[[], CallCounters] | None = None

    def count_side(self, tag: str, records: int) -> None:
        """Count ``records`` sent to side output ``tag``."""
        self.sides[tag] = self.sides.get(tag, 0) + records


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMetrics:
    """The calls of an asynchronous step, of all its subtasks together."""

    calls: int
    """Calls made; each attempt counts."""
    retries: int
    """Calls that were not the first for their record."""
    timeouts: int
    """Records with an expired timeout."""
    dropped: int
    """Records whose calls failed finally, dropped by ``Drop()``."""
    dead_letters: int
    """Records sent to a side output by ``DeadLetter(tag)``."""
    fallbacks: int
    """Records with the result of a ``Fallback(function)``."""
    abandoned: int
    """Calls that did not end when they were cancelled."""
    cache_hits: int
    """Records with a cached result."""
    cache_misses: int
    merged: int
    """Records with the result of a call for another record that was under way."""
    in_flight: int
    """Calls under way now."""
    waiting: int
    """Records whose results were not emitted yet, and that have no call under way."""
    limit: int
    """The most calls that may be under way now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One step, all its subtasks together."""

    name: str
    records_in: int
    batches_in: int
    records_out: int
    sides: dict[str, int]
    """Records sent to each side output, by tag name; ``late`` for the late records of windows, ``skipped`` for those
    that an ``event_time`` has left to the backfill whose savepoint the job started from."""
    watermark: Timestamp | None
    """The smallest watermark (epoch ms) that a subtask which is not idle has emitted; None before the first one."""
    lag_ms: int | None
    """Lag of the watermark behind processing time, in ms; None without one, or after the end of the input."""
    calls: CallMetrics | None = None
    """For asynchronous steps; None for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """One subtask and its time in seconds since the job started. The five durations add up to the whole time."""

    name: str
    subtask: int
    busy_s: float
    idle_s: float
    backpressured_s: float
    calling_s: float
    """Suspended because its asynchronous steps accept no input until calls have ended."""
    aligning_s: float
    """Suspended because the source is ahead of its ``Alignment`` group; 0 for other tasks."""
    queued_records: int
    """Records in the input channels of the subtask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetrics:
    """The checkpoints of a job over all its restarts; ``Job.checkpoints`` has details."""

    completed: int = 0
    failed: int = 0
    last_duration_ms: float | None = None
    """Of the last completed checkpoint, from its trigger until it could be restored."""
    last_bytes: int = 0
    """Stored for it by all subtasks."""
    last_in_flight_records: int = 0
    """Records that its barriers have overtaken."""
    last_in_flight_bytes: int = 0
    """The part of ``last_bytes`` for records in flight."""
    last_alignment_ms: float = 0.0
    """From the first barrier to the last, in the slowest subtask."""
    last_start_delay_ms: float = 0.0
    """From the trigger to the first barrier, in the slowest subtask."""
    longest_pause_ms: float = 0.0
    """The longest pause of a subtask in any of the latest checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetrics:
    """All metrics of a job at one moment. Counters of steps and tasks start from zero at each restart."""

    steps: dict[str, StepMetrics]
    """By the name of the step."""
    tasks: list[TaskMetrics]
    checkpoints: CheckpointMetrics = field(default_factory=CheckpointMetrics)
    restarts: int = 0
    """The number of restarts."""
    blocked: BlockedMetrics = field(default_factory=BlockedMetrics)
    """Blockages of the event loop, over all restarts."""
    latencies: list[LatencyMetrics] = field(default_factory=list[LatencyMetrics])
    """For each source and sink between which a marker has measured the latency."""
    left_behind: int = 0
    """Calls, and resources, that did not end when they were cancelled or closed, over all restarts."""


def step_metrics(name: str, counters: Sequence[StepCounters], now: Timestamp) -> StepMetrics:
    """Return the sum of the counters of all subtasks of a step, at processing time ``now`` (epoch ms)."""
    sides: dict[str, int] = {}
    for one in counters:
        for tag, records in one.sides.items():
            sides[tag] = sides.get(tag, 0) + records
    counting = [one for one in counters if not one.idle] or counters
    watermark = min((one.watermark for one in counting), default=MIN_TIMESTAMP)
    known = watermark > MIN_TIMESTAMP
    return StepMetrics(
        name=name,
        records_in=sum(one.records_in for one in counters),
        batches_in=sum(one.batches_in for one in counters),
        records_out=sum(one.records_out for one in counters),
        sides=sides,
        watermark=watermark if known else None,
        lag_ms=now - watermark if known and watermark < MAX_TIMESTAMP else None,
        calls=_call_metrics([one.calls() for one in counters if one.calls is not None]),
    )


def _call_metrics(counters: Iterable[CallCounters]) -> CallMetrics | None:
    """Return the sum of the counters of all subtasks; None if the step is not asynchronous."""
    all_of_them = list(counters)
    if not all_of_them:
        return None
    names = [one.name for one in fields(CallMetrics)]
    return CallMetrics(**{name: sum(getattr(one, name) for one in all_of_them) for name in names})
