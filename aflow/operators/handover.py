"""Where a live job takes over from a computation of the past: at one moment of event time, T.

Theory. Whoever computes the past (``aflow.backfill``) stamps the records of a source with the same function as the live
job, and takes those before T; what it leaves is a savepoint in which no step stands beyond the watermark T - 1. The
step that stamps the records in the live job finds T in its state, and takes those from T on. So each record is taken
once, whatever the order in which the source gives them; none of those from T on is late for having come before an older
one, which the live job does not see.

Each split begins at the watermark T - 2 in the live job, which is the most that can be said in front of a record at T
(``BoundedOutOfOrderness`` says T - 1 only behind one). What stands at T - 1 takes no notice of it; a session that ends
at T, to which a record at T still belongs, stays open if it was left open.

The source knows nothing of it: it begins where it always does, and what is before T is read, stamped, and skipped (a
source reads by positions, and only the function says which records are before T). Steps between the source and the one
that stamps see these records too: an asynchronous one is called for them. The place for it is behind ``event_time``.
"""

from __future__ import annotations

from typing import Any, Final

from aflow.errors import RestoreError, shown
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.state.snapshot import OperatorSnapshot

#: Name of the operator state: the first moment (epoch ms) that belongs to the live job.
BEGINS: Final = "begins"

#: Side output of the records before that moment. ``StepMetrics.sides`` counts them.
SKIPPED: Final = "skipped"


def begins_at(moment: Timestamp) -> tuple[bytes, ...]:
    """The parts of the state ``BEGINS``."""
    return (PLAIN.encode(moment),)


def handed_over(snapshot: OperatorSnapshot, step: str) -> Timestamp | None:
    """Where ``step`` begins; None if it takes everything. Raises ``RestoreError`` for a state that says no moment."""
    moments: list[Timestamp] = []
    for part in snapshot.operator.get(BEGINS, ()):
        match PLAIN.decode(part):
            case int(moment):
                moments.append(moment)
            case other:
                raise RestoreError(f"step {step!r}: {shown(other)} is not a moment to begin at")
    # Each subtask has left a copy.
    return max(moments, default=None)


def watermark_before(begins: Timestamp) -> Timestamp:
    """Where the splits of a step begin that takes records from ``begins`` on."""
    return max(begins - 2, MIN_TIMESTAMP)


def divided(
    batch: Batch[Any], times: list[Timestamp], begins: Timestamp
) -> tuple[Batch[Any], Batch[Any]]:
    """The records before ``begins``, and the others, with their timestamps; either may be empty."""
    stamped = Batch(batch.values, times)
    skipped = [index for index, at in enumerate(times) if at < begins]
    taken = [index for index, at in enumerate(times) if at >= begins]
    return stamped.pick(skipped), stamped.pick(taken)
