"""Base of the fast window steps, which keep accumulators instead of records, and the loops that fold batches.

They have windows of event time and the default trigger. After a restore from subtasks with different watermarks,
``GroupWatermarks`` has the watermark of each key group that is ahead of the subtask: its windows have fired, and a
record that was late for it is still late.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeAlias, cast

from aflow.errors import OperatorError, RestoreError, UnstorableState, shown
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN, CodecError, decode_all
from aflow.model.keys import check_key
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, Operator, OperatorContext
from aflow.operators.changed_keys import ChangedKeys, save_keys, too_many
from aflow.operators.group_watermarks import no_group_ahead, restored_watermarks
from aflow.operators.keyed_state import key_group_codec
from aflow.operators.windows.failures import contents_failure
from aflow.operators.windows.open_windows import OpenContents, OpenWindows
from aflow.state.aggregates.exact import plus
from aflow.state.backend_choice import OnDisk, make_scratch
from aflow.state.disk.ranged_rows import Numbered, RangedRows, RowCodec
from aflow.state.gradual_capture import GradualCaptures, WaitingRows, are_many
from aflow.state.keyed_entries import (
    CapturedRows,
    CombinedRows,
    Keyed,
    KeyedRows,
    KeyRow,
    LazyRows,
    RowColumns,
    are_immutable,
)
from aflow.state.readable_state import ReadableState
from aflow.state.snapshot import OperatorSnapshot

#: Lookups of a gradual capture in one piece: less than a millisecond.
_LOOKUPS: Final = 2048

#: Operator state: the windows whose contents are stored.
_WINDOWS: Final = "@windows"

Accumulators = dict[Hashable, Any]
"""Accumulators by key."""

StoredRow: TypeAlias = tuple[Any, ...]
"""A key, an accumulator, and the numbers that identify its window or pane."""


class IncrementalWindows(Operator):
    """Base of the fast window steps.

    ``lateness`` in ms. ``of`` and ``key_type`` are the types of accumulators and keys, which snapshots need unless they
    are plain Python values.
    """

    def __init__(
        self,
        accumulation: Accumulation,
        *,
        windows: str,
        state_name: str,
        lateness: int,
        of: type[Any] | None,
        key_type: type[Hashable] | None,
    ) -> None:
        #: Description of the windows: a snapshot with another one cannot be restored.
        self._windows = windows
        #: The name of the accumulators in snapshots.
        self._state_name = state_name
        self._accumulation = accumulation
        self._lateness = lateness
        self._codec = accumulation.codec_for(of)
        self._key_type = key_type
        self._changed = ChangedKeys()
        #: The rows with ``OnDisk``; None: all are in memory.
        self._on_disk: RangedRows | None = None
        self._gradual: Final = GradualCaptures()

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._key_codec = key_group_codec(context, self._key_type)
        #: The watermarks of key groups that a restore found ahead of this subtask.
        self._ahead = no_group_ahead(context)

    def close(self) -> None:
        try:
            self._gradual.complete()
        finally:
            if self._on_disk is not None:
                self._on_disk.close()

    def _ranged_rows(self, recent: Numbered, codec: RowCodec) -> RangedRows | None:
        """Return the rows of a step with ``OnDisk``; None for one in memory."""
        choice = self.context.backend
        if not isinstance(choice, OnDisk):
            return None
        scratch = make_scratch(choice, self.name)
        kinds = self._changed.kinds
        rows = RangedRows(recent, codec, self._key_codec, scratch, choice.resident, kinds)
        rows.before_eviction = self._gradual.save
        return rows

    def _watermark_for(self, key: Hashable) -> Timestamp:
        """Return the watermark for ``key``: that of its former subtask until this one reaches it."""
        return self._ahead.of(key, self.watermark)

    def _advance(self, timestamp: Timestamp) -> None:
        """Set the watermark to ``timestamp``."""
        self.watermark = timestamp
        self._ahead = self._ahead.after(timestamp)

    def _results(
        self, contents: Iterable[tuple[TimeWindow, Hashable, Any, int]]
    ) -> Iterator[Windowed[Any, Any]]:
        """Yield the results of firings: of window, key, accumulator, and number of the firing.

        If the function of a result raises, the policy applies to the ``Windowed`` with the accumulator.
        """
        result = self._accumulation.result
        for window, key, held, firing in contents:
            if result is None:
                yield Windowed(key, window, held, firing)
                continue
            try:
                value = result(held)
            except RAISED as exc:
                failed = Windowed(key, window, self._accumulation.shown(held), firing)
                error = self._failed(exc, key, window)
                for replaced in self.settle_record(exc, error, failed, window.max_timestamp):
                    yield Windowed(key, window, replaced, firing)
            else:
                yield Windowed(key, window, value, firing)

    def _emit_firings(self, contents: Iterable[tuple[TimeWindow, Hashable, Any, int]]) -> None:
        """Emit the results of firings; also before the job fails, those before the failed one."""
        values: list[Windowed[Any, Any]] = []
        try:
            for value in self._results(contents):
                values.append(value)  # noqa: PERF402 - keeps results before an error
        finally:
            self.emit_all(values, [value.window.max_timestamp for value in values])

    def _emit_window(self, window: TimeWindow, pairs: Iterator[tuple[Hashable, Any]]) -> int:
        """Emit the first result of a window for the next keys and accumulators, and return their number.

        It is 0 if there are no more of them.
        """
        some = islice(pairs, self.pieces.limit)
        if self._accumulation.result is None:
            values = [Windowed(key, window, held) for key, held in some]
            self.emit_all(values, [window.max_timestamp] * len(values))
            return len(values)
        firings = [(window, key, held, 1) for key, held in some]
        self._emit_firings(firings)
        return len(firings)

    def _copies(
        self, pairs: Iterator[tuple[Hashable, Any]], window: TimeWindow
    ) -> Iterator[tuple[Hashable, Any]]:
        """Yield the pairs of key and accumulator of a window that is kept, with copies of accumulators."""
        for key, held in pairs:
            try:
                copied = self._accumulation.copy(held)
            except RAISED as exc:
                raise self._failed(exc, key, window) from exc
            yield key, copied

    def _failed(self, cause: BaseException, key: Hashable, window: TimeWindow) -> OperatorError:
        """Describe ``cause``, raised by a user function for the accumulator of ``key`` in ``window``."""
        return contents_failure(self.name, cause, key, window)

    # ------------------------------------------------------------------------------------- snapshots

    def capture(self, *, changes: bool) -> CapturedRows:
        """Return all rows or the changed ones. Raises ``CheckpointError`` for an accumulator that cannot be encoded."""
        self._gradual.complete()
        keys, count = self._changed.take(changes=changes), self._row_count()
        if are_many(count if keys is None or len(keys) * 2 > count else len(keys)):
            return self._captured_gradually(keys, count)
        rows = self._rows(keys)
        known = self._changed.known_by_name(self._keys_in(rows, keys))
        if keys is not None and (not known or too_many(keys, len(rows), self._row_count())):
            keys, rows = None, self._rows(None)
            self._changed.rest(max(len(rows), self._row_count()))
        encoded = self._collected(rows)[self._state_name]
        return self._captured(KeyedRows({self._state_name: encoded, **self._more_rows(keys)}, keys))

    def _captured(self, keyed: KeyedRows) -> CapturedRows:
        """Return ``keyed`` with the rows that are on disk, and the operator state."""
        name, keys = self._state_name, keyed.keys
        away = None
        if self._on_disk is not None:
            away = self._on_disk.stored(None if keys is None else set(keys), self._entries_of)
        if away is not None:
            named = {**keyed.rows, name: CombinedRows(keyed.rows[name], away)}
            keyed = KeyedRows(named, keys, gather=keyed.gather)
        return CapturedRows(self._key_codec, keyed, operator=self._operator_state())

    def _captured_gradually(self, keys: set[Hashable] | None, count: int) -> CapturedRows:
        """Capture the rows of ``keys``, or of all keys, in pieces; all ``count`` rows if that costs little more."""
        if keys is not None and len(keys) * 2 > count:
            keys = None
            self._changed.rest(count)
        parts = self._parts() if keys is None else (self._part_of(list(keys)),)
        capture = self._gradual.begin(parts, self._changed.kinds, keys)
        return self._captured(KeyedRows(dict(capture.rows), keys, gather=capture.gather))

    def _parts(self) -> Iterator[WaitingRows]:
        """Yield all rows that are in memory, as parts of a gradual capture."""
        if self._on_disk is None:
            yield from self._memory_parts()
        else:
            yield WaitingRows(list(self._on_disk.resident_keys()), self._collected_of)
        yield from self._more_parts()

    def _part_of(self, keys: list[Hashable]) -> WaitingRows:
        return WaitingRows(keys, self._changes_of, max(1, _LOOKUPS // self._dict_count()))

    def _collected_of(self, keys: list[Hashable]) -> Mapping[str, Iterable[KeyRow]]:
        """Return the rows of ``keys`` that are in memory, under these keys and not under equal ones."""
        wanted = set(keys)
        name_of = dict(zip(keys, keys, strict=True))
        rows = [(name_of[key], *parts) for key, *parts in self._rows(wanted)]
        return self._collected(rows)

    def _changes_of(self, keys: list[Hashable]) -> Mapping[str, Iterable[KeyRow]]:
        """Do as ``_collected_of``, with the rows of ``_more_rows``."""
        name_of = dict(zip(keys, keys, strict=True))
        more = self._more_rows(set(keys)).items()
        named = {name: [(name_of[key], data) for key, data in some] for name, some in more}
        return {**self._collected_of(keys), **named}

    def _collected(self, rows: list[StoredRow]) -> Mapping[str, Iterable[KeyRow]]:
        """Return ``rows`` for a snapshot by their name; those that may change are encoded now."""
        encoded: Iterable[KeyRow] = LazyRows(rows, self._encoded)
        if not are_immutable([row[1] for row in rows]):
            encoded = RowColumns.of(encoded)
        return {self._state_name: encoded}

    def _save(self, keys: Sequence[Hashable]) -> None:
        """Collect the rows of the keys of a batch, which may change now, for captures."""
        save_keys(self._gradual, keys)

    def _save_all(self) -> Iterator[int]:
        """Collect all rows for captures, in pieces: windows fire."""
        yield from self._gradual.gather_slices()

    def _keys_in(self, rows: list[StoredRow], keys: set[Hashable] | None) -> list[Hashable]:
        more = chain.from_iterable(self._more_rows(keys).values())
        return [*(row[0] for row in rows), *(key for key, _ in more)]

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Restore the rows, and continue at the smallest watermark of the former subtasks.

        Raises ``RestoreError`` for the contents of other windows.
        """
        known = {str(self._read(data)) for data in snapshot.operator.get(_WINDOWS, ())}
        if (known or snapshot.keyed) and known != {self._windows}:
            raise RestoreError(
                f"step {self.name!r} has {self._windows} windows, and the snapshot holds the contents of "
                f"{', '.join(sorted(known)) or 'another kind of'} windows; give the changed step a new name"
            )
        try:
            restored = restored_watermarks(snapshot, self.watermark, self.context)
        except CodecError as exc:
            raise self._unreadable(exc) from exc
        self.watermark, self._ahead = restored
        yield from self._restore_rows(snapshot.keyed)
        self._changed.begin()

    def readable_state(self) -> ReadableState:
        return OpenWindows(self, self._key_codec, self._accumulation.seen)

    def stored_state(self, snapshot: OperatorSnapshot, context: OperatorContext) -> ReadableState:
        self.open(context)
        self.restore(snapshot)
        return self.readable_state()

    @abstractmethod
    def open_windows(self, key: Hashable) -> Iterable[OpenContents]:
        """As ``WindowStep.open_windows``."""

    @abstractmethod
    def window_keys(self) -> Iterator[Sequence[Hashable]]:
        """As ``WindowStep.window_keys``."""

    @abstractmethod
    def _restore_rows(self, keyed: Keyed) -> Iterator[None]:
        """Restore the stored rows of the keys of this subtask, in pieces."""

    def _stored(self, keyed: Keyed, name: str) -> Iterator[tuple[list[Hashable], list[object]]]:
        """Yield the keys of this subtask and the plain values of the rows of ``name``, in pieces."""
        for keys, stored in self._key_codec.read_in_pieces(keyed, name):
            self._changed.observe(keys)
            try:
                yield keys, decode_all(PLAIN, stored)
            except CodecError as exc:
                raise self._unreadable(exc) from exc

    def _stored_rows(self, keyed: Keyed) -> Iterator[Iterator[tuple[Hashable, Any, list[int]]]]:
        """Yield the key, the accumulator and the numbers of each row of this subtask, in pieces."""
        for keys, stored in self._stored(keyed, self._state_name):
            held: list[Any] = []
            numbers: list[list[int]] = []
            for one, *more in cast("list[list[Any]]", stored):
                held.append(one)
                numbers.append(more)
            try:
                yield zip(keys, decode_all(self._codec, held), numbers, strict=True)
            except CodecError as exc:
                raise self._unreadable(exc) from exc

    @abstractmethod
    def _rows(self, keys: set[Hashable] | None) -> list[StoredRow]:
        """Return the rows of ``keys``, or of all keys."""

    @abstractmethod
    def _memory_parts(self) -> Iterable[WaitingRows]:
        """Return all rows of a step in memory, as parts of a gradual capture."""

    def _more_parts(self) -> Iterable[WaitingRows]:
        """Return all rows of ``_more_rows``, as parts of a gradual capture."""
        return ()

    def _dict_count(self) -> int:
        """Return the number of dicts in which the rows of a key are looked up, at least 1."""
        return 1

    @abstractmethod
    def _row_count(self) -> int:
        """Return an estimate of the number of rows, without a pass over them."""

    @abstractmethod
    def _entries_of(self, number: int, key: Hashable, data: bytes) -> Iterable[KeyRow]:
        """Return the entries of a row on disk for a snapshot, as ``_encoded`` makes them of a row in memory."""

    def _dropped(self, number: int) -> Iterator[int]:
        """Remove the rows of ``number`` that are not recent, in pieces, and record that their keys have changed."""

        def has_changed(keys: Sequence[Hashable]) -> bool:
            self._changed.add(keys)
            return self._changed.noted

        if self._on_disk is not None:
            for _ in self._on_disk.drop(number, has_changed):
                yield 0

    def _more_rows(self, keys: set[Hashable] | None) -> Mapping[str, Iterable[KeyRow]]:
        """Return further rows of ``keys``, or of all keys, by their name in snapshots."""
        return {}

    def _operator_state(self) -> Mapping[str, tuple[bytes, ...]]:
        """Return the operator state."""
        watermarks = self._ahead.stored(
            self.watermark, self.context.key_groups, outlived=self._row_count() > 0
        )
        return {**watermarks, _WINDOWS: (PLAIN.encode(self._windows),)}

    def _encoded(self, row: StoredRow) -> KeyRow:
        """Return key and bytes of a row. Raises ``CheckpointError``."""
        key, held, *numbers = row
        try:
            return key, PLAIN.encode([self._codec.encode(held), *numbers])
        except CodecError as exc:
            raise UnstorableState(
                f"step {self.name!r} cannot store the contents of key {shown(key)} in the window that begins at "
                f"{numbers[0]}: {exc}"
            ) from exc

    def _read(self, data: bytes) -> object:
        try:
            return PLAIN.decode(data)
        except CodecError as exc:
            raise self._unreadable(exc) from exc

    def _unreadable(self, cause: CodecError) -> RestoreError:
        return RestoreError(f"step {self.name!r} cannot read the contents of a window: {cause}")


def among(keys: set[Hashable] | None, contents: Mapping[Hashable, Any]) -> Iterable[Hashable]:
    """Return the keys that are in both; all keys of ``contents`` if ``keys`` is None."""
    return contents if keys is None else keys & contents.keys()


def fold_by_time(
    contents_at: Callable[[Timestamp], dict[Hashable, Any]],
    pane_at: Callable[[Timestamp], tuple[Timestamp, Timestamp]],
    batch: Batch[Any],
    keys: Sequence[Hashable],
    times: Sequence[Timestamp],
    accumulation: Accumulation,
    step: Operator,
    *,
    bound: Timestamp = MIN_TIMESTAMP,
) -> int:
    """Fold the records up to the first one before ``bound``, and return their number.

    ``pane_at(time)`` returns start and end (exclusive) of the pane of ``time``, and ``contents_at(start)`` its
    accumulators by key. No pane contains times before and after ``bound``. The policy of ``step`` applies to a record
    for which the accumulation fails. Raises ``OperatorError`` as ``Operator.settle`` does, and for a key that cannot be
    one.
    """
    # Hot path (benchmarks `keyed_window`, `sliding`, and `spark` for sums): nearly all records of a batch are in one to
    # three panes. A comparison of each time costs half as much as `min` and `max` of all times.
    add, first, number_of = accumulation.add, accumulation.first, accumulation.number_of
    low = high = MIN_TIMESTAMP
    contents: dict[Hashable, Any] = {}
    left = iter(batch.values)
    records = zip(keys, times, left, strict=False)
    while True:
        try:
            for key, time, value in records:
                if not low <= time < high:
                    if time < bound:
                        return step.index_of(batch, left)
                    low, high = pane_at(time)
                    contents = contents_at(low)
                try:
                    held = contents[key]
                except KeyError:
                    check_key(key)
                    contents[key] = first(value)
                else:
                    if number_of is None:
                        contents[key] = add(held, value)
                    elif type(number := number_of(value)) is int:
                        held[0] += number  # as `add` does, whose call would double the time
                    else:
                        plus(held, number)
            return len(batch)
        except RAISED as exc:
            step.settle(exc, batch, step.index_of(batch, left))


def fold_into_windows(
    panes: dict[Timestamp, dict[Hashable, Any]],
    windows: tuple[Callable[[Timestamp], Timestamp], int, int],
    batch: Batch[Any],
    keys: Sequence[Hashable],
    times: Sequence[Timestamp],
    accumulation: Accumulation,
    step: Operator,
) -> None:
    """Fold a batch, each record into all its windows, by their starts in ``panes``, which adds missing ones.

    ``windows`` are the function from a time to the start of its last window, the size and the slide. Raises as
    ``fold_by_time``.
    """
    add, first = accumulation.add, accumulation.first
    start_of, size, slide = windows
    left = iter(batch.values)
    records = zip(keys, times, left, strict=False)
    while True:
        try:
            for key, time, value in records:
                start = start_of(time)
                while start + size > time:
                    contents = panes[start]
                    if key in contents:
                        contents[key] = add(contents[key], value)
                    else:
                        check_key(key)
                        contents[key] = first(value)
                    start -= slide
            break
        except RAISED as exc:
            step.settle(exc, batch, step.index_of(batch, left))
