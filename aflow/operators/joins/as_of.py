"""As-of join: each left record with the version of its key that was valid at its time.

Theory. The right input is a history: its record r of a key is valid from r.ts until the next one. A left record l is
joined to the newest r of its key with r.ts ≤ l.ts, and with a tolerance only if l.ts - r.ts does not exceed it. pandas
calls this ``merge_asof`` with ``direction="backward"``. Event time decides and not the order of arrival, so l is
buffered until the watermark reaches l.ts; then no further r can be valid at l.ts. Left records are emitted in time
order, with their own timestamps, before that watermark: they are never late, so watermarks pass without delay.

A left record at or before the watermark is *late*. A right record at or before the watermark is used for later left
records unless it makes no difference to any of them (see ``versions``); if it makes none, it is emitted to the late
output. Results that were emitted before a late version are not corrected.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from aflow.errors import FlowDefinitionError
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize
from aflow.operators.changed_keys import too_many
from aflow.operators.joins.as_of_on_disk import DiskPendingRecords, DiskVersions
from aflow.operators.joins.columns import stored_times
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT, Join, JoinFunction, JoinOperator
from aflow.operators.joins.pending_records import PendingRecords
from aflow.operators.joins.versions import Versions
from aflow.state.backend_choice import OnDisk, make_scratch
from aflow.state.disk.scratch import Scratch
from aflow.state.gradual_capture import WaitingRows, are_many
from aflow.state.keyed_entries import (
    CapturedRows,
    Keyed,
    KeyedRows,
    RowColumns,
    merge_rows,
)
from aflow.state.readable_state import ABSENT, scanned
from aflow.state.stored_entries import batched

#: Keyed state: the buffered left records, and the versions that matter.
_PENDING: Final = "@waiting"
_VERSIONS: Final = "@versions"


class AsOfJoinOperator(JoinOperator):
    """Emit ``into(left, right)`` for each left record and the newest right one of its key up to its time.

    Without a right record that is at most ``tolerance`` ms older, a ``LEFT`` join emits ``into(left, None)`` and an
    ``INNER`` one nothing. Without a tolerance one version of each key is kept for ever.

    Raises ``FlowDefinitionError`` for another kind, and for a negative tolerance.
    """

    state_name = "versions"

    def __init__(
        self,
        into: JoinFunction,
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
                f"an as-of join emits results for left records, so its kind is INNER or LEFT, not {kind.name}; "
                f"to emit right records without a partner, join by interval"
            )
        if tolerance is not None and tolerance < 0:
            raise FlowDefinitionError(
                f"tolerance is the largest age of a version and not negative: {tolerance} ms"
            )
        self._keeps_left = kind.keeps_left
        self._tolerance = tolerance
        self._pending = PendingRecords()
        self._versions = Versions(tolerance)
        #: The records in place of `_pending` and `_versions`, if they are on disk.
        self._on_disk: tuple[DiskPendingRecords, DiskVersions] | None = None
        self._scratch: Scratch | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        backend, key_codec = context.backend, self._key_codec
        if isinstance(backend, OnDisk):
            self._scratch = make_scratch(backend, context.name)
            self._on_disk = (
                DiskPendingRecords(self._scratch, key_codec, self._left_codec),
                DiskVersions(
                    self._scratch,
                    backend.resident,
                    key_codec,
                    self._changed,
                    self._right_codec,
                    self._tolerance,
                ),
            )

    def close(self) -> None:
        try:
            super().close()
            self._pending.captures.complete()
        finally:
            if self._scratch is not None:
                self._scratch.clear()

    def peek(self, key: Hashable) -> object:
        """Return the versions of ``key`` that matter. Left records wait by time, so those of a key are not known."""
        versions: Versions | DiskVersions = self._versions
        if self._on_disk is not None:
            versions = self._on_disk[1]
        return versions.peek(key, self._watermark_of(key)) or ABSENT

    def record_keys(self) -> Iterator[Sequence[Hashable]]:
        if self._on_disk is not None:
            return self._on_disk[1].scan()
        return scanned(self._versions.keys())

    def process_left(self, batch: Batch[Any]) -> None:
        keys, times = self._columns(batch, "left")
        self._check_keys(batch, keys)
        pending: PendingRecords | DiskPendingRecords = self._pending
        if self._on_disk is not None:
            pending = self._on_disk[0]
            self._changed.observe(keys)
        if self._pending.captures:
            self._pending.captures.save(times)
        own, ahead, add = self.watermark, self._ahead, pending.add
        late: list[int] = []
        for index, (key, at, value) in enumerate(zip(keys, times, batch.values, strict=True)):
            if at > ahead.of(key, own):
                add(at, key, value)
            else:
                late.append(index)
        self._changed.add(keys)
        self.emit_side(LATE_LEFT, batch, late)

    def process_right(self, batch: Batch[Any]) -> None:
        keys, times = self._columns(batch, "right")
        self._check_keys(batch, keys)
        if self._on_disk is not None:
            records = list(zip(times, keys, batch.values, strict=True))
            useless = self._on_disk[1].put_all(records, self._watermark_of)
            self._changed.add(keys)
            self.emit_side(LATE_RIGHT, batch, useless)
            return
        if self._gradual:
            self._save(keys)
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
        self.emit_side(LATE_RIGHT, batch, late)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs repeat watermarks
        self.watermark = timestamp
        self._ahead = self._ahead.after(timestamp)
        if self._on_disk is None:
            self.pieces.run(self._join_until(timestamp))
        else:
            self.pieces.run(self._join_on_disk(*self._on_disk, timestamp))

    def _watermark_of(self, key: Hashable) -> Timestamp:
        return self._ahead.of(key, self.watermark) if self._ahead else self.watermark

    def row_times(self) -> RowTimes:
        tolerance = self._tolerance

        def of_versions(data: bytes) -> Sequence[Timestamp]:
            times = stored_times(data)
            if tolerance is not None:
                return (times[-1] + tolerance,)
            return times[-1:] if len(times) > 1 else ()  # the newest one is kept

        return {_PENDING: lambda data: stored_times(data)[:1], _VERSIONS: of_versions}

    def size(self) -> StateSize:
        if self._on_disk is not None:
            pending, versions = self._on_disk
            return StateSize(entries=len(pending) + versions.size())
        return StateSize(
            entries=len(self._pending) + self._versions.size(),
            event_timers=self._pending.timestamps() + len(self._versions.expiry),
        )

    def _join_until(self, watermark: Timestamp) -> Iterator[int]:
        """Emit the left records up to ``watermark``, each with the version valid at its time, and the watermark.

        In pieces.
        """
        # Hot path: once for each left record.
        into, version_at, keeps_left = self._pair_function(), self._versions.at, self._keeps_left
        yield from self._pending.captures.gather_slices()
        if watermark == MAX_TIMESTAMP:
            yield from self._gradual.gather_slices()
        values: list[Any] = []
        stamps: list[Timestamp] = []
        joined, limit = 0, self.pieces.limit  # of this piece
        for at, keys, lefts in self._pending.due(watermark):
            self._changed.add(keys)
            for key, left in zip(keys, lefts, strict=True):
                found, right = version_at(key, at)
                if found or keeps_left:
                    try:
                        values.append(into(left, right))
                    except RAISED as exc:
                        self._emit_pairs(values, stamps)  # those before the failed one
                        raise self._failed(exc, key, at, left, right) from exc
                    stamps.append(at)
                joined += 1
                if joined >= limit:
                    self._emit_pairs(values, stamps)
                    yield joined
                    values, stamps = [], []
                    joined, limit = 0, self.pieces.limit
        self._emit_pairs(values, stamps)
        yield from self._versions.advance(watermark, self._on_expiry)
        self.output.watermark(watermark)

    def _join_on_disk(
        self, pending: DiskPendingRecords, versions: DiskVersions, watermark: Timestamp
    ) -> Iterator[int]:
        """Do as ``_join_until`` with records on disk."""
        # Hot path: once for each left record.
        into, keeps_left = self._pair_function(), self._keeps_left
        for some in pending.due(watermark):
            self._changed.add([key for _, key, _ in some])
            found = zip(some, versions.at_all(some), strict=True)
            while part := list(islice(found, self.pieces.limit)):
                values: list[Any] = []
                stamps: list[Timestamp] = []
                for (at, key, left), (is_there, right) in part:
                    if is_there or keeps_left:
                        try:
                            values.append(into(left, right))
                        except RAISED as exc:
                            self._emit_pairs(values, stamps)  # those before the failed one
                            raise self._failed(exc, key, at, left, right) from exc
                        stamps.append(at)
                self._emit_pairs(values, stamps)
                yield len(part)
        for _ in versions.drop(watermark):
            yield 0
        self.output.watermark(watermark)

    def capture(self, *, changes: bool) -> CapturedRows:
        self._pending.captures.complete()
        return super().capture(changes=changes)

    def _identifies_changes(self, rows: KeyedRows) -> bool:
        if self._on_disk is not None:  # all keys have been observed
            return rows.keys is None or self._changed.known_by_name(())
        return super()._identifies_changes(rows)

    def _rows(self, keys: set[Hashable] | None) -> KeyedRows:
        if self._on_disk is not None:
            waiting, known = self._on_disk
            if known.outlived:
                keys = None
            return KeyedRows(
                {
                    _PENDING: waiting.captured(keys),
                    _VERSIONS: known.captured(keys, self.watermark),
                },
                keys,
            )
        times = self._pending.timestamps()
        count = len(self._versions) + (times if are_many(times) else len(self._pending))
        if are_many(count if keys is None or len(keys) * 2 > count else len(keys)):
            return self._rows_in_pieces(None if keys is None or len(keys) * 2 > count else keys)
        pending = self._pending.by_key(keys)
        versions = list(self._versions.by_key(keys, self.watermark))
        if keys is not None:
            records = sum(len(times) for times, _ in pending.values()) + len(versions)
            if too_many(keys, records, len(self._pending) + len(self._versions)):
                return self._rows(None)
        lefts = [(key, *columns) for key, columns in pending.items()]
        rights = [(key, *columns) for key, columns in versions]
        rows = {
            _PENDING: self._encoded(lefts, self._left_codec, "left"),
            _VERSIONS: self._encoded(rights, self._right_codec, "right"),
        }
        return KeyedRows(rows, keys)

    def _rows_in_pieces(self, keys: set[Hashable] | None) -> KeyedRows:
        """Capture the records of ``keys``, or of all keys; they are collected in pieces."""
        watermark, codec = self.watermark, self._right_codec
        # Changes are stored under the keys that are recorded as changed, and not under equal ones.
        name_of = None if keys is None else dict(zip(keys, keys, strict=True))

        def versions(some: list[Hashable]) -> Mapping[str, RowColumns]:
            found = self._versions.by_key(some, watermark)
            rights = [(key, *columns) for key, columns in found]
            return {_VERSIONS: self._encoded(rights, codec, "right")}

        def encode(records: list[tuple[Hashable, list[Timestamp], list[Any]]]) -> RowColumns:
            self._changed.observe([key for key, _, _ in records])
            return self._encoded(records, self._left_codec, "left")

        known = self._versions.keys() if keys is None else list(keys)
        rights = self._gradual.begin([WaitingRows(known, versions)], self._changed.kinds, keys)
        lefts = self._pending.captured(encode, name_of)
        return merge_rows(
            [
                KeyedRows({_PENDING: lefts}, keys, gather=lefts.gather),
                KeyedRows(dict(rights.rows), keys, gather=rights.gather),
            ]
        )

    def _restore_rows(self, keyed: Keyed) -> Iterator[None]:
        if self._on_disk is not None:
            yield from self._restore_on_disk(*self._on_disk, keyed)
            return
        self._versions.watermark = self.watermark
        for key, times, values, _ in self._decoded(keyed, _PENDING, self._left_codec, "left"):
            for at, value in zip(times, values, strict=True):
                self._pending.add(at, key, value)
            yield
        for key, times, values, _ in self._decoded(keyed, _VERSIONS, self._right_codec, "right"):
            for at, value in zip(times, values, strict=True):
                self._versions.put(key, at, value)
            yield

    def _restore_on_disk(
        self, pending: DiskPendingRecords, versions: DiskVersions, keyed: Keyed
    ) -> Iterator[None]:
        for key, times, values, _ in self._decoded(keyed, _PENDING, self._left_codec, "left"):
            for at, value in zip(times, values, strict=True):
                pending.add(at, key, value)
            yield
        rights = (
            (at, key, value)
            for key, times, values, _ in self._decoded(keyed, _VERSIONS, self._right_codec, "right")
            for at, value in zip(times, values, strict=True)
        )
        for some in batched(rights):
            versions.put_all(some, lambda _: self.watermark)
            yield
        versions.on_restored()
