"""Costs and outcomes of checkpoints: for the host, and for benchmarks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from aflow.errors import JobStopped
from aflow.model.elements import CheckpointKind
from aflow.model.time import Timestamp
from aflow.runtime.metrics import CheckpointMetrics

#: The number of checkpoints that are kept for the host.
_HISTORY: Final = 100


class Outcome(Enum):
    """The outcome of a checkpoint."""

    PENDING = "under way"
    COMPLETED = "completed"
    FAILED = "failed"
    SUBSUMED = "subsumed"
    """A newer one was completed first. No failure."""
    STOPPED = "stopped"
    """The job ended, or failed, before it was completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskCheckpoint:
    """The part of one subtask in one checkpoint. Durations in milliseconds."""

    task: str
    unaligned: bool
    """True if barriers have overtaken records here."""
    start_delay_ms: float
    """From the trigger at the coordinator to the first barrier here; in a source, to the mail."""
    alignment_ms: float
    """From the first barrier to the last."""
    sync_ms: float
    """The pause of the records: the task did nothing else in this time."""
    async_ms: float
    """From then until everything was stored, while records were processed."""
    bytes: int
    """Of the stored part."""
    in_flight_records: int
    """Records that the barriers have overtaken."""
    in_flight_bytes: int
    complete: bool
    """False if only changes were stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One checkpoint of a job."""

    id: int
    kind: CheckpointKind
    outcome: Outcome
    triggered_at: Timestamp
    """Epoch ms."""
    duration_ms: float | None
    """From the trigger until it could be restored; None while it is pending, and if it failed."""
    reason: str = ""
    """The reason of a failure."""
    path: str = ""
    """The path of a savepoint."""
    subtasks: tuple[SubtaskCheckpoint, ...] = ()
    """The acknowledgements of subtasks, in their order."""

    @property
    def bytes(self) -> int:
        """Bytes stored by all subtasks together."""
        return sum(one.bytes for one in self.subtasks)


@dataclass(slots=True)
class CheckpointTally:
    """Counts the outcomes of the checkpoints of a job, and keeps the latest."""

    #: By id, oldest first; at most ``_HISTORY``.
    latest: dict[int, CheckpointInfo] = field(default_factory=dict[int, CheckpointInfo])
    completed: int = 0
    failed: int = 0
    last: CheckpointInfo | None = None
    #: True once a checkpoint that is no savepoint was completed. It may have left ``latest`` since.
    can_restore: bool = False
    #: ms; of the latest checkpoints.
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=100))

    def count(self, info: CheckpointInfo) -> None:
        """Count a checkpoint that has ended."""
        self.latest[info.id] = info
        while len(self.latest) > _HISTORY:
            del self.latest[next(iter(self.latest))]
        if info.outcome is Outcome.FAILED:
            self.failed += 1
        if info.outcome is Outcome.COMPLETED:
            self.completed += 1
            self.last = info
            self.can_restore |= info.kind is not CheckpointKind.SAVEPOINT
            self.pauses.append(max((one.sync_ms for one in info.subtasks), default=0.0))

    def check_written(self, job: str, savepoint: str | None) -> None:
        """Raise ``JobStopped`` unless a recent checkpoint was completed in this folder; None: none must be."""
        written = (
            one.path == savepoint and one.outcome is Outcome.COMPLETED
            for one in self.latest.values()
        )
        if savepoint is not None and not any(written):
            raise JobStopped(
                f"job {job!r} ended before a savepoint in {savepoint} could be written; restore from its storage"
            )

    def metrics(self) -> CheckpointMetrics:
        """Return the counters as metrics."""
        subtasks = () if self.last is None else self.last.subtasks
        return CheckpointMetrics(
            completed=self.completed,
            failed=self.failed,
            last_duration_ms=None if self.last is None else self.last.duration_ms,
            last_bytes=sum(one.bytes for one in subtasks),
            last_in_flight_records=sum(one.in_flight_records for one in subtasks),
            last_in_flight_bytes=sum(one.in_flight_bytes for one in subtasks),
            last_alignment_ms=max((one.alignment_ms for one in subtasks), default=0.0),
            last_start_delay_ms=max((one.start_delay_ms for one in subtasks), default=0.0),
            longest_pause_ms=max(self.pauses, default=0.0),
        )
