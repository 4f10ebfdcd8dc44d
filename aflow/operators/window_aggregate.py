"""Event-time windows that keep one accumulator for each key: tumbling and sliding, with the default trigger.

Contents are kept window by window, ``{window start: {key: accumulator}}``, so a window is one timer however many keys it has, and
a batch that falls into one window (nearly all do) is folded by one loop over one dict.

A window fires when the watermark reaches its last timestamp. It is then kept for the allowed lateness; a record that comes in
that time is added and fires the window again, for its key. A record all of whose windows are gone is late.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

import msgspec

from aflow.errors import InternalError, OperatorError
from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows
from aflow.model.batch import BATCH_RECORDS, Batch
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.base import Operator

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

#: Side output of the records that came too late for all their windows.
LATE: Final = "late"


class Windowed(msgspec.Struct, Generic[K, R], frozen=True):
    """What a window came to, for one key. A ``Struct`` since it is made once for each key and window: 3 times as fast."""

    key: K
    window: TimeWindow
    value: R


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How records become a result: the one thing in which fold, reduce and aggregate differ."""

    first: Callable[[Any], Any]
    """The accumulator of a first record."""
    add: Callable[[Any, Any], Any]
    """The accumulator with one more record."""
    result: Callable[[Any], Any] | None = None
    """What is emitted for an accumulator; None: itself."""


class WindowAggregateOperator(Operator):
    """Folds the records of each key and window, and emits a ``Windowed`` for each when the watermark passes its end."""

    def __init__(
        self,
        assigner: TumblingWindows | SlidingWindows,
        accumulation: Accumulation,
        *,
        lateness: int = 0,
        of: type[Any] | None = None,
        key_type: type[Any] | None = None,
    ) -> None:
        self._assigner = assigner
        self._start_of = assigner.start_of
        self._size = assigner.size
        self._one_each = isinstance(assigner, TumblingWindows)
        self._accumulation = accumulation
        self._lateness = lateness
        #: Accumulators by window start and key. No window is empty; none is past its clean-up time.
        self._windows: dict[Timestamp, dict[Hashable, Any]] = {}
        #: Starts of the windows that have not fired, smallest first; each is a key of ``_windows``.
        self._to_fire: list[Timestamp] = []
        #: Starts of the windows that have fired and are kept for the allowed lateness, smallest first.
        self._to_clean: list[Timestamp] = []

    def process(self, batch: Batch[Any]) -> None:
        keys, times = batch.keys, batch.timestamps
        if keys is None:
            raise InternalError(f"step {self.name!r} got a batch without keys")
        if times is None:
            raise OperatorError(
                f"step {self.name!r} needs event time, but its records have no timestamps; "
                f"call .event_time(…) before .key_by(…)",
                operator=self.name,
                record=batch.values[0],
            )
        oldest, newest = min(times), max(times)
        start = self._start_of(oldest)
        if start + self._size - 1 <= self.watermark or not self._one_each:
            self._add_each(batch, keys, times)
        elif newest < start + self._size:
            self._add_all(batch, keys, start)
        else:
            self._add_on_time(batch, keys, times)

    def on_watermark(self, timestamp: Timestamp) -> None:
        self.watermark = timestamp
        reach = timestamp - self._size + 1
        while self._to_fire and self._to_fire[0] <= reach:
            start = heappop(self._to_fire)
            self._fire(start, self._windows[start])
            heappush(self._to_clean, start)
        while self._to_clean and self._gone(self._to_clean[0]):
            del self._windows[heappop(self._to_clean)]
        self.output.watermark(timestamp)

    def _add_all(self, batch: Batch[Any], keys: Sequence[Hashable], start: Timestamp) -> None:
        """Fold a batch that lies in one window, on time."""
        # Hot path (benchmark `keyed_window`).
        contents = self._contents(start)
        add, first = self._accumulation.add, self._accumulation.first
        left = iter(batch.values)
        try:
            for key, value in zip(keys, left, strict=False):
                if key in contents:
                    contents[key] = add(contents[key], value)
                else:
                    contents[key] = first(value)
        except Exception as exc:
            raise self.failure(exc, batch, left) from exc

    def _add_on_time(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold a batch that lies in several tumbling windows, all of them on time."""
        add, first, start_of = self._accumulation.add, self._accumulation.first, self._start_of
        windows = self._windows
        left = iter(batch.values)
        try:
            for key, time, value in zip(keys, times, left, strict=False):
                start = start_of(time)
                contents = windows[start] if start in windows else self._contents(start)
                if key in contents:
                    contents[key] = add(contents[key], value)
                else:
                    contents[key] = first(value)
        except Exception as exc:
            raise self.failure(exc, batch, left) from exc

    def _add_each(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold record by record: sliding windows, and batches with records behind the watermark."""
        late: list[int] = []
        for index, (key, time, value) in enumerate(zip(keys, times, batch.values, strict=True)):
            alive = [w.start for w in self._assigner.assign(time) if not self._gone(w.start)]
            if not alive:
                late.append(index)
            for start in alive:
                try:
                    self._add(start, key, value)
                except Exception as exc:
                    raise self.failure_at(exc, batch, index) from exc
        if late:
            values = [batch.values[index] for index in late]
            self.output.side(LATE, Batch(values, [times[index] for index in late]))

    def _add(self, start: Timestamp, key: Hashable, value: object) -> None:
        contents = self._contents(start)
        if key in contents:
            contents[key] = self._accumulation.add(contents[key], value)
        else:
            contents[key] = self._accumulation.first(value)
        if start + self._size - 1 <= self.watermark:
            self._fire(start, {key: contents[key]})

    def _contents(self, start: Timestamp) -> dict[Hashable, Any]:
        contents = self._windows.get(start)
        if contents is None:
            contents = self._windows[start] = {}
            fired = start + self._size - 1 <= self.watermark
            heappush(self._to_clean if fired else self._to_fire, start)
        return contents

    def _gone(self, start: Timestamp) -> bool:
        """True if the window's clean-up time has come; one beyond the end of time never comes."""
        cleanup = start + self._size - 1 + self._lateness
        return cleanup <= self.watermark and cleanup <= MAX_TIMESTAMP

    def _fire(self, start: Timestamp, contents: dict[Hashable, Any]) -> None:
        window = TimeWindow(start, start + self._size)
        result = self._accumulation.result
        if result is None:
            values = [Windowed(key, window, held) for key, held in contents.items()]
        else:
            values = [Windowed(key, window, self._result(key, held)) for key, held in contents.items()]
        for at in range(0, len(values), BATCH_RECORDS):
            some = values[at : at + BATCH_RECORDS]
            self.output.emit(Batch(some, [window.max_timestamp] * len(some)))

    def _result(self, key: Hashable, held: object) -> object:
        assert self._accumulation.result is not None
        try:
            return self._accumulation.result(held)
        except Exception as exc:
            raise OperatorError.of(self.name, exc, record=held, key=key) from exc
