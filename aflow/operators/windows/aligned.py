"""Event-time windows that keep one accumulator for each key: tumbling and sliding, with the default trigger.

Contents are kept window by window, ``{window start: {key: accumulator}}``, so a window is one timer however many
keys it has, and a batch that falls into one window (nearly all do) is folded by one loop over one dict. Windows
that have fired stand apart, since after a restore with another parallelism a window may have fired for some of its
keys only.

A window fires when the watermark reaches its last timestamp. It is then kept for the allowed lateness; a record
that comes in that time is added and fires the window again, for its key. A record all of whose windows are gone is
late.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final

from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows
from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, OperatorContext, StateSize
from aflow.operators.windows.folding import fold_by_time, fold_into
from aflow.operators.windows.incremental import Contents, IncrementalWindows, Row, among
from aflow.operators.windows.staggers import Staggers, staggers_of, stored_staggers
from aflow.state.filing import Keyed
from aflow.state.snapshot import OperatorSnapshot

#: Keyed state: each accumulator with the start of its window, and how often that has fired.
_CONTENTS: Final = "@windows"


class WindowAggregateOperator(IncrementalWindows):
    """Folds the records of each key and window, and emits a ``Windowed`` for each when the watermark passes its end.

    ``lateness`` in ms. ``of`` and ``key_type`` are the types of accumulators and keys, which snapshots need unless
    they are plain Python values. What is emitted is not changed afterwards, with one exception: an accumulator that
    ``add`` changes, is itself the result, and has no ``merge`` by which it could be copied, grows with late records.
    """

    def __init__(
        self,
        assigner: TumblingWindows | SlidingWindows,
        accumulation: Accumulation,
        *,
        lateness: int = 0,
        of: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        super().__init__(
            accumulation,
            windows=str(assigner),
            filed_as=_CONTENTS,
            lateness=lateness,
            of=of,
            key_type=key_type,
        )
        self._assigner = assigner
        self._start_of = assigner.start_of
        self._size = assigner.size
        self._tumbling = isinstance(assigner, TumblingWindows)
        self._slide = assigner.size if isinstance(assigner, TumblingWindows) else assigner.slide
        #: True if a record may be in no window at all.
        self._gaps = self._slide > self._size
        #: Contents of the windows that have not fired, by start; never empty.
        self._open: dict[Timestamp, Contents] = {}
        #: Contents of the windows that have fired and are kept for the allowed lateness, by start; never empty.
        self._fired: dict[Timestamp, Contents] = {}
        #: The keys of ``_open`` and of ``_fired``, as heaps.
        self._to_fire: list[Timestamp] = []
        self._to_clean: list[Timestamp] = []
        #: How often the windows in ``_fired`` have fired, for the keys for which it was more than once.
        self._firings: dict[Timestamp, dict[Hashable, int]] = {}
        #: None for windows that have the same bounds in all subtasks.
        self._staggers: Staggers | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._staggers = staggers_of(self._assigner, context)

    def process(self, batch: Batch[Any]) -> None:
        keys, times = self._columns(batch)
        mixed = self._staggers is not None and self._use_stagger(self._staggers)
        start = self._first_of(min(times))
        if mixed or self._gaps or self._ahead or self._passed(start, self.watermark):
            self._add_each(batch, keys, times)
        elif not self._tumbling:
            self._add_to_several(batch, keys, times)
        elif max(times) < start + self._size:
            fold_into(self._unfired(start), batch, keys, self._accumulation, self)
        else:
            fold_by_time(
                self._unfired, self._window_at, batch, keys, times, self._accumulation, self
            )
        self._changed.add(keys)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs catch up with what was known
        self._advance(timestamp)
        while self._to_fire and self._passed(self._to_fire[0], timestamp):
            self._fire(heappop(self._to_fire))
        while self._to_clean and self._gone(self._to_clean[0], timestamp):
            start = heappop(self._to_clean)
            self._changed.add(self._fired.pop(start))
            self._firings.pop(start, None)
        self.output.watermark(timestamp)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        if self._staggers is not None:
            self._staggers.restore(snapshot)
        super().restore(snapshot)

    def _known(self) -> Mapping[str, tuple[bytes, ...]]:
        return {**super()._known(), **stored_staggers(self._staggers)}

    def _use_stagger(self, staggers: Staggers) -> bool:
        """Assign records to the staggered windows of this subtask; return True if not all keys have the same."""
        self._start_of = staggers.own().start_of
        return staggers.mixed

    def _restore_rows(self, keyed: Keyed) -> None:
        for key, data in self._filing.read(keyed, _CONTENTS):
            held, (start, firings) = self._decoded(data)
            self._contents(start, fired=firings > 0)[key] = held
            if firings > 1:
                self._firings.setdefault(start, {})[key] = firings

    def size(self) -> StateSize:
        """Entries are accumulators; a window is one timer, waiting to fire or to be cleaned up."""
        windows = [*self._open.values(), *self._fired.values()]
        return StateSize(sum(map(len, windows)), event_timers=len(windows))

    def _rows(self, keys: set[Hashable] | None) -> list[Row]:
        rows: list[Row] = [
            (key, contents[key], start, 0)
            for start, contents in self._open.items()
            for key in among(keys, contents)
        ]
        rows += [
            (key, contents[key], start, self._firings_of(start, key))
            for start, contents in self._fired.items()
            for key in among(keys, contents)
        ]
        return rows

    def _row_count(self) -> int:
        return sum(map(len, self._open.values())) + sum(map(len, self._fired.values()))

    def _window_at(self, time: Timestamp) -> tuple[Timestamp, Timestamp]:
        """Start and end of the tumbling window that ``time`` is in."""
        start = self._start_of(time)
        return start, start + self._size

    def _unfired(self, start: Timestamp) -> Contents:
        return self._contents(start, fired=False)

    def _add_to_several(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold a batch into overlapping windows, all of them on time."""
        add, first, start_of = self._accumulation.add, self._accumulation.first, self._start_of
        windows, size, slide = self._open, self._size, self._slide
        left = iter(batch.values)
        try:
            for key, time, value in zip(keys, times, left, strict=False):
                start = start_of(time)
                while start + size > time:
                    contents = (
                        windows[start] if start in windows else self._contents(start, fired=False)
                    )
                    if key in contents:
                        contents[key] = add(contents[key], value)
                    else:
                        check_key(key)
                        contents[key] = first(value)
                    start -= slide
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc

    def _add_each(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold record by record: batches with records behind the watermark, and windows with gaps."""
        late: list[int] = []
        for index, (key, time, value) in enumerate(zip(keys, times, batch.values, strict=True)):
            watermark = self._watermark_for(key)
            assigner = self._assigner if self._staggers is None else self._staggers.of(key)
            windows = assigner.assign(value, time)
            alive = [w.start for w in windows if not self._gone(w.start, watermark)]
            if not alive and time + self._lateness <= watermark:
                late.append(index)
            for start in alive:
                fired = self._passed(start, watermark)
                contents = self._contents(start, fired=fired)
                try:
                    known = self._add(contents, key, value)
                except RAISED as exc:
                    raise self.failure_at(exc, batch, index) from exc
                if fired:
                    self._fire_again(start, key, contents[key], known)
        self._emit_late(batch, late)

    def _add(self, contents: Contents, key: Hashable, value: object) -> bool:
        """Fold a record in; True if its key had something before."""
        if key in contents:
            contents[key] = self._accumulation.add(contents[key], value)
            return True
        check_key(key)
        contents[key] = self._accumulation.first(value)
        return False

    def _fire(self, start: Timestamp) -> None:
        contents = self._open.pop(start)
        self._changed.add(contents)
        window = TimeWindow(start, start + self._size)
        if self._gone(start, self.watermark):
            self._emit_window(window, contents)
        else:
            kept = {key: self._given(window, key, held) for key, held in contents.items()}
            self._emit_window(window, kept)
            self._contents(start, fired=True).update(contents)

    def _fire_again(self, start: Timestamp, key: Hashable, held: Any, known: bool) -> None:
        """Fire a window that is kept, for one key; ``known`` if it has fired for that key before."""
        firing = 1
        if known:
            firing = self._firings_of(start, key) + 1
            self._firings.setdefault(start, {})[key] = firing
        window = TimeWindow(start, start + self._size)
        result = self._windowed(window, key, self._given(window, key, held), firing)
        self.output.emit(Batch([result], [window.max_timestamp]))

    def _given(self, window: TimeWindow, key: Hashable, held: Any) -> Any:
        """What may be emitted of an accumulator that is kept."""
        try:
            return self._copy(held)
        except RAISED as exc:
            raise self._failed(exc, key, window) from exc

    def _firings_of(self, start: Timestamp, key: Hashable) -> int:
        counts = self._firings.get(start)
        return 1 if counts is None else counts.get(key, 1)

    def _contents(self, start: Timestamp, *, fired: bool) -> Contents:
        windows, heap = (self._fired, self._to_clean) if fired else (self._open, self._to_fire)
        contents = windows.get(start)
        if contents is None:
            contents = windows[start] = {}
            heappush(heap, start)
        return contents

    def _first_of(self, time: Timestamp) -> Timestamp:
        """The start of the first window that ``time`` is in; with gaps, of one that may begin after it."""
        return self._start_of(time - self._size) + self._slide

    def _passed(self, start: Timestamp, watermark: Timestamp) -> bool:
        """Return True if the watermark has reached the window's last timestamp, or the end of time."""
        return start + self._size - 1 <= watermark or watermark == MAX_TIMESTAMP

    def _gone(self, start: Timestamp, watermark: Timestamp) -> bool:
        """Return True if the watermark has reached the window's clean-up time, or the end of time."""
        return start + self._size - 1 + self._lateness <= watermark or watermark == MAX_TIMESTAMP
