"""What an interval join holds of one input, and for how long.

Pairs of records whose timestamps are at most so far apart.

Theory. Left record l and right record r of one key are a pair when ``l.ts + lower ≤ r.ts ≤ l.ts + upper``. Whichever
comes second finds the first, so each pair comes out once, at once, with the larger of the two timestamps. Both inputs
are alike but for the sign: the partners of a left record of time t are in [t + lower, t + upper], those of a right one
in [t - upper, t - lower]. Below, [t + first, t + last].

*Late* is a record at or behind the combined watermark W, as for every step. Flink takes a record at W
itself for being on time, but has dropped some of its partners by then: it is neither joined with them nor late.

*Clean-up.* A watermark W promises that what comes is later than W. A record of time t can meet nobody any more once
t + last ≤ W, and goes: how long an input is kept depends on the bound of the *other* one. Exclusive bounds are the
inclusive ones a millisecond inside. Records on time are later than W, so they find no record that had to go, dropped
already or not. Results do not depend on when memory is freed.

*Outer joins.* That a record of time t found nobody is known at the first W ≥ t + last. It comes out with its own
timestamp t, which may be behind W by then: were W sent on as it is, the record would be late downstream. Before that
moment, the last watermark V was < t + last. So if only V - last is sent on, t > V - last holds, and the record is on
time. Hence the output watermark is the input's minus the constant

    delay = max(upper, 0) where left records come out alone, max(-lower, 0) where right ones do, the larger for both.

It is the smallest constant: a watermark of t + last - 1 leaves the record to wait. (Where last is negative the record
is known to be alone at or before its own time, which needs no delay.) Pairs are never late: their timestamp is at least
that of the record that completed them, which was on time. An inner join therefore delays nothing. Flink's row-time
joins hold their watermark back in the same way (``getMaxOutputDelay``). At the end of time all come out, and that
watermark passes as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from aflow.errors import FlowDefinitionError, RestoreError
from aflow.machines.expiry import Expiry
from aflow.model.batch import Batch
from aflow.model.codecs import Codec, CodecError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import RAISED, StateSize
from aflow.operators.changed_keys import ChangedKeys, too_many
from aflow.operators.group_watermarks import restored_watermarks
from aflow.operators.joins.columns import Columns, cut, decoded, encoded, insert
from aflow.operators.joins.join import Into, Join, JoinOperator
from aflow.operators.joins.late_outputs import LATE_LEFT, LATE_RIGHT
from aflow.state.keyed_entries import CapturedRows, KeyedRows, KeyRow
from aflow.state.snapshot import OperatorSnapshot

#: A key whose records never come back is forgotten at most this part of the interval after it could be.
_STRETCHES: Final = 8

#: A key that had new records when it was looked at is next looked at after so many lengths of the interval: what it
#: holds in vain until then is what it got in one of them. Sooner, a key would be looked at for every few records.
_PATIENCE: Final = 4


class Alone(NamedTuple):
    """A record that has found no partner and will find none."""

    at: Timestamp
    key: Hashable
    value: Any


class IntervalSide:
    """The records of one input that may still meet a partner. The partners of time t are in [t + first, t + last].

    A record goes when its last moment, its timestamp plus ``last``, is at or before the watermark. With ``outer`` that
    happens at this watermark exactly, since records which found nobody come out then; otherwise when its key is touched
    or looked at, and until then nothing that is on time can find it.
    """

    def __init__(self, first: int, last: int, *, outer: bool) -> None:
        self.first = first
        self.last = last
        self.outer = outer
        #: The records of each key; never empty.
        self.held: dict[Hashable, Columns] = {}
        #: With ``outer``: whether each of the records in `held` has found a partner.
        self._met: dict[Hashable, list[bool]] = {}
        #: With ``outer`` has each record's last moment; otherwise each key held once.
        self.expiry: Final = Expiry(1 if outer else max(1, (last - first) // _STRETCHES))
        self._patience: Final = _PATIENCE * (last - first)

    def gone(self, watermark: Timestamp) -> Timestamp:
        """The newest timestamp whose last moment has come."""
        return MAX_TIMESTAMP if watermark == MAX_TIMESTAMP else watermark - self.last

    def add(
        self, key: Hashable, at: Timestamp, value: object, *, met: bool, gone: Timestamp
    ) -> None:
        """Hold a record that is newer than ``gone``."""
        held = self.held.get(key)
        known = held is not None
        if held is None:
            held = self.held[key] = ([], [])
        elif not self.outer and held[0][0] <= gone:
            cut(*held, gone)
        index = insert(*held, at, value)
        if self.outer:
            self._met.setdefault(key, []).insert(index, met)
        if self.outer or not known:
            self.expiry.note(key, at + self.last)

    def meet(self, key: Hashable, low: Timestamp, high: Timestamp) -> Columns:
        """The records from ``low`` to ``high``, inclusive, which have found a partner now."""
        held = self.held.get(key)
        if held is None:
            return [], []
        times, values = held
        start = bisect_left(times, low)
        stop = bisect_right(times, high, start)
        if self.outer:
            self._met[key][start:stop] = [True] * (stop - start)
        return times[start:stop], values[start:stop]

    def expire(self, watermark: Timestamp, changed: ChangedKeys) -> list[Alone]:
        """Drop records whose last moment has come; with ``outer``, returns those that found no partner.

        ``changed`` is told of their keys.
        """
        gone = self.gone(watermark)
        alone: list[Alone] = []
        due = list(self.held if watermark == MAX_TIMESTAMP else self.expiry.due(watermark))
        changed.add(due)
        for key in due:
            if key in self.held:
                self._look_at(key, gone, alone)
        if watermark == MAX_TIMESTAMP:
            self.expiry.clear()
        return alone

    def _look_at(self, key: Hashable, gone: Timestamp, alone: list[Alone]) -> None:
        times, values = self.held[key]
        if self.outer:
            met = self._met[key]
            count = bisect_right(times, gone)
            alone += [
                Alone(at, key, value)
                for at, value, paired in zip(times[:count], values, met, strict=False)
                if not paired
            ]
            del met[:count]
        cut(times, values, gone)
        if not times:
            del self.held[key]
            self._met.pop(key, None)
        elif not self.outer:
            self.expiry.note(key, max(gone + self._patience, times[-1]) + self.last)

    def met(self, key: Hashable) -> list[bool]:
        """With ``outer``: for each record of ``key``, whether it has found a partner."""
        return self._met[key]

    def size(self) -> int:
        """How many records are held."""
        return sum(len(times) for times, _ in self.held.values())


#: Keyed state: the columns of each input, with what found a partner where that is known.
_LEFT: Final = "@left"
_RIGHT: Final = "@right"


def closed(lower: int, upper: int, *, inclusive: tuple[bool, bool]) -> tuple[int, int]:
    """The bounds (ms) of the same interval, both inclusive.

    Raises ``FlowDefinitionError`` if there is no timestamp between them.
    """
    low = lower if inclusive[0] else lower + 1
    high = upper if inclusive[1] else upper - 1
    if low > high:
        first, last = (
            f"{bound} ms ({'inclusive' if within else 'exclusive'})"
            for bound, within in zip((lower, upper), inclusive, strict=True)
        )
        raise FlowDefinitionError(
            f"no timestamp lies between {first} and {last}, so the join would give no pair; "
            f"the lower bound comes first, and an exclusive one leaves its own millisecond out"
        )
    return low, high


class IntervalJoinOperator(JoinOperator):
    """Emits ``into(left, right)`` for records of one key with left + lower ≤ right ≤ left + upper in time (ms).

    With an outer ``kind`` also ``into(left, None)``, or ``into(None, right)``, once a record can meet nobody any more;
    watermarks are then sent on later, see above. Late records go to ``LATE_LEFT`` and ``LATE_RIGHT``.

    Raises ``FlowDefinitionError`` for bounds between which there is no timestamp.
    """

    def __init__(
        self,
        lower: int,
        upper: int,
        into: Into,
        *,
        kind: Join = Join.INNER,
        lower_inclusive: bool = True,
        upper_inclusive: bool = True,
        left_type: type[Any] | None = None,
        right_type: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        super().__init__(into, left_type=left_type, right_type=right_type, key_type=key_type)
        low, high = closed(lower, upper, inclusive=(lower_inclusive, upper_inclusive))
        self._inner = kind is Join.INNER
        self._left = IntervalSide(low, high, outer=kind.keeps_left)
        self._right = IntervalSide(-high, -low, outer=kind.keeps_right)
        #: By how much the output watermark is behind the input's (ms).
        self.delay: Final = max(
            high if kind.keeps_left else 0,
            -low if kind.keeps_right else 0,
            0,
        )

    def process_left(self, batch: Batch[Any]) -> None:
        keys, times = self._columns(batch, "left")
        if self._inner and not self._ahead and min(times) > self.watermark:
            self._pair(batch, keys, times, self._left, self._right)
        else:
            self._join(batch, keys, times, self._left, self._right)
        self._changed.add(keys)

    def process_right(self, batch: Batch[Any]) -> None:
        keys, times = self._columns(batch, "right")
        if self._inner and not self._ahead and min(times) > self.watermark:
            self._pair(batch, keys, times, self._right, self._left)
        else:
            self._join(batch, keys, times, self._right, self._left)
        self._changed.add(keys)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs catch up with what was known
        self.watermark = timestamp
        self._ahead = self._ahead.after(timestamp)
        self._emit_alone(timestamp)
        if timestamp != MAX_TIMESTAMP:
            timestamp -= self.delay
        if timestamp > MIN_TIMESTAMP:
            self.output.watermark(timestamp)

    def size(self) -> StateSize:
        return StateSize(
            entries=self._left.size() + self._right.size(),
            event_timers=len(self._left.expiry) + len(self._right.expiry),
        )

    def capture(self, *, changes: bool) -> CapturedRows:
        """Raises ``CheckpointError`` for a record that cannot be encoded."""
        keys = self._changed.take(changes=changes)
        if keys is not None:
            held = self._left.held.keys(), self._right.held.keys()
            if too_many(keys, sum(len(keys & some) for some in held), sum(map(len, held))):
                keys = None
        captured = self._captured(keys)
        return captured if self._changed.trusted(captured.keyed) else self._captured(None)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self.watermark, self._ahead = restored_watermarks(snapshot, self.watermark, self.context)
        for name, side, codec, what in (
            (_LEFT, self._left, self._left_codec, "left"),
            (_RIGHT, self._right, self._right_codec, "right"),
        ):
            for key, data in self._key_codec.read(snapshot.keyed, name):
                self._hold(side, key, data, codec, what)
        self._changed.begin([*self._left.held, *self._right.held])

    def _pair(
        self,
        batch: Batch[Any],
        keys: Sequence[Hashable],
        times: Sequence[Timestamp],
        mine: IntervalSide,
        other: IntervalSide,
    ) -> None:
        """Join records that are on time, where none comes out alone."""
        # Hot path (benchmark `join`): what `_join` does, without a call or an object for a record.
        into, from_left = self._into, mine is self._left
        first, last, gone = mine.first, mine.last, mine.gone(self.watermark)
        held, partners, known = mine.held, other.held, self._known_keys
        values: list[Any] = []
        stamps: list[Timestamp] = []
        result, stamp = values.append, stamps.append
        key: Hashable = None
        at, value, partner = MIN_TIMESTAMP, None, None
        try:
            for key, at, value in zip(keys, times, batch.values, strict=True):
                if key in partners:
                    met_times, met = partners[key]
                    index = bisect_left(met_times, at + first)
                    stop = bisect_right(met_times, at + last, index)
                    while index < stop:
                        partner = met[index]
                        result(into(value, partner) if from_left else into(partner, value))
                        met_at = met_times[index]
                        stamp(met_at if met_at > at else at)
                        index += 1
                if at <= gone:
                    continue
                if key not in held:
                    if key not in known:
                        self._check_keys(batch, keys)
                    mine.add(key, at, value, met=False, gone=gone)
                    continue
                own_times, own = held[key]
                if own_times[0] <= gone:
                    index = bisect_right(own_times, gone)
                    del own_times[:index], own[:index]
                if not own_times or own_times[-1] <= at:
                    own_times.append(at)
                    own.append(value)
                else:
                    insert(own_times, own, at, value)
        except RAISED as exc:
            self._check_keys(batch, keys)
            left, right = (value, partner) if from_left else (partner, value)
            raise self._failed(exc, key, at, left, right) from exc
        self._emit(values, stamps)

    def _join(
        self,
        batch: Batch[Any],
        keys: Sequence[Hashable],
        times: Sequence[Timestamp],
        mine: IntervalSide,
        other: IntervalSide,
    ) -> None:
        """Join records of any kind, one by one."""
        self._check_keys(batch, keys)
        own, ahead, gone = self.watermark, self._ahead, mine.gone(self.watermark)
        late: list[int] = []
        values: list[Any] = []
        stamps: list[Timestamp] = []
        for index, (key, at, value) in enumerate(zip(keys, times, batch.values, strict=True)):
            if at <= ahead.of(key, own):
                late.append(index)
                continue
            met_times, met = other.meet(key, at + mine.first, at + mine.last)
            for met_at, partner in zip(met_times, met, strict=True):
                values.append(self._pair_of(mine, key, at, value, partner))
                stamps.append(max(at, met_at))
            if at > gone:
                mine.add(key, at, value, met=bool(met), gone=gone)
            elif mine.outer and not met:
                values.append(self._pair_of(mine, key, at, value, None))
                stamps.append(at)
        self._side(LATE_LEFT if mine is self._left else LATE_RIGHT, batch, late)
        self._emit(values, stamps)

    def _emit_alone(self, watermark: Timestamp) -> None:
        """Send on the records which can meet nobody any more, in the order of time."""
        alone = [
            (one, side)
            for side in (self._left, self._right)
            for one in side.expire(watermark, self._changed)
        ]
        if not alone:
            return
        alone.sort(key=lambda each: each[0].at)
        values = [self._pair_of(side, one.key, one.at, one.value, None) for one, side in alone]
        self._emit(values, [one.at for one, _ in alone])

    def _pair_of(
        self, mine: IntervalSide, key: Hashable, at: Timestamp, value: object, partner: object
    ) -> Any:
        """The result for a record of ``mine`` and its partner, if it has one."""
        if mine is self._left:
            return self._joined(key, at, value, partner)
        return self._joined(key, at, partner, value)

    def _captured(self, keys: set[Hashable] | None) -> CapturedRows:
        """What ``keys``, or all keys, have."""
        rows = {
            _LEFT: list(self._stored(self._left, self._left_codec, "left", keys)),
            _RIGHT: list(self._stored(self._right, self._right_codec, "right", keys)),
        }
        known = self._ahead.stored(self.watermark, self.context.key_groups)
        return CapturedRows(self._key_codec, KeyedRows(rows, keys), operator=known)

    def _stored(
        self, side: IntervalSide, codec: Codec[Any], what: str, keys: set[Hashable] | None
    ) -> Iterator[KeyRow]:
        """The records that may still meet a partner: those that may not are as good as dropped."""
        gone = side.gone(self.watermark)
        for key in side.held if keys is None else keys & side.held.keys():
            times, values = side.held[key]
            start = bisect_right(times, gone)
            if start == len(times):
                continue
            met = [side.met(key)[start:]] if side.outer else []
            try:
                yield key, encoded(times[start:], values[start:], codec, *met)
            except CodecError as exc:
                raise self._cannot_store(key, what, exc) from exc

    def _hold(
        self, side: IntervalSide, key: Hashable, data: bytes, codec: Codec[Any], what: str
    ) -> None:
        try:
            times, values, more = decoded(data, codec)
        except CodecError as exc:
            raise self._cannot_read(key, what, exc) from exc
        if side.outer and not more:
            raise RestoreError(
                f"step {self.name!r} stored its {what} records when it was a join in which they do not come out alone, "
                f"so which of them found a partner is not known; keep its kind, or give the new join another name"
            )
        gone = side.gone(self.watermark)
        met = more[0] if side.outer else [False] * len(times)
        for at, value, paired in zip(times, values, met, strict=True):
            if at > gone:  # a key that has not changed for long may still have others in its row
                side.add(key, at, value, met=paired, gone=gone)
