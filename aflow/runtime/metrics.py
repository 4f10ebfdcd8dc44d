"""What a running job can be asked: counters that cost one addition for each batch, read by ``job.metrics()``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields

from aflow.machines.calls.counters import CallCounters
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp


@dataclass(slots=True)
class StepCounters:
    """Counted while the job runs, by one subtask of one step."""

    records_in: int = 0
    batches_in: int = 0
    records_out: int = 0
    watermark: Timestamp = MIN_TIMESTAMP
    idle: bool = False
    #: Records sent to each side output, whether or not somebody reads it.
    sides: dict[str, int] = field(default_factory=dict[str, int])
    #: Given by asynchronous steps: what they have counted of their calls.
    calls: Callable[[], CallCounters] | None = None

    def count_side(self, tag: str, records: int) -> None:
        """Count ``records`` sent to side output ``tag``."""
        self.sides[tag] = self.sides.get(tag, 0) + records


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMetrics:
    """The calls of an asynchronous step, all its subtasks together."""

    calls: int
    """Calls made, each attempt by itself."""
    retries: int
    """Of these, not the first for their record."""
    timeouts: int
    """Records whose time was up."""
    dropped: int
    """Records whose call failed for good, left out by ``Drop()``."""
    dead_letters: int
    """Those that went to a side output, by ``DeadLetter(tag)``."""
    fallbacks: int
    """Those that got the result of a ``Fallback(function)``."""
    abandoned: int
    """Calls that did not end when they were cancelled."""
    cache_hits: int
    """Records that got a result that was kept."""
    cache_misses: int
    merged: int
    """Records that got the result of another one's call, which was under way."""
    in_flight: int
    """Calls under way now."""
    waiting: int
    """Records now whose results have not left, and that are not being called for."""
    limit: int
    """How many calls may be under way now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One step, all its subtasks together."""

    name: str
    records_in: int
    batches_in: int
    records_out: int
    sides: dict[str, int]
    """Records sent to each side output, by tag name; ``late`` for the late records of windows, ``skipped`` for those
    that an ``event_time`` has left to the backfill whose savepoint the job began from."""
    watermark: Timestamp | None
    """The smallest watermark (epoch ms) that a subtask which is not idle has sent on; None before the first one."""
    lag_ms: int | None
    """How far the watermark is behind processing time, in ms; None without one, or after the end of the input."""
    calls: CallMetrics | None = None
    """For asynchronous steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """One subtask: where its time went, in seconds since the job started. The five add up to its whole time."""

    name: str
    subtask: int
    busy_s: float
    idle_s: float
    backpressured_s: float
    calling_s: float
    """Spent without taking input, since its asynchronous steps can take no more before calls have ended."""
    aligning_s: float
    """Spent ahead of its ``Alignment`` group, waiting for the slowest source in it; 0 for what is not a source."""
    queued_records: int
    """Records that wait in the subtask's input channels now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetrics:
    """The checkpoints of a job over all its restarts; more of each is in ``Job.checkpoints``."""

    completed: int = 0
    failed: int = 0
    last_duration_ms: float | None = None
    """Of the last one that was completed, from its trigger until it could be restored."""
    last_bytes: int = 0
    """Stored for it by all subtasks."""
    last_in_flight_records: int = 0
    """Records that its barriers have overtaken."""
    last_in_flight_bytes: int = 0
    """Of ``last_bytes``, what these records take."""
    last_alignment_ms: float = 0.0
    """From the first barrier to the last, in the subtask where it took longest."""
    last_start_delay_ms: float = 0.0
    """From the trigger to the first barrier, in the subtask where it took longest."""
    longest_pause_ms: float = 0.0
    """For which a subtask did nothing else, in any of the latest checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedMetrics:
    """How often the event loop was kept from everything else for longer than ``Options.watchdog``."""

    times: int = 0
    longest_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetrics:
    """Everything a job can say about itself at one moment. What steps and tasks count begins anew at a restart."""

    steps: dict[str, StepMetrics]
    """By the step's name."""
    tasks: list[TaskMetrics]
    checkpoints: CheckpointMetrics = field(default_factory=CheckpointMetrics)
    restarts: int = 0
    """How often the job was started again."""
    blocked: BlockedMetrics = field(default_factory=BlockedMetrics)
    """How often something kept the event loop to itself, over all restarts."""
    left_behind: int = 0
    """Calls, and resources, that did not end when they were to, over all restarts."""


def step_metrics(name: str, counters: Sequence[StepCounters], now: Timestamp) -> StepMetrics:
    """Add up what the subtasks of one step counted, at processing time ``now`` (epoch ms)."""
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
    """The sum of what subtasks have counted; None if no step was asynchronous."""
    all_of_them = list(counters)
    if not all_of_them:
        return None
    names = [one.name for one in fields(CallMetrics)]
    return CallMetrics(**{name: sum(getattr(one, name) for one in all_of_them) for name in names})
