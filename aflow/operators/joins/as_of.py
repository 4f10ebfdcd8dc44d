"""Each record with what held at its time: a join with a stream of versions.

Theory. The right input is a history: its record r of a key holds from r.ts until the next one. A left record l meets
the newest r of its key with r.ts ≤ l.ts, and with a tolerance only if l.ts - r.ts is not above it: what pandas calls
``merge_asof`` with ``direction="backward"``. Event time decides and not the order of arrival, so l waits until the
watermark has reached l.ts; then no r that could hold at l.ts is still to come. Left records come out in the order of
time, with their own timestamps, before that watermark is sent on: never late, so watermarks pass without delay.

*Late* is a left record at or behind the watermark: its time is over. For right records see ``versions.py``: one that
comes late is heeded for left records still to come unless it makes no difference to any of them; those that make none
go to the late output. What came out before a late version is not corrected.

Records that wait for the watermark to reach their timestamp: columns for each moment, and a heap of the moments.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Final

from aflow.errors import FlowDefinitionError
from aflow.model.batch import BATCH_RECORDS, Batch
from aflow.model.codecs import Codec, CodecError
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, StateSize
from aflow.operators.changed_keys import too_many
from aflow.operators.group_watermarks import restored_watermarks
from aflow.operators.joins.columns import Columns, decoded, encoded
from aflow.operators.joins.join import Into, Join, JoinOperator
from aflow.operators.joins.late_outputs import LATE_LEFT, LATE_RIGHT
from aflow.operators.joins.versions import Versions
from aflow.state.keyed_entries import CapturedRows, KeyedRows
from aflow.state.snapshot import OperatorSnapshot

#: Keyed state: the left records that wait, and the versions that matter.
_WAITING: Final = "@waiting"
_VERSIONS: Final = "@versions"


class AsOfJoinOperator(JoinOperator):
    """Emits ``into(left, right)`` for each left record and the newest right one of its key up to its time.

    Where there is none that is at most ``tolerance`` ms older, a ``LEFT`` join emits ``into(left, None)`` and an
    ``INNER`` one nothing. Without a tolerance one version is kept for each key that ever came.

    Raises ``FlowDefinitionError`` for another kind, and for a negative tolerance.
    """

    def __init__(
        self,
        into: Into,
        *,
        kind: Join = Join.INNER,
        tolerance: int | None = None,
        left_type: type[Any] | None = None,
        right_type: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        super().__init__(into, left_type=left_type, right_type=right_type, key_type=key_type)
        if kind.keeps_right:
            raise FlowDefinitionError(
                f"an as-of join is made for each left record, so its kind is INNER or LEFT, not {kind.name}; "
                f"to see right records alone, join by interval"
            )
        if tolerance is not None and tolerance < 0:
            raise FlowDefinitionError(
                f"tolerance is how old a version may be and not negative: {tolerance} ms"
            )
        self._keeps_left = kind.keeps_left
        self._waiting = Waiting()
        self._versions = Versions(tolerance)

    def process_left(self, batch: Batch[Any]) -> None:
        keys, times = self._columns(batch, "left")
        self._check_keys(batch, keys)
        own, ahead, add = self.watermark, self._ahead, self._waiting.add
        late: list[int] = []
        for index, (key, at, value) in enumerate(zip(keys, times, batch.values, strict=True)):
            if at > ahead.of(key, own):
                add(at, key, value)
            else:
                late.append(index)
        self._changed.add(keys)
        self._side(LATE_LEFT, batch, late)

    def process_right(self, batch: Batch[Any]) -> None:
        keys, times = self._columns(batch, "right")
        self._check_keys(batch, keys)
        versions, own, ahead = self._versions, self.watermark, self._ahead
        put = versions.put
        late: list[int] = []
        for index, (key, at, value) in enumerate(zip(keys, times, batch.values, strict=True)):
            if ahead:
                versions.watermark = ahead.of(key, own)
            if not put(key, at, value):
                late.append(index)
        versions.watermark = own
        self._changed.add(keys)
        self._side(LATE_RIGHT, batch, late)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs catch up with what was known
        self.watermark = timestamp
        self._ahead = self._ahead.after(timestamp)
        self._emit_due(timestamp)
        self._versions.advance(timestamp, self._changed)
        self.output.watermark(timestamp)

    def size(self) -> StateSize:
        return StateSize(
            entries=len(self._waiting) + self._versions.size(),
            event_timers=self._waiting.moments() + len(self._versions.expiry),
        )

    def capture(self, *, changes: bool) -> CapturedRows:
        """Raises ``CheckpointError`` for a record that cannot be encoded."""
        captured = self._captured(self._changed.take(changes=changes))
        return captured if self._changed.trusted(captured.keyed) else self._captured(None)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self.watermark, self._ahead = restored_watermarks(snapshot, self.watermark, self.context)
        self._versions.watermark = self.watermark
        for key, data in self._key_codec.read(snapshot.keyed, _WAITING):
            for at, value in self._read(key, data, self._left_codec, "left"):
                self._waiting.add(at, key, value)
        for key, data in self._key_codec.read(snapshot.keyed, _VERSIONS):
            for at, value in self._read(key, data, self._right_codec, "right"):
                self._versions.put(key, at, value)
        self._changed.begin([*self._waiting.by_key(), *(key for key, _ in self._versions.by_key())])

    def _emit_due(self, watermark: Timestamp) -> None:
        """Send on the left records up to ``watermark``, each with what held at its time."""
        # Hot path: once for each left record.
        into, version_at, keeps_left = self._into, self._versions.at, self._keeps_left
        values: list[Any] = []
        stamps: list[Timestamp] = []
        for at, keys, lefts in self._waiting.due(watermark):
            self._changed.add(keys)
            for key, left in zip(keys, lefts, strict=True):
                found, right = version_at(key, at)
                if found or keeps_left:
                    try:
                        values.append(into(left, right))
                    except RAISED as exc:
                        raise self._failed(exc, key, at, left, right) from exc
                    stamps.append(at)
            if len(values) >= BATCH_RECORDS:
                self._emit(values, stamps)
                values, stamps = [], []
        self._emit(values, stamps)

    def _captured(self, keys: set[Hashable] | None) -> CapturedRows:
        """What ``keys``, or all keys, have; all if changes are no less."""
        waiting, versions = self._waiting.by_key(keys), list(self._versions.by_key(keys))
        if keys is not None:
            records = sum(len(times) for times, _ in waiting.values()) + len(versions)
            if too_many(keys, records, len(self._waiting) + len(self._versions)):
                return self._captured(None)
        rows = {
            _WAITING: list(self._stored(waiting.items(), self._left_codec, "left")),
            _VERSIONS: list(self._stored(versions, self._right_codec, "right")),
        }
        known = self._ahead.stored(self.watermark, self.context.key_groups)
        return CapturedRows(self._key_codec, KeyedRows(rows, keys), operator=known)

    def _stored(
        self, held: Iterable[tuple[Hashable, Columns]], codec: Codec[Any], side: str
    ) -> Iterator[tuple[Hashable, bytes]]:
        for key, columns in held:
            try:
                yield key, encoded(*columns, codec)
            except CodecError as exc:
                raise self._cannot_store(key, side, exc) from exc

    def _read(
        self, key: Hashable, data: bytes, codec: Codec[Any], side: str
    ) -> Iterator[tuple[Timestamp, Any]]:
        try:
            times, values, _ = decoded(data, codec)
        except CodecError as exc:
            raise self._cannot_read(key, side, exc) from exc
        return zip(times, values, strict=True)


class Waiting:
    """Keys and values by timestamp (epoch ms); those of one timestamp in the order in which they came."""

    __slots__ = ("_heap", "_moments")

    def __init__(self) -> None:
        #: Keys and values of the records of a moment; never empty.
        self._moments: dict[Timestamp, tuple[list[Hashable], list[Any]]] = {}
        #: The keys of `_moments`.
        self._heap: list[Timestamp] = []

    def add(self, at: Timestamp, key: Hashable, value: object) -> None:
        """Let a record wait."""
        # Hot path: once for each left record of an as-of join.
        try:
            keys, values = self._moments[at]
        except KeyError:
            self._moments[at] = ([key], [value])
            heappush(self._heap, at)
        else:
            keys.append(key)
            values.append(value)

    def due(self, watermark: Timestamp) -> Iterator[tuple[Timestamp, list[Hashable], list[Any]]]:
        """Take the records up to ``watermark``, moment by moment."""
        heap = self._heap
        while heap and heap[0] <= watermark:
            at = heappop(heap)
            yield at, *self._moments.pop(at)

    def by_key(self, among: set[Hashable] | None = None) -> dict[Hashable, Columns]:
        """The records of some keys, or of all, for a snapshot.

        Passes over all that waits, which is what came since the last watermark or little more.
        """
        found: dict[Hashable, Columns] = {}
        for at in sorted(self._moments):
            keys, some = self._moments[at]
            if among is not None and among.isdisjoint(keys):
                continue
            for key, value in zip(keys, some, strict=True):
                if among is not None and key not in among:
                    continue
                times, values = found.setdefault(key, ([], []))
                times.append(at)
                values.append(value)
        return found

    def moments(self) -> int:
        """How many moments are waited for."""
        return len(self._heap)

    def __len__(self) -> int:
        """How many records wait."""
        return sum(len(values) for _, values in self._moments.values())
