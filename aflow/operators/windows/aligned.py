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

from collections.abc import Hashable, Sequence
from heapq import heappop, heappush
from typing import Any, Final, cast

from aflow.errors import CheckpointError, InternalError, OperatorError, RestoreError, shown
from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows
from aflow.model.batch import BATCH_RECORDS, Batch
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.keys import check_key
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, Operator, OperatorContext
from aflow.operators.windows.late import LATE
from aflow.state.filing import KeyedFiling
from aflow.state.layouts import state_codec
from aflow.state.snapshot import OperatorSnapshot

#: Keyed state: each accumulator with the start of its window, and whether that has fired.
_CONTENTS: Final = "@windows"

#: Operator state: the last watermark.
_WATERMARK: Final = "@watermark"

Contents = dict[Hashable, Any]
"""Accumulators by key."""


class WindowAggregateOperator(Operator):
    """Folds the records of each key and window, and emits a ``Windowed`` for each when the watermark passes its end.

    ``lateness`` in ms. ``of`` and ``key_type`` are the types of accumulators and keys, which snapshots need unless
    they are plain Python values.
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
        self._assigner = assigner
        self._start_of = assigner.start_of
        self._size = assigner.size
        self._tumbling = isinstance(assigner, TumblingWindows)
        self._accumulation = accumulation
        self._lateness = lateness
        self._codec = state_codec(of)
        self._key_type = key_type
        #: Contents of the windows that have not fired, by start; never empty.
        self._open: dict[Timestamp, Contents] = {}
        #: Contents of the windows that have fired and are kept for the allowed lateness, by start; never empty.
        self._fired: dict[Timestamp, Contents] = {}
        #: The keys of ``_open`` and of ``_fired``, as heaps.
        self._to_fire: list[Timestamp] = []
        self._to_clean: list[Timestamp] = []

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._filing = KeyedFiling(
            operator=context.name,
            key_type=self._key_type,
            key_groups=context.key_groups,
            key_group_count=context.key_group_count,
        )

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
        start = self._start_of(min(times))
        if not self._tumbling or self._passed(start):
            self._add_each(batch, keys, times)
        elif max(times) < start + self._size:
            self._add_all(batch, keys, start)
        else:
            self._add_on_time(batch, keys, times)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs catch up with what was known
        self.watermark = timestamp
        while self._to_fire and self._passed(self._to_fire[0]):
            start = heappop(self._to_fire)
            contents = self._open.pop(start)
            self._emit(start, contents)
            if not self._gone(start):
                self._contents(start, fired=True).update(contents)
        while self._to_clean and self._gone(self._to_clean[0]):
            del self._fired[heappop(self._to_clean)]
        self.output.watermark(timestamp)

    def snapshot(self) -> OperatorSnapshot:
        """Raises ``CheckpointError`` for a key or an accumulator that cannot be encoded."""
        entries = [
            (key, self._encoded(start, fired, key, held))
            for fired, windows in ((False, self._open), (True, self._fired))
            for start, contents in windows.items()
            for key, held in contents.items()
        ]
        return OperatorSnapshot(
            self._filing.file({_CONTENTS: entries}),
            {_WATERMARK: (PLAIN.encode(self.watermark),)},
        )

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """The watermark goes on where the slowest of the former subtasks was."""
        for key, data in self._filing.read(snapshot.keyed, _CONTENTS):
            start, fired, held = self._decoded(data)
            self._contents(start, fired=fired)[key] = held
        watermarks = [PLAIN.decode(data) for data in snapshot.operator.get(_WATERMARK, ())]
        self.watermark = min(
            (at for at in watermarks if isinstance(at, int)), default=self.watermark
        )

    def _add_all(self, batch: Batch[Any], keys: Sequence[Hashable], start: Timestamp) -> None:
        """Fold a batch that lies in one window, on time."""
        # Hot path (benchmark `keyed_window`).
        contents = self._contents(start, fired=False)
        add, first = self._accumulation.add, self._accumulation.first
        left = iter(batch.values)
        try:
            for key, value in zip(keys, left, strict=False):
                try:
                    held = contents[key]
                except KeyError:
                    check_key(key)
                    contents[key] = first(value)
                else:
                    contents[key] = add(held, value)
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc

    def _add_on_time(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold a batch that lies in several tumbling windows, all of them on time."""
        add, first, start_of = self._accumulation.add, self._accumulation.first, self._start_of
        windows = self._open
        left = iter(batch.values)
        try:
            for key, time, value in zip(keys, times, left, strict=False):
                start = start_of(time)
                contents = (
                    windows[start] if start in windows else self._contents(start, fired=False)
                )
                if key in contents:
                    contents[key] = add(contents[key], value)
                else:
                    check_key(key)
                    contents[key] = first(value)
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc

    def _add_each(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Sequence[Timestamp]
    ) -> None:
        """Fold record by record: sliding windows, and batches with records behind the watermark."""
        late: list[int] = []
        for index, (key, time, value) in enumerate(zip(keys, times, batch.values, strict=True)):
            alive = [w.start for w in self._assigner.assign(value, time) if not self._gone(w.start)]
            if not alive and time + self._lateness <= self.watermark:
                late.append(index)
            for start in alive:
                fired = self._passed(start)
                contents = self._contents(start, fired=fired)
                try:
                    self._add(contents, key, value)
                except RAISED as exc:
                    raise self.failure_at(exc, batch, index) from exc
                if fired:
                    self._emit(start, {key: contents[key]})
        if late:
            values = [batch.values[index] for index in late]
            self.output.side(LATE, Batch(values, [times[index] for index in late]))

    def _add(self, contents: Contents, key: Hashable, value: object) -> None:
        if key in contents:
            contents[key] = self._accumulation.add(contents[key], value)
        else:
            check_key(key)
            contents[key] = self._accumulation.first(value)

    def _contents(self, start: Timestamp, *, fired: bool) -> Contents:
        windows, heap = (self._fired, self._to_clean) if fired else (self._open, self._to_fire)
        contents = windows.get(start)
        if contents is None:
            contents = windows[start] = {}
            heappush(heap, start)
        return contents

    def _passed(self, start: Timestamp) -> bool:
        """True if the watermark has reached the window's last timestamp."""
        return start + self._size - 1 <= self.watermark

    def _gone(self, start: Timestamp) -> bool:
        """True if the window's clean-up time has come; one beyond the end of time never comes."""
        cleanup = start + self._size - 1 + self._lateness
        return cleanup <= self.watermark and cleanup <= MAX_TIMESTAMP

    def _emit(self, start: Timestamp, contents: Contents) -> None:
        window = TimeWindow(start, start + self._size)
        result = self._accumulation.result
        if result is None:
            values = [Windowed(key, window, held) for key, held in contents.items()]
        else:
            values = [
                Windowed(key, window, self._result(key, held)) for key, held in contents.items()
            ]
        for at in range(0, len(values), BATCH_RECORDS):
            some = values[at : at + BATCH_RECORDS]
            self.output.emit(Batch(some, [window.max_timestamp] * len(some)))

    def _result(self, key: Hashable, held: object) -> object:
        assert self._accumulation.result is not None
        try:
            return self._accumulation.result(held)
        except RAISED as exc:
            raise OperatorError.of(self.name, exc, record=held, key=key) from exc

    def _encoded(self, start: Timestamp, fired: bool, key: Hashable, held: object) -> bytes:
        try:
            return PLAIN.encode([start, fired, self._codec.encode(held)])
        except CodecError as exc:
            raise CheckpointError(
                f"step {self.name!r} cannot store what key {shown(key)} has in the window that begins at {start}: {exc}"
            ) from exc

    def _decoded(self, data: bytes) -> tuple[Timestamp, bool, Any]:
        try:
            start, fired, held = cast("tuple[int, bool, bytes]", PLAIN.decode(data))
            return start, fired, self._codec.decode(held)
        except CodecError as exc:
            raise RestoreError(
                f"step {self.name!r} cannot read the contents of a window: {exc}"
            ) from exc
