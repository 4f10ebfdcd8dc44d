"""Interval join: pairs of records whose timestamps differ by no more than an interval.

Theory. Left record l and right record r of one key are a pair when ``l.ts + lower ≤ r.ts ≤ l.ts + upper``. The second
of the two to arrive finds the first, so each pair is emitted once, at once, with the larger of the two timestamps. Both
inputs are alike but for the sign: the partners of a left record of time t are in [t + lower, t + upper], those of a
right one in [t - upper, t - lower]. The code calls either interval [t + first, t + last].

A record at or before the combined watermark W is *late*, as for every operator. In Flink a record at W itself is on
time, but some of its partners have been dropped: it is neither joined with them nor late.

*Clean-up.* A watermark W promises that later records have timestamps after W. A record of time t can have no further
partner once t + last ≤ W, and is dropped: how long the records of an input are kept depends on the bound of the *other*
one. An exclusive bound is the inclusive one a millisecond further inside. Records on time are later than W, so they
find no record that should have been dropped. Results do not depend on when memory is freed.

*Outer joins.* A record of time t certainly has no partner at the first watermark W ≥ t + last. It is emitted then, with
its own timestamp t, which may be before W. If W were emitted unchanged, the record would be late downstream. The
preceding watermark V was < t + last. So if V - last is emitted instead of V, then t > V - last, and the record is on
time. Hence the output watermark is the input's minus the constant

    delay = max(upper, 0) if left records are kept, max(-lower, 0) if right ones are, the larger for both.

It is the smallest constant: at a watermark of t + last - 1 the record is still buffered. (If last is negative, the
record can be emitted before the watermark reaches its own time, which needs no delay.) Pairs are never late: their
timestamp is at least that of the record that completed them, which was on time. An inner join therefore needs no delay.
Flink's row-time joins delay their watermark in the same way (``getMaxOutputDelay``). At the end of time all records are
emitted, and that watermark is not delayed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, Final

from aflow.errors import OperatorError, RestoreError
from aflow.model.batch import Batch
from aflow.model.codecs import Codec
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize
from aflow.operators.changed_keys import too_many
from aflow.operators.joins.buffered_records import BufferedRecords
from aflow.operators.joins.columns import insert
from aflow.operators.joins.interval_on_disk import DiskRecords, DiskSide
from aflow.operators.joins.interval_side import IntervalSide, Unpaired, closed
from aflow.operators.joins.join import (
    LATE_LEFT,
    LATE_RIGHT,
    Join,
    JoinFunction,
    JoinOperator,
    KeyRecords,
)
from aflow.operators.pieces import drained_slices, in_order
from aflow.state.backend_choice import OnDisk, make_scratch
from aflow.state.disk.sliced_records import Touched
from aflow.state.gradual_capture import WaitingRows, are_many
from aflow.state.keyed_entries import Keyed, KeyedRows, RowColumns
from aflow.state.readable_state import ABSENT, scanned
from aflow.state.stored_entries import batched

#: Keyed state: the columns of each input, and with an outer join the records that have had a partner.
_LEFT: Final = "@left"
_RIGHT: Final = "@right"


class IntervalJoinOperator(JoinOperator):
    """Emit ``into(left, right)`` for records of one key with left + lower ≤ right ≤ left + upper in time (ms).

    With an outer ``kind`` also emit ``into(left, None)``, or ``into(None, right)``, once a record can have no partner;
    watermarks are then delayed, see above. Late records are emitted to ``LATE_LEFT`` and ``LATE_RIGHT``.

    Raises ``FlowDefinitionError`` for an empty interval.
    """

    def __init__(
        self,
        lower: int,
        upper: int,
        into: JoinFunction,
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
        self._kind = kind
        self._bounds = low, high
        self._left = IntervalSide(low, high, outer=kind.keeps_left, from_left=True)
        self._right = IntervalSide(-high, -low, outer=kind.keeps_right, from_left=False)
        #: The records in place of those of `_left` and `_right`, if they are on disk.
        self._on_disk: DiskRecords | None = None
        #: Difference of the input watermark and the output watermark (ms).
        self.delay: Final = max(
            high if kind.keeps_left else 0,
            -low if kind.keeps_right else 0,
            0,
        )

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        backend = context.backend
        if isinstance(backend, OnDisk):
            self._on_disk = DiskRecords(
                make_scratch(backend, context.name),
                backend.resident,
                self._key_codec,
                self._changed,
                (self._left_codec, self._right_codec),
                self._bounds,
                (self._kind.keeps_left, self._kind.keeps_right),
            )

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._on_disk is not None:
                self._on_disk.close()

    def process_left(self, batch: Batch[Any]) -> None:
        self._process(batch, "left")

    def process_right(self, batch: Batch[Any]) -> None:
        self._process(batch, "right")

    def _process(self, batch: Batch[Any], side: str) -> None:
        keys, times = self._columns(batch, side)
        if self._gradual:
            self._save(keys)
        if self._on_disk is not None:
            self._join_on_disk(batch, keys, times, *self._on_disk.sides(side))
        else:
            mine, other = (self._left, self._right) if side == "left" else (self._right, self._left)
            if self._kind is Join.INNER and not self._ahead and min(times) > self.watermark:
                self._pair(batch, keys, times, mine, other)
            else:
                self._join(batch, keys, times, mine, other)
        self._changed.add(keys)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs repeat watermarks
        self.watermark = timestamp
        self._ahead = self._ahead.after(timestamp)
        if self._on_disk is not None and self._on_disk.is_due(timestamp):
            self.pieces.run(self._expire_on_disk(self._on_disk, timestamp))
        elif self._left.is_due(timestamp) or self._right.is_due(timestamp):
            self.pieces.run(self._expire(timestamp))
        else:
            self._emit_watermark(timestamp)

    def _expire(self, watermark: Timestamp) -> Iterator[int]:
        """Drop expired records, emit those without a partner in time order, and the watermark, in pieces."""
        if watermark == MAX_TIMESTAMP:
            yield from self._gradual.gather_slices()
        unpaired: list[tuple[Unpaired, IntervalSide]] = []
        for side in (self._left, self._right):
            expired = yield from side.expire(watermark, self._on_expiry)
            for some in drained_slices(expired):
                unpaired += zip(some, repeat(side))
                yield 0
        if unpaired:
            yield from self._emit_unpaired((yield from in_order(unpaired, _time)))
        self._emit_watermark(watermark)

    def _expire_on_disk(self, records: DiskRecords, watermark: Timestamp) -> Iterator[int]:
        """Do as ``_expire`` with records on disk."""
        yield from self._emit_unpaired(records.unpaired(watermark))
        for _ in records.drop(watermark):
            yield 0
        self._emit_watermark(watermark)

    def _emit_watermark(self, timestamp: Timestamp) -> None:
        if timestamp != MAX_TIMESTAMP:
            timestamp -= self.delay
        if timestamp > MIN_TIMESTAMP:
            self.output.watermark(timestamp)

    def row_times(self) -> RowTimes:
        return {_LEFT: self._left.times_of, _RIGHT: self._right.times_of}

    def size(self) -> StateSize:
        if self._on_disk is not None:
            return StateSize(entries=self._on_disk.size())
        return StateSize(
            entries=self._left.size() + self._right.size(),
            event_timers=len(self._left.expiry) + len(self._right.expiry),
        )

    def peek(self, key: Hashable) -> object:
        on_disk, watermark = self._on_disk, self.watermark
        left, right = (self._left, self._right) if on_disk is None else on_disk.sides("left")
        found = BufferedRecords(left.peek(key, watermark), right.peek(key, watermark))
        return found if any(found) else ABSENT

    def record_keys(self) -> Iterator[Sequence[Hashable]]:
        if self._on_disk is not None:
            return self._on_disk.scan()
        # At once: a key may lose its records of one side when it has some of the other.
        return scanned([*self._left.held, *self._right.held])

    def _pair(
        self,
        batch: Batch[Any],
        keys: Sequence[Hashable],
        times: Sequence[Timestamp],
        mine: IntervalSide,
        other: IntervalSide,
    ) -> None:
        """Join records that are on time in an inner join."""
        # Hot path (benchmark `join`): as `_join`, without a call and without an object for each record.
        into, from_left = self._pair_function(), mine is self._left
        first, last, expired = mine.first, mine.last, mine.expired_until(self.watermark)
        held, partners, known = mine.held, other.held, self._known_keys
        values: list[Any] = []
        stamps: list[Timestamp] = []
        result, stamp = values.append, stamps.append
        key: Hashable = None
        at, value, partner = MIN_TIMESTAMP, None, None
        try:
            for key, at, value in zip(keys, times, batch.values, strict=True):
                if key in partners:
                    partner_times, partner_values = partners[key]
                    index = bisect_left(partner_times, at + first)
                    stop = bisect_right(partner_times, at + last, index)
                    while index < stop:
                        partner = partner_values[index]
                        result(into(value, partner) if from_left else into(partner, value))
                        partner_at = partner_times[index]
                        stamp(partner_at if partner_at > at else at)
                        index += 1
                if at <= expired:
                    continue
                if key not in held:
                    if key not in known:
                        self._check_keys(batch, keys)
                    mine.add(key, at, value, matched=False, expired=expired)
                    continue
                own_times, own = held[key]
                if own_times[0] <= expired:
                    index = bisect_right(own_times, expired)
                    del own_times[:index], own[:index]
                if not own_times or own_times[-1] <= at:
                    own_times.append(at)
                    own.append(value)
                else:
                    insert(own_times, own, at, value)
        except RAISED as exc:
            self._emit_pairs(values, stamps)  # those before the failed one
            self._check_keys(batch, keys)
            left, right = (value, partner) if from_left else (partner, value)
            raise self._failed(exc, key, at, left, right) from exc
        self._emit_pairs(values, stamps)

    def _join(
        self,
        batch: Batch[Any],
        keys: Sequence[Hashable],
        times: Sequence[Timestamp],
        mine: IntervalSide,
        other: IntervalSide,
    ) -> None:
        """Join records one by one, of any kind of join."""
        self._check_keys(batch, keys)
        own, ahead, expired = self.watermark, self._ahead, mine.expired_until(self.watermark)
        late: list[int] = []
        values: list[Any] = []
        stamps: list[Timestamp] = []
        try:
            for index, (key, at, value) in enumerate(zip(keys, times, batch.values, strict=True)):
                if at <= ahead.of(key, own):
                    late.append(index)
                    continue
                partner_times, partner_values = other.take_partners(
                    key, at + mine.first, at + mine.last
                )
                for partner_at, partner in zip(partner_times, partner_values, strict=True):
                    values.append(self._pair_of(mine, key, at, value, partner))
                    stamps.append(max(at, partner_at))
                if at > expired:
                    mine.add(key, at, value, matched=bool(partner_values), expired=expired)
                elif mine.outer and not partner_values:
                    values.append(self._pair_of(mine, key, at, value, None))
                    stamps.append(at)
        finally:
            self._emit_pairs(values, stamps)
        self.emit_side(LATE_LEFT if mine.from_left else LATE_RIGHT, batch, late)

    def _join_on_disk(
        self,
        batch: Batch[Any],
        keys: Sequence[Hashable],
        times: Sequence[Timestamp],
        mine: DiskSide,
        other: DiskSide,
    ) -> None:
        """Join records that are buffered on disk, of any kind of join."""
        # Hot path (benchmark `state`): once for each record.
        touched = self._touched(batch, keys, times, mine)
        into, from_left = self._pair_function(), mine.from_left
        own, ahead, expired = self.watermark, self._ahead, mine.expired_until(self.watermark)
        first, last, outer, partners = mine.first, mine.last, mine.outer, other.number
        late: list[int] = []
        values: list[Any] = []
        stamps: list[Timestamp] = []
        key: Hashable = None
        at, value, partner = MIN_TIMESTAMP, None, None
        records = zip(keys, times, batch.values, touched, strict=True)
        try:
            for index, (key, at, value, (row, rows)) in enumerate(records):
                if at <= (ahead.of(key, own) if ahead else own):
                    late.append(index)
                    continue
                matched = False
                for held in rows:
                    part = held.parts[partners]
                    if part is None:
                        continue
                    for partner_at, partner in other.partners(held, part, at + first, at + last):
                        values.append(into(value, partner) if from_left else into(partner, value))
                        stamps.append(partner_at if partner_at > at else at)
                        matched = True
                if at > expired:
                    mine.add(row, key, at, value, matched=matched)
                elif outer and not matched:
                    partner = None
                    values.append(into(value, None) if from_left else into(None, value))
                    stamps.append(at)
        except OperatorError:
            raise
        except RAISED as exc:
            left, right = (value, partner) if from_left else (partner, value)
            raise self._failed(exc, key, at, left, right) from exc
        finally:
            self._emit_pairs(values, stamps)  # with an error, those before it
        self.emit_side(LATE_LEFT if from_left else LATE_RIGHT, batch, late)

    def _touched(
        self,
        batch: Batch[Any],
        keys: Sequence[Hashable],
        times: Sequence[Timestamp],
        side: DiskSide,
    ) -> list[Touched]:
        """Return the rows of a batch. Raises ``OperatorError`` for a key that cannot be one."""
        try:
            return side.touch(keys, times)
        except TypeError:
            self._check_keys(batch, keys)
            raise

    def _emit_unpaired(
        self, unpaired: Iterator[tuple[Unpaired, IntervalSide | DiskSide]]
    ) -> Iterator[int]:
        """Emit records that can have no partner, in pieces; those before a failed one are emitted before the error."""
        while some := list(islice(unpaired, self.pieces.limit)):
            values: list[Any] = []
            try:
                for one, side in some:
                    values.append(self._pair_of(side, one.key, one.at, one.value, None))
            finally:
                self._emit_pairs(values, [one.at for one, _ in some[: len(values)]])
            yield len(some)

    def _pair_of(
        self,
        mine: IntervalSide | DiskSide,
        key: Hashable,
        at: Timestamp,
        value: object,
        partner: object,
    ) -> Any:
        """Return the result for a record of ``mine`` and its partner, which is None if there is none."""
        if mine.from_left:
            return self._join_pair(key, at, value, partner)
        return self._join_pair(key, at, partner, value)

    def _rows(self, keys: set[Hashable] | None) -> KeyedRows:
        if self._on_disk is not None:
            found, keys = self._on_disk.capture(keys)
            left, right = self._on_disk.sides("left")
            return KeyedRows(
                {
                    _LEFT: left.captured(found, self.watermark),
                    _RIGHT: right.captured(found, self.watermark),
                },
                keys,
            )
        count = len(self._left.held) + len(self._right.held)
        if are_many(count if keys is None or len(keys) * 2 > count else len(keys)):
            return self._rows_in_pieces(None if keys is None or len(keys) * 2 > count else keys)
        if keys is not None:
            held = self._left.held.keys(), self._right.held.keys()
            if too_many(keys, sum(len(keys & some) for some in held), count):
                keys = None
        rows = {
            name: self._encoded(self._unexpired(side, keys, self.watermark), codec, what)
            for name, side, codec, what in self._stored_sides()
        }
        return KeyedRows(rows, keys)

    def _stored_sides(self) -> Iterable[tuple[str, IntervalSide, Codec[Any], str]]:
        """Return the sides in memory, each with its name in snapshots, the codec of its records, and its name."""
        return (
            (_LEFT, self._left, self._left_codec, "left"),
            (_RIGHT, self._right, self._right_codec, "right"),
        )

    def _rows_in_pieces(self, keys: set[Hashable] | None) -> KeyedRows:
        watermark = self.watermark

        def part(name: str, side: IntervalSide, codec: Codec[Any], what: str) -> WaitingRows:
            def collect(some: list[Hashable]) -> Mapping[str, RowColumns]:
                return {name: self._encoded(self._unexpired(side, some, watermark), codec, what)}

            return WaitingRows(list(side.held if keys is None else keys), collect)

        parts = [part(*stored) for stored in self._stored_sides()]
        capture = self._gradual.begin(parts, self._changed.kinds, keys)
        return KeyedRows(dict(capture.rows), keys, gather=capture.gather)

    def _identifies_changes(self, rows: KeyedRows) -> bool:
        if self._on_disk is not None:  # it has observed all keys
            return rows.keys is None or self._changed.known_by_name(())
        return super()._identifies_changes(rows)

    def _unexpired(
        self, side: IntervalSide, keys: Collection[Hashable] | None, watermark: Timestamp
    ) -> Iterator[KeyRecords]:
        """Yield the records that may still have partners at ``watermark``."""
        expired = side.expired_until(watermark)
        for key in side.held if keys is None else filter(side.held.__contains__, keys):
            times, values = side.held[key]
            start = bisect_right(times, expired)
            if start < len(times):
                matched = [side.matched(key)[start:]] if side.outer else []
                yield key, times[start:], values[start:], *matched

    def _restore_rows(self, keyed: Keyed) -> Iterator[None]:
        if self._on_disk is not None:
            yield from self._restore_on_disk(self._on_disk, keyed)
            return
        for name, side, codec, what in self._stored_sides():
            expired = side.expired_until(self.watermark)
            for key, times, values, more in self._decoded(keyed, name, codec, what):
                matched = self._matched(times, more, what, outer=side.outer)
                for at, value, paired in zip(times, values, matched, strict=True):
                    if at > expired:  # the row of a key without changes may have expired records
                        side.add(key, at, value, matched=paired, expired=expired)
                yield

    def _restore_on_disk(self, records: DiskRecords, keyed: Keyed) -> Iterator[None]:
        left, right = records.sides("left")
        for name, side, codec in (
            (_LEFT, left, self._left_codec),
            (_RIGHT, right, self._right_codec),
        ):
            expired = side.expired_until(self.watermark)
            rows = (
                (key, at, value, paired)
                for key, times, values, more in self._decoded(keyed, name, codec, side.what)
                for at, value, paired in zip(
                    times,
                    values,
                    self._matched(times, more, side.what, outer=side.outer),
                    strict=True,
                )
                if at > expired
            )
            for some in batched(rows):
                touched = side.touch_own([one[0] for one in some], [one[1] for one in some])
                for (row, _), (key, at, value, paired) in zip(touched, some, strict=True):
                    side.add(row, key, at, value, matched=paired)
                yield
        records.on_restored()

    def _matched(
        self, times: list[Timestamp], more: list[Any], what: str, *, outer: bool
    ) -> list[bool]:
        """Return which of the stored records have had partners. Raises ``RestoreError`` if that is unknown."""
        if outer and not more:
            raise RestoreError(
                f"step {self.name!r} stored its {what} records as a join that does not emit them without a "
                f"partner, so the snapshot does not say which have had one; keep the kind of the join, or give "
                f"it a new name"
            )
        return more[0] if outer else [False] * len(times)


def _time(unpaired: tuple[Unpaired, IntervalSide]) -> Timestamp:
    return unpaired[0].at
