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

The step also stores the newest timestamp that it has assigned. A backfill or a stream that continues from a live job
must end after it: earlier, state and rows would be divided at a moment that some records in the state have passed.
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

#: Name of the operator state: the newest timestamp (epoch ms) that was assigned, ``MIN_TIMESTAMP`` for none.
NEWEST: Final = "newest"

#: Side output of the records before it. ``StepMetrics.sides`` counts them.
SKIPPED: Final = "skipped"


def begins_at(moment: Timestamp) -> tuple[bytes, ...]:
    """Return the parts of the state ``BEGINS``."""
    return (PLAIN.encode(moment),)


def handed_over(snapshot: OperatorSnapshot, step: str) -> Timestamp | None:
    """Return the first timestamp that ``step`` takes; None: all. Raises ``RestoreError`` for an invalid state."""
    # Each former subtask has a copy.
    return _latest(snapshot, BEGINS, f"step {step!r}", "is not a timestamp to begin at")


def newest_stored(snapshot: OperatorSnapshot, step: str) -> Timestamp | None:
    """Return the newest timestamp that ``step`` has assigned; None if the snapshot does not say.

    Raises ``RestoreError`` for an invalid state.
    """
    return _latest(snapshot, NEWEST, f"step {step!r}", "is no newest timestamp")


def _latest(snapshot: OperatorSnapshot, name: str, step: str, problem: str) -> Timestamp | None:
    """Return the latest timestamp in a state; None if there is none. ``problem`` is said of another value."""
    moments: list[Timestamp] = []
    for part in snapshot.operator.get(name, ()):
        match PLAIN.decode(part):
            case int(moment):
                moments.append(moment)
            case other:
                raise RestoreError(f"{step}: {shown(other)} {problem}")
    return max(moments, default=None)


class TimeBounds:
    """The first timestamp that a step takes, and the newest one that it has assigned; epoch ms."""

    __slots__ = ("begins", "newest")

    def __init__(self) -> None:
        #: Records before this time were processed by a backfill, and are skipped; None without a backfill.
        self.begins: Timestamp | None = None
        self.newest: Timestamp = MIN_TIMESTAMP

    def saw(self, newest: Timestamp) -> None:
        """Note the newest timestamp of a batch."""
        # Hot path: once for each batch.
        if newest > self.newest:
            self.newest = newest

    def stored(self) -> dict[str, tuple[bytes, ...]]:
        """Return both as operator state."""
        parts: dict[str, tuple[bytes, ...]] = {NEWEST: (PLAIN.encode(self.newest),)}
        if self.begins is not None:
            parts[BEGINS] = begins_at(self.begins)
        return parts

    def restore(self, snapshot: OperatorSnapshot, step: str) -> None:
        """Read both from ``snapshot``. Raises ``RestoreError`` for an invalid state."""
        self.begins = handed_over(snapshot, step)
        newest = newest_stored(snapshot, step)
        if newest is None and self.begins is not None:
            newest = self.begins - 1  # of a backfill, which has processed no later record
        self.newest = MIN_TIMESTAMP if newest is None else newest


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
