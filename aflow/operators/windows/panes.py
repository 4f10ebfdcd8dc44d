"""Sliding event-time windows that share panes: the default trigger, accumulations that can be merged.

Theory. The starts and ends of all windows cut time into panes: each window is a row of whole panes, and all records of
a pane are in the same windows. Where the slide divides the size a pane is as long as the slide; where it does not,
panes are long and short in turn ("paired windows": Krishnamurthy, Wu, Franklin: "On-the-fly sharing for streamed
aggregation", SIGMOD 2006); where windows have gaps between them, a pane is a window. A record is folded once, into
its pane, however many windows it is in. When windows fire, ``TwoStacks`` merges their panes.

Otherwise the rules of ``aligned`` hold: a window fires when the watermark reaches its last timestamp, is kept for the
allowed lateness, and fires again for the key of each record that comes in that time. A record all of whose windows are
gone is late. A pane is kept as long as any of its windows, and nothing else is: which windows are there, and whether
they have fired, follows from the panes and the watermark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, cast

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.machines.windows.assigners import SlidingWindows
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN
from aflow.model.keys import check_key
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, StateSize
from aflow.operators.group_watermarks import GroupWatermarks
from aflow.operators.windows.folding import fold_by_time
from aflow.operators.windows.incremental import IncrementalWindows, Row, among
from aflow.operators.windows.two_stacks import Panes, TwoStacks
from aflow.state.filing import Keyed, KeyRow

#: Keyed state: each accumulator with the start of its pane.
_PANES: Final = "@panes"

#: Keyed state: the start of a window that has fired more than once, and how often.
_FIRINGS: Final = "@firings"


class PaneAggregateOperator(IncrementalWindows):
    """Folds each record into one pane, and emits a ``Windowed`` for each key and window when the watermark passes.

    ``lateness`` in ms. ``of`` and ``key_type`` are the types of accumulators and keys, which snapshots need unless
    they are plain Python values. Raises ``FlowDefinitionError`` for an accumulation without ``merge``.
    """

    def __init__(
        self,
        assigner: SlidingWindows,
        accumulation: Accumulation,
        *,
        lateness: int = 0,
        of: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        if accumulation.merge is None:
            raise FlowDefinitionError(
                "windows can share panes only if accumulators can be merged; give the fold a merge="
            )
        super().__init__(
            accumulation,
            windows=f"panes of {assigner}",
            filed_as=_PANES,
            lateness=lateness,
            of=of,
            key_type=key_type,
        )
        self._merge = accumulation.merge
        self._start_of = assigner.start_of
        self._size, self._slide, self._offset = assigner.size, assigner.slide, assigner.offset
        #: How far behind a start of a window others end: there lies the border of the two panes of a slide.
        self._border = self._size % self._slide
        self._gaps = self._size < self._slide
        #: The panes some of whose windows are not gone; none is empty.
        self._panes = Panes()
        self._stacks = TwoStacks(self._panes, accumulation)
        #: How often windows that are kept have fired, for the keys for which it was more than once; their starts.
        self._firings: dict[Timestamp, dict[Hashable, int]] = {}
        self._to_clean: list[Timestamp] = []

    def process(self, batch: Batch[Any]) -> None:
        keys, times = self._columns(batch)
        if self._gaps or self._ahead or self._first(min(times)) <= self._newest(self.watermark):
            self._add_each(batch, keys, times)
        else:
            fold_by_time(
                self._panes.__getitem__,
                self._pane_at,
                batch,
                keys,
                times,
                self._accumulation,
                self,
            )
        self._changed.add(keys)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs catch up with what was known
        before, ahead = self.watermark, self._ahead
        self._advance(timestamp)
        self._fire_after(before, ahead)
        gone = self._newest_gone(timestamp)
        self._stacks_leave(gone + self._slide)
        for contents in self._panes.drop_before(gone + self._slide):
            self._changed.add(contents)
        while self._to_clean and self._to_clean[0] <= gone:
            self._changed.add(self._firings.pop(heappop(self._to_clean)))
        self.output.watermark(timestamp)

    def _restore_rows(self, keyed: Keyed) -> None:
        for key, data in self._filing.read(keyed, _PANES):
            held, (start,) = self._decoded(data)
            self._panes[start][key] = held
        for key, data in self._filing.read(keyed, _FIRINGS):
            start, count = cast("tuple[int, int]", self._read(data))
            self._count(start, key, count)

    def size(self) -> StateSize:
        """Entries are accumulators, those of panes and those of windows in the making; a pane is one timer."""
        held = sum(map(len, self._panes.values())) + len(self._stacks)
        return StateSize(held, event_timers=len(self._panes))

    def _rows(self, keys: set[Hashable] | None) -> list[Row]:
        return [
            (key, contents[key], start)
            for start, contents in self._panes.items()
            for key in among(keys, contents)
        ]

    def _row_count(self) -> int:
        return sum(map(len, self._panes.values()))

    def _more_rows(self, keys: set[Hashable] | None) -> Mapping[str, list[KeyRow]]:
        firings = [
            (key, PLAIN.encode([start, counts[key]]))
            for start, counts in self._firings.items()
            for key in among(keys, counts)
        ]
        return {_FIRINGS: firings}

    # ------------------------------------------------------------------------------------ arithmetic

    def _first(self, timestamp: Timestamp) -> Timestamp:
        """The start of the first window that ends after ``timestamp``."""
        return self._start_of(timestamp - self._size) + self._slide

    def _newest(self, watermark: Timestamp) -> Timestamp:
        """Return the start of the last window whose last timestamp the watermark has reached.

        At the end of time that is the last window of all; it may end beyond the largest timestamp.
        """
        if watermark == MAX_TIMESTAMP:
            return self._start_of(MAX_TIMESTAMP)
        return self._start_of(watermark - self._size + 1)

    def _newest_gone(self, watermark: Timestamp) -> Timestamp:
        """Return the start of the last window that is not kept for the allowed lateness any more."""
        return self._newest(watermark if watermark == MAX_TIMESTAMP else watermark - self._lateness)

    def _pane_at(self, time: Timestamp) -> tuple[Timestamp, Timestamp]:
        """Start and end of the pane that ``time`` is in."""
        start = time - (time - self._offset) % self._slide
        border = self._border
        if not border:
            return start, start + self._slide
        if time < start + border:
            return start, start + border
        return start + border, start + self._slide

    # --------------------------------------------------------------------------------------- records

    def _add_each(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold record by record: batches with records behind the watermark, and windows with gaps."""
        late: list[int] = []
        for index, (key, time) in enumerate(zip(keys, times, strict=True)):
            watermark = self._watermark_for(key)
            gone = self._newest_gone(watermark)
            first, last = self._first(time), self._start_of(time)
            if first > last or last <= gone:
                if time + self._lateness <= watermark:
                    late.append(index)
                continue
            known = self._add(batch, index, key, self._pane_at(time)[0])
            fired = range(
                max(first, gone + self._slide),
                min(last, self._newest(watermark)) + 1,
                self._slide,
            )
            if fired:
                self._fire_again(key, self._pane_at(time)[0], fired, known)
        self._emit_late(batch, late)

    def _add(self, batch: Batch[Any], index: int, key: Hashable, start: Timestamp) -> bool:
        """Fold a record into the pane that begins at ``start``; True if its key had something there."""
        contents, value = self._panes[start], batch.values[index]
        try:
            known = key in contents
            if known:
                contents[key] = self._accumulation.add(contents[key], value)
            else:
                check_key(key)
                contents[key] = self._accumulation.first(value)
        except RAISED as exc:
            raise self.failure_at(exc, batch, index) from exc
        self._stacks.came(start, key)
        return known

    # --------------------------------------------------------------------------------------- firings

    def _fire_after(self, before: Timestamp, ahead: GroupWatermarks) -> None:
        """Fire the windows that the watermark has passed since it was ``before``.

        A key group that was ``ahead`` then has fired windows up to its own watermark already.
        """
        order = self._panes.order
        start, last = self._newest(before) + self._slide, self._newest(self.watermark)
        while start <= last:
            index = bisect_left(order, start)
            if index == len(order):
                return
            if order[index] >= start + self._size:
                start = self._first(order[index])  # the windows between are empty
                continue
            self._fire(TimeWindow(start, start + self._size), before, ahead)
            start += self._slide

    def _fire(self, window: TimeWindow, before: Timestamp, ahead: GroupWatermarks) -> None:
        try:
            contents = self._stacks.move(window.start, window.end)
        except RAISED as exc:
            raise self._failed(exc, self._stacks.key, window) from exc
        if ahead:
            last = window.max_timestamp
            contents = {key: contents[key] for key in contents if ahead.of(key, before) < last}
        self._emit_window(window, contents)

    def _fire_again(self, key: Hashable, pane: Timestamp, fired: range, known: bool) -> None:
        """Fire windows that are kept, for a key with a new record in ``pane``, which all of them hold.

        ``known`` if the pane had the key before. With the aggregates from each window's start to the pane, and those
        from the pane on, this takes as many merges as there are panes.
        """
        try:
            sums = self._sums_around(key, pane, fired, known)
        except RAISED as exc:
            raise OperatorError.of(self.name, exc, key=key) from exc
        for start, held, had in sums:
            firing = self._firings.get(start, {}).get(key, 1) + 1 if had else 1
            if had:
                self._count(start, key, firing)
            window = TimeWindow(start, start + self._size)
            result = self._windowed(window, key, held, firing)
            self.output.emit(Batch([result], [window.max_timestamp]))

    def _sums_around(
        self, key: Hashable, pane: Timestamp, windows: range, known: bool
    ) -> list[tuple[Timestamp, Any, bool]]:
        """What ``key`` has in each of ``windows``, by start, and whether it had anything there but for one record."""
        panes, merge, copy = self._panes, self._merge, self._copy
        upto, had = panes[pane][key], known
        older = [at for at in panes.between(windows[0], pane) if key in panes[at]]
        heads: list[tuple[Timestamp, Any, bool]] = []
        for start in reversed(windows):
            while older and older[-1] >= start:
                upto, had = merge(copy(panes[older.pop()][key]), upto), True
            heads.append((start, upto, had))
        newer = [at for at in panes.between(pane + 1, windows[-1] + self._size) if key in panes[at]]
        newer.reverse()
        sums: list[tuple[Timestamp, Any, bool]] = []
        tail: list[Any] = []  # one aggregate, or none yet
        for start, upto, had in reversed(heads):
            while newer and newer[-1] < start + self._size:
                held = panes[newer.pop()][key]
                tail = [merge(tail[0], held) if tail else copy(held)]
            whole = copy(upto)
            sums.append((start, merge(whole, tail[0]) if tail else whole, had or bool(tail)))
        return sums

    def _count(self, start: Timestamp, key: Hashable, firing: int) -> None:
        counts = self._firings.get(start)
        if counts is None:
            counts = self._firings[start] = {}
            heappush(self._to_clean, start)
        counts[key] = firing

    def _stacks_leave(self, bound: Timestamp) -> None:
        try:
            self._stacks.leave(bound)
        except RAISED as exc:
            raise OperatorError.of(self.name, exc, key=self._stacks.key) from exc
