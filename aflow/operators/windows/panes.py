"""Tumbling and sliding event-time windows that keep one accumulator for each key and pane, with the default trigger.

Theory. The starts and ends of all windows cut time into panes: each window is a sequence of whole panes, and all
records of a pane are in the same windows. A pane of tumbling windows, or of windows with gaps between them, is a
window. Where windows overlap, panes are as long as the slide if the slide divides the size. Otherwise long and short
panes alternate ("paired windows": Krishnamurthy, Wu, Franklin: "On-the-fly sharing for streamed aggregation", SIGMOD
2006). A record is folded once, into its pane, however many windows it is in. When windows fire, ``TwoStacks`` merges
their panes. Accumulators that cannot be merged cannot be shared: then each overlapping window is a pane of its own, and
a record is folded into each of its windows.

A window fires when the watermark reaches its last timestamp, and is kept for the allowed lateness. A record that
arrives in that time is folded, and fires the window again for the record's key. A record is late if all its windows
have been cleaned up. A pane is kept as long as one of its windows. Nothing else is stored: which windows exist, and
which have fired, follows from the panes and the watermark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

from aflow.errors import OperatorError
from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN
from aflow.model.keys import check_key
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize
from aflow.operators.group_watermarks import GroupWatermarks
from aflow.operators.windows.disk_panes import (
    AccumulatorRows,
    PaneMerge,
    Wanted,
    panes_of_batch,
    windows_of_batch,
)
from aflow.operators.windows.firing_counts import FiringCounts
from aflow.operators.windows.incremental_windows import (
    IncrementalWindows,
    StoredRow,
    among,
    fold_by_time,
    fold_into_windows,
)
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.open_windows import OpenContents, joined_ranges, merged_panes
from aflow.operators.windows.row_times import PaneTimes
from aflow.operators.windows.staggers import Staggers, staggers_of, stored_staggers
from aflow.operators.windows.two_stacks import Panes, TwoStacks, sums_around
from aflow.state.gradual_capture import WaitingRows, waiting_rows
from aflow.state.keyed_entries import Keyed, KeyRow
from aflow.state.readable_state import ABSENT, in_time_order, scanned
from aflow.state.snapshot import OperatorSnapshot

Pairs: TypeAlias = Iterator[tuple[Hashable, Any]]
"""Keys and accumulators."""

_Rows: TypeAlias = list[tuple[Hashable, Any]]

#: Keyed state: each accumulator with the start of its pane.
_PANES: Final = "@panes"

#: Keyed state: the start of a window that has fired more than once, and how often.
_FIRINGS: Final = "@firings"


class PaneAggregateOperator(IncrementalWindows):
    """Fold each record into its pane, and emit a ``Windowed`` for each key and window at the end of the window.

    Overlapping windows share panes if ``shared``, and if accumulators can be merged.

    An emitted accumulator is not changed afterwards, with one exception: an accumulator that ``add`` changes, that is
    itself the result, and that has no ``merge`` by which it could be copied, changes with late records.
    """

    def __init__(
        self,
        assigner: TumblingWindows | SlidingWindows,
        accumulation: Accumulation,
        *,
        shared: bool = True,
        lateness: int = 0,
        of: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        size = assigner.size
        slide = size if isinstance(assigner, TumblingWindows) else assigner.slide
        overlapping = slide < size
        shared = overlapping and shared and accumulation.merge is not None
        super().__init__(
            accumulation,
            windows=f"{'unshared' if overlapping and not shared else 'panes of'} {assigner}",
            state_name=_PANES,
            lateness=lateness,
            of=of,
            key_type=key_type,
        )
        self._assigner = assigner
        self._size, self._slide = size, slide
        self._use_grid(assigner)
        #: Length of the first of the two panes of a slide; 0: the slide is one pane.
        self._border = size % slide
        self._gaps = size < slide
        #: The panes that a kept window contains; never empty.
        self._panes = Panes()
        #: Merges the panes of a window; None if each window is one pane.
        self._stacks: TwoStacks | PaneMerge | None = (
            TwoStacks(self._panes, accumulation) if shared else None
        )
        #: True if a record is in several panes: those of its windows.
        self._unshared = overlapping and not shared
        self._firings: Final = FiringCounts(_FIRINGS)
        #: None for windows that have the same bounds in all subtasks.
        self._staggers: Staggers | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._staggers = staggers_of(self._assigner, context)
        self._on_disk = self._ranged_rows(self._panes, AccumulatorRows(self._codec))
        if self._on_disk is not None and self._stacks is not None:
            self._stacks = PaneMerge(self._panes, self._on_disk, self._accumulation)

    def process(self, batch: Batch[Any]) -> None:
        keys, times = self.keys_of(batch), self.event_times_of(batch)
        if self._staggers is not None:
            self._use_grid(self._staggers.own())
        if self._gradual:
            self._save(keys)
        if self._on_disk is not None:
            self._on_disk.load(self._wanted(keys, times))
        if self._may_differ_by_key():
            self._add_each(batch, keys, times)
        elif self._unshared:
            self._add_to_windows(batch, keys, times)
        else:
            self._add_to_panes(batch, keys, times)
        self._changed.add(keys)
        if self._on_disk is not None:
            self._on_disk.evict()

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs repeat watermarks
        before, ahead = self.watermark, self._ahead
        self._advance(timestamp)
        if self._is_due(before):
            self.pieces.run(self._fire_and_drop(before, ahead))
        else:
            self.output.watermark(timestamp)

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        if self._staggers is not None:
            self._staggers.restore(snapshot)
        yield from super().restore_in_pieces(snapshot)

    def row_times(self) -> RowTimes:
        windows_of = (lambda start: (start,)) if self._stacks is None else self._windows_of
        times = PaneTimes(self._size, self._lateness, windows_of)
        return {_PANES: times.of_pane, _FIRINGS: times.of_firings}

    def size(self) -> StateSize:
        """Count the accumulators of panes and the aggregates of ``TwoStacks`` as entries, and panes as timers."""
        merged = 0 if self._stacks is None else len(self._stacks)
        return StateSize(self._row_count() + merged, event_timers=len(self._panes))

    def open_windows(self, key: Hashable) -> Iterator[OpenContents]:
        parts = list(self._parts_of(key))
        watermark = self._watermark_for(key)
        kept, fired = self._last_cleaned_up(watermark) + 1, self._last_fired(watermark)
        if self._stacks is not None:
            starts = joined_ranges(self._windows_of(at) for at, _ in parts)
            parts = list(merged_panes(parts, starts, self._size, self._accumulation))
        for start, held in parts:
            if start >= kept:
                firings = self._firings.get(start, key) if start <= fired else 0
                yield OpenContents(TimeWindow(start, start + self._size), held, firings)

    def _parts_of(self, key: Hashable) -> Iterator[tuple[Timestamp, Any]]:
        """Yield start and accumulator of the panes of ``key``, in time order."""
        for start in self._panes.order:
            if key in (contents := self._panes[start]):
                yield start, contents[key]
            elif self._on_disk is not None:
                held = self._on_disk.peek(start, key)
                if held is not ABSENT:
                    yield start, held

    def window_keys(self) -> Iterator[Sequence[Hashable]]:
        if self._on_disk is not None:
            yield from self._on_disk.scan()
            return
        for start in in_time_order(lambda: self._panes.order, self._panes.__contains__):
            yield from scanned(list(self._panes[start]))

    def _operator_state(self) -> Mapping[str, tuple[bytes, ...]]:
        return {**super()._operator_state(), **stored_staggers(self._staggers)}

    def _restore_rows(self, keyed: Keyed) -> Iterator[None]:
        panes = self._panes
        for some in self._stored_rows(keyed):
            for key, held, (start,) in some:
                panes[start][key] = held
            if self._on_disk is not None:
                self._on_disk.evict()
            yield
        for keys, stored in self._stored(keyed, _FIRINGS):
            for key, (start, count) in zip(
                keys, cast("list[tuple[int, int]]", stored), strict=True
            ):
                self._firings.record(start, key, count)
            yield

    def _rows(self, keys: set[Hashable] | None) -> list[StoredRow]:
        if self._on_disk is not None:
            return [(key, held, start) for start, key, held in self._on_disk.resident(keys)]
        return [
            (key, contents[key], start)
            for start, contents in self._panes.items()
            for key in among(keys, contents)
        ]

    def _memory_parts(self) -> Iterator[WaitingRows]:
        for start, contents in self._panes.items():
            yield waiting_rows(contents, partial(self._pane_collected, start))

    def _pane_collected(self, start: Timestamp, rows: _Rows) -> Mapping[str, Iterable[KeyRow]]:
        return self._collected([(key, held, start) for key, held in rows])

    def _dict_count(self) -> int:
        return max(1, len(self._panes))

    def _row_count(self) -> int:
        return sum(map(len, self._panes.values())) if self._on_disk is None else len(self._on_disk)

    def _entries_of(self, number: int, key: Hashable, data: bytes) -> tuple[KeyRow]:
        return ((key, PLAIN.encode([data, number])),)

    def _more_rows(self, keys: set[Hashable] | None) -> Mapping[str, list[KeyRow]]:
        return self._firings.rows(keys)

    def _more_parts(self) -> Iterator[WaitingRows]:
        return self._firings.parts()

    # ------------------------------------------------------------------------------------ arithmetic

    def _use_grid(self, assigner: TumblingWindows | SlidingWindows) -> None:
        """Use the start times of ``assigner``; subtasks and keys may have different staggers."""
        self._start_of, self._offset = assigner.start_of, assigner.offset

    def _first(self, timestamp: Timestamp) -> Timestamp:
        """Return the start of the first window that ends after ``timestamp``."""
        return self._start_of(timestamp - self._size) + self._slide

    def _last_fired(self, watermark: Timestamp) -> Timestamp:
        """Return the largest possible start of a window that has fired at ``watermark``.

        At the end of time it is the largest timestamp: the very last window may end beyond it.
        """
        return watermark if watermark == MAX_TIMESTAMP else watermark - self._size + 1

    def _last_cleaned_up(self, watermark: Timestamp) -> Timestamp:
        """Return the largest possible start of a window whose allowed lateness has passed too."""
        at_end = watermark == MAX_TIMESTAMP
        return watermark if at_end else self._last_fired(watermark - self._lateness)

    def _pane_at(self, time: Timestamp) -> tuple[Timestamp, Timestamp]:
        """Return start and end of the pane that contains ``time``. Not for unshared windows."""
        start = time - (time - self._offset) % self._slide
        border = self._border
        if not border:
            return start, start + self._slide
        if time < start + border:
            return start, start + border
        return start + border, start + self._slide

    # --------------------------------------------------------------------------------------- records

    def _may_differ_by_key(self) -> bool:
        """Return True if two records of one time may be in different windows, or some times are in no window."""
        mixed = self._staggers is not None and self._staggers.mixed
        return self._gaps or mixed or bool(self._ahead)

    def _unfired(self) -> Timestamp:
        """Return the time from which on no window has fired. It is the start of a pane."""
        return self._first_after(self._last_fired(self.watermark) - self._slide) + self._size

    def _wanted(self, keys: Sequence[Hashable], times: Sequence[Timestamp]) -> Wanted:
        """Return the keys of a batch by the panes into which they are folded."""
        staggers = self._staggers
        if staggers is not None and staggers.mixed:
            return windows_of_batch(
                lambda key, time: (staggers.of(key).start_of(time),), keys, times
            )
        if self._unshared:
            return windows_of_batch(lambda key, time: self._windows_of(time), keys, times)
        return panes_of_batch(self._pane_at, keys, times)

    def _windows_of(self, time: Timestamp) -> range:
        """Return the starts of the windows that contain ``time``."""
        return range(self._first(time), self._start_of(time) + 1, self._slide)

    def _add_to_panes(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold each record into its pane; those from the first one on whose window has fired record by record."""
        panes, accumulation, bound = self._panes.__getitem__, self._accumulation, self._unfired()
        done = fold_by_time(
            panes, self._pane_at, batch, keys, times, accumulation, self, bound=bound
        )
        if done < len(batch):
            self._add_each(batch.slice(done, len(batch)), keys[done:], times[done:])

    def _add_to_windows(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold each record into all its windows; record by record if the window of one has fired."""
        if min(times) < self._unfired():
            self._add_each(batch, keys, times)
        else:
            spans = self._start_of, self._size, self._slide
            fold_into_windows(self._panes, spans, batch, keys, times, self._accumulation, self)

    def _add_each(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold record by record: for late records, windows with gaps, and keys with different windows."""
        late: list[int] = []
        for index, (key, time) in enumerate(zip(keys, times, strict=True)):
            if self._staggers is not None:
                self._use_grid(self._staggers.of(key))
            watermark = self._watermark_for(key)
            first = max(self._first(time), self._first_after(self._last_cleaned_up(watermark)))
            windows = range(first, self._start_of(time) + 1, self._slide)
            if windows:
                self._add(batch, index, key, windows, self._last_fired(watermark))
            elif time + self._lateness <= watermark:
                late.append(index)
        self.emit_side(LATE, batch, late)

    def _first_after(self, start: Timestamp) -> Timestamp:
        """Return the start of the first window that starts after ``start``."""
        return self._start_of(start) + self._slide

    def _add(
        self, batch: Batch[Any], index: int, key: Hashable, windows: range, fired: Timestamp
    ) -> None:
        """Fold a record, and fire again those of its ``windows`` that start at or before ``fired``."""
        if self._stacks is None:
            for start in windows:
                known = self._fold(batch, index, key, start)
                if known is None:
                    return
                if start <= fired:
                    self._fire_again(key, start, range(start, start + 1), known)
            return
        times = cast("Sequence[Timestamp]", batch.timestamps)
        pane = self._pane_at(times[index])[0]
        known = self._fold(batch, index, key, pane)
        if known is None:
            return
        self._stacks.on_record(pane, key)
        again = range(windows.start, min(windows[-1], fired) + 1, self._slide)
        if again:
            self._fire_again(key, pane, again, known)

    def _fold(self, batch: Batch[Any], index: int, key: Hashable, start: Timestamp) -> bool | None:
        """Fold a record into the pane that begins at ``start``; return True if the pane had the key before.

        None if the accumulation failed, and the policy dropped the record.
        """
        contents, value = self._panes[start], batch.values[index]
        try:
            known = key in contents
            if known:
                contents[key] = self._accumulation.add(contents[key], value)
            else:
                check_key(key)
                contents[key] = self._accumulation.first(value)
        except RAISED as exc:
            self.settle(exc, batch, index)
            return None
        return known

    # --------------------------------------------------------------------------------------- firings

    def _is_due(self, before: Timestamp) -> bool:
        """Return False if no window fires and no pane is dropped between the watermark ``before`` and this one."""
        order = self._panes.order
        if not order:
            return False
        last = self._last_fired(self.watermark)
        if self._stacks is None:
            return order[0] <= last
        if self._first_after(self._last_fired(before)) <= last:
            return True
        return order[0] < self._first_after(self._last_cleaned_up(self.watermark))

    def _fire_and_drop(self, before: Timestamp, ahead: GroupWatermarks) -> Iterator[int]:
        """Fire the windows after the watermark ``before``, drop what is over, and emit the watermark, in pieces.

        A key group that was ``ahead`` has already fired windows up to its own watermark.
        """
        yield from self._save_all()
        for window in self._windows_after(before):
            pairs = yield from self._contents(window)
            if ahead:
                pairs = ahead.behind(pairs, before, window.max_timestamp)
            while results := self._emit_window(window, pairs):
                yield results
        cleaned_up = self._last_cleaned_up(self.watermark)
        yield from self._drop_panes(cleaned_up)
        yield from self._firings.drop_until(cleaned_up, self._changed)
        self.output.watermark(self.watermark)

    def _windows_after(self, before: Timestamp) -> Iterator[TimeWindow]:
        """Yield the windows that end between the watermark ``before`` and this one and contain a pane."""
        first, last = self._last_fired(before) + 1, self._last_fired(self.watermark)
        if self._stacks is None:
            for start in self._panes.between(first, last + 1):
                yield TimeWindow(start, start + self._size)
            return
        order = self._panes.order
        start = self._first_after(first - 1)
        while start <= last:
            index = bisect_left(order, start)
            if index == len(order):
                return
            if order[index] >= start + self._size:
                start = self._first(order[index])  # the windows between are empty
                continue
            yield TimeWindow(start, start + self._size)
            start += self._slide

    def _contents(self, window: TimeWindow) -> Generator[int, None, Pairs]:
        """Return the keys and accumulators of a window, for the caller to emit, after the pieces that prepare them."""
        if self._stacks is not None:
            try:
                yield from self._stacks.slide_to(window.start, window.end)
            except RAISED as exc:
                raise self._failed(exc, self._stacks.key, window) from exc
            return self._sums(self._stacks, window)
        held = self._panes[window.start].items()
        pairs = iter(held) if self._on_disk is None else self._on_disk.items(window.start)
        if window.start <= self._last_cleaned_up(self.watermark):
            return pairs
        return self._copies(pairs, window)

    def _sums(self, stacks: TwoStacks | PaneMerge, window: TimeWindow) -> Pairs:
        try:
            yield from stacks.sums()
        except RAISED as exc:
            raise self._failed(exc, stacks.key, window) from exc

    def _fire_again(self, key: Hashable, pane: Timestamp, fired: range, known: bool) -> None:
        """Fire kept windows again for a key with a new record in ``pane``, which all of them contain.

        ``known`` is True if the pane had the key before.
        """
        try:
            sums = self._sums_around(key, pane, fired, known)
        except RAISED as exc:
            raise OperatorError.of(self.name, exc, key=key) from exc
        for start, held, has_others in sums:
            firing = self._firings.get(start, key) + 1 if has_others else 1
            if has_others:
                self._firings.record(start, key, firing)
            window = TimeWindow(start, start + self._size)
            self._emit_firings([(window, key, held, firing)])

    def _sums_around(
        self, key: Hashable, pane: Timestamp, windows: range, known: bool
    ) -> list[tuple[Timestamp, Any, bool]]:
        """Return start and accumulator of ``key`` for each of ``windows``, and True if it has several records."""
        panes, accumulation = self._panes, self._accumulation
        if self._stacks is None:
            return [(pane, accumulation.copy(panes[pane][key]), known)]
        if self._on_disk is not None:
            starts = panes.between(windows[0], windows[-1] + self._size)
            self._on_disk.load(dict.fromkeys(starts, (key,)))
        return sums_around(panes, accumulation, (key, pane), windows, self._size, known=known)

    def _drop_panes(self, last: Timestamp) -> Iterator[int]:
        """Drop the panes whose windows all start at or before ``last``, in pieces."""
        bound = last + 1
        if self._stacks is not None:
            bound = self._first_after(last)
            try:
                yield from self._stacks.release_before(bound)
            except RAISED as exc:
                raise OperatorError.of(self.name, exc, key=self._stacks.key) from exc
        for start, contents in self._panes.drop_before(bound):
            yield from self._changed.discarded(contents)
            if self._on_disk is not None:
                yield from self._dropped(start)
