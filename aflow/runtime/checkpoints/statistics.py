"""What checkpoints have cost, and what became of them: for the host, and for benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from aflow.model.elements import CheckpointKind
from aflow.model.time import Timestamp


class Outcome(Enum):
    """What became of a checkpoint."""

    PENDING = "under way"
    COMPLETED = "completed"
    FAILED = "failed"
    SUBSUMED = "subsumed"
    """A newer one was complete first. No failure."""
    STOPPED = "stopped"
    """The job ended, or failed, before it was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskCheckpoint:
    """The part of one subtask in one checkpoint. Durations in milliseconds."""

    task: str
    unaligned: bool
    """True if barriers have overtaken records here."""
    start_delay_ms: float
    """From the trigger at the coordinator to the first barrier here; of a source, to its turn."""
    alignment_ms: float
    """From the first barrier to the last."""
    sync_ms: float
    """The task did nothing else meanwhile: the pause of its records."""
    async_ms: float
    """From there until everything was stored, beside the processing of records."""
    bytes: int
    """Of the part that was stored."""
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
    """From the trigger until it could be restored; None while it is under way, or if it never could."""
    reason: str = ""
    """Why it failed."""
    path: str = ""
    """Where a savepoint was written to."""
    subtasks: tuple[SubtaskCheckpoint, ...] = ()
    """Those that have done their part, in that order."""

    @property
    def bytes(self) -> int:
        """Stored for it by all subtasks together."""
        return sum(one.bytes for one in self.subtasks)
