"""What travels between batches: watermarks, idleness, barriers and the end.

Data travels in a ``Batch``; the elements of this module stand *between* batches of the same channel and are never
reordered with them (save for unaligned barriers, which overtake data on purpose).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with a timestamp (epoch ms) at or below this one is expected any more; one that comes is late."""

    timestamp: Timestamp


@dataclass(frozen=True, slots=True)
class Idle:
    """The channel is silent for now: it does not hold back the watermark of its readers."""


@dataclass(frozen=True, slots=True)
class Active:
    """The channel speaks again after having been idle."""


class CheckpointKind(Enum):
    """What a checkpoint is taken for."""

    PERIODIC = "checkpoint"
    """To recover from a failure; the next one takes its place."""
    SAVEPOINT = "savepoint"
    """Asked for, and kept until somebody removes it: always aligned, and complete in itself."""
    FINAL = "final checkpoint"
    """All sources have ended: commits what is in the sinks."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Cuts the stream: what precedes it belongs to checkpoint ``id``, what follows does not."""

    id: int
    created_at: Timestamp
    """When the checkpoint was triggered (epoch ms)."""
    kind: CheckpointKind = CheckpointKind.PERIODIC
    timeout: int | None = None
    """Milliseconds after ``created_at`` from which on the barrier may overtake records; None: it never does."""
    unaligned: bool = False
    """True if the barrier overtakes the records in front of it, which become part of the checkpoint."""


@dataclass(frozen=True, slots=True)
class CancelBarrier:
    """Checkpoint ``id`` will not come through this channel: nobody needs to wait for its barrier."""

    id: int


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The last element of a channel. What a drained source had to say about time (the final watermark) came before."""


IDLE: Final = Idle()
ACTIVE: Final = Active()
END_OF_INPUT: Final = EndOfInput()
