"""Elements of a channel besides batches: watermarks, idleness, barriers and the end.

Data travels in a ``Batch``. The elements of this module lie *between* batches of the same channel and are never
reordered with them (except unaligned barriers, which overtake data on purpose).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with a timestamp (epoch ms) at or below this one is expected any more; one that arrives is late."""

    timestamp: Timestamp


@dataclass(frozen=True, slots=True)
class Idle:
    """The channel is idle: it does not hold back the watermark of its readers."""


@dataclass(frozen=True, slots=True)
class Active:
    """The channel is active again after having been idle."""


class CheckpointKind(Enum):
    """Purpose of a checkpoint."""

    PERIODIC = "checkpoint"
    """To recover from a failure; the next one replaces it."""
    SAVEPOINT = "savepoint"
    """Requested by a user, and kept until a user removes it: always aligned and self-contained."""
    FINAL = "final checkpoint"
    """Taken when all sources have ended: commits the output of the sinks."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Cuts the stream: preceding records belong to checkpoint ``id``, following ones do not."""

    id: int
    created_at: Timestamp
    """Time at which the checkpoint was triggered (epoch ms)."""
    kind: CheckpointKind = CheckpointKind.PERIODIC
    timeout: int | None = None
    """Milliseconds after ``created_at`` until the barrier may overtake records; None: it never does."""
    unaligned: bool = False
    """True if the barrier overtakes the records before it, which become part of the checkpoint."""


@dataclass(frozen=True, slots=True)
class CancelBarrier:
    """Cancels checkpoint ``id`` in this channel: readers must not wait for its barrier."""

    id: int


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The last element of a channel. The final watermark of a drained source precedes it."""


IDLE: Final = Idle()
ACTIVE: Final = Active()
END_OF_INPUT: Final = EndOfInput()
