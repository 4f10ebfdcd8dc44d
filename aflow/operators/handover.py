"""The handover from a backfill to a live job, at one time T of event time.

Theory. A backfill (``aflow.backfill``) stamps the records of a source with the same function as the live job, and
processes those before T. It ends with a savepoint in which no step has a watermark beyond T - 1. The step of the live
job that stamps the records has T in its state, and takes those from T on. So each record is processed once, in whatever
order the source delivers them; no record from T on is late because of an older one, which the live job skips.

Each split starts at the watermark T - 2 in the live job, the greatest that may precede a record at T
(``BoundedOutOfOrderness`` emits T - 1 only after one). A step at T - 1 ignores it; a session that ends at T, to which a
record at T still belongs, remains open if it was left open.

The source starts at its usual position: records before T are read, stamped, and skipped (a source reads by positions,
and only the function has the timestamps). Steps between the source and ``event_time`` process these records too: an
async step makes calls for them, so place it after ``event_time``.
"""

from __future__ import annotations

from typing import Any, Final

from aflow.errors import RestoreError, shown
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.state.snapshot import OperatorSnapshot

#: Name of the operator state: the first timestamp (epoch ms) of the live job.
BEGINS: Final = "begins"

#: Side output of the records before it. ``StepMetrics.sides`` counts them.
SKIPPED: Final = "skipped"


def begins_at(moment: Timestamp) -> tuple[bytes, ...]:
    """Return the parts of the state ``BEGINS``."""
    return (PLAIN.encode(moment),)


def handed_over(snapshot: OperatorSnapshot, step: str) -> Timestamp | None:
    """Return the first timestamp that ``step`` takes; None: all. Raises ``RestoreError`` for an invalid state."""
    moments: list[Timestamp] = []
    for part in snapshot.operator.get(BEGINS, ()):
        match PLAIN.decode(part):
            case int(moment):
                moments.append(moment)
            case other:
                raise RestoreError(f"step {step!r}: {shown(other)} is not a timestamp to begin at")
    # Each former subtask has a copy.
    return max(moments, default=None)


def watermark_before(begins: Timestamp) -> Timestamp:
    """Return the initial watermark of the splits of a step that takes records from ``begins`` on."""
    return max(begins - 2, MIN_TIMESTAMP)


def divided(
    batch: Batch[Any], times: list[Timestamp], begins: Timestamp
) -> tuple[Batch[Any], Batch[Any]]:
    """Return the records before ``begins``, and the others, with their timestamps; either may be empty."""
    stamped = Batch(batch.values, times)
    skipped = [index for index, at in enumerate(times) if at < begins]
    taken = [index for index, at in enumerate(times) if at >= begins]
    return stamped.pick(skipped), stamped.pick(taken)
