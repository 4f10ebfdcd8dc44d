"""Elements of a channel besides batches: watermarks, idleness, barriers and the end.

Data travels in a ``Batch``. The elements of this module lie *between* batches of the same channel and are never
reordered with them (except unaligned barriers, which overtake data on purpose).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

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
class LatencyMarker:
    """Measures the latency from a source to the sinks: it waits in every queue that the preceding records wait in.

    Each exchange sends it to one reader. The source of the idea is Flink's ``LatencyMarker``; this one also waits for
    the calls of asynchronous steps.
    """

    source: str
    """The name of the source step."""
    emitted_at: float
    """Time at which the source began to process the preceding records, or at which they arrived if that is known (s,
    steady clock)."""


@dataclass(frozen=True, slots=True)
class ProgressMarker:
    """Follows all records that precede the barrier of ``checkpoint``, and the results of their calls.

    Each exchange sends it to all readers, and a reader passes it on when it has it from all writers. So a sink that has
    received it has received all results of those records.
    """

    checkpoint: int


Marker: TypeAlias = LatencyMarker | ProgressMarker
"""An element that is forwarded by each step after the results of the records that precede it, and changes nothing."""

#: The checkpoint of a progress marker at the end of the input, which is later than all.
AFTER_ALL_CHECKPOINTS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The last element of a channel. The final watermark of a drained source precedes it."""


IDLE: Final = Idle()
ACTIVE: Final = Active()
END_OF_INPUT: Final = EndOfInput()
