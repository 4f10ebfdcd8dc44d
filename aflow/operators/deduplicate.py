"""Emits the first record of each key, and drops later ones for a duration or for ever.

Theory. A record passes if it is ``within`` or more away, in event time and in either direction, from every record of
its key that has passed. So no two records that pass in time are closer, in whatever order they arrive. The timestamp of
one that passes is kept until the watermark is so far that a record in time is that far away. Nearly always that is one
for each key, the newest; the older ones matter to records out of order only, and are kept apart. A late record beyond
the kept timestamps passes: whether one preceded it is unknown, and a duplicate is better than a loss.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, cast

from aflow.errors import OperatorError
from aflow.machines.expiry import Expiry
from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize
from aflow.operators.keyed_state import BackendState, KeyedStateOperator, touch
from aflow.operators.pieces import slices
from aflow.state.memory import MemoryBackend
from aflow.state.readable_state import ABSENT, ReadableState
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import ValueState
from aflow.state.stored_entries import batched

#: Side output of the records that were dropped.
DUPLICATES: Final = "duplicates"

#: Number of checks within the duration, so timestamps are kept for up to a 16th longer.
_CHECKS: Final = 16


#: The names of the timestamp of the newest record that passed, and of those of older ones.
_PASSED: Final = "passed"
_BEFORE: Final = "passed before"


class _Passed(BackendState):
    """The kept timestamps of the records of a key that passed (epoch ms), ascending; True if time does not matter."""

    def __init__(self, backend: MemoryBackend, names: Sequence[str], *, timed: bool) -> None:
        super().__init__(backend, names)
        self._timed = timed

    def read(self, name: str, key: Hashable) -> object:
        newest = super().read(name, key)
        if newest is ABSENT or not self._timed:
            return newest is not ABSENT or ABSENT
        older = self._backend.get(_BEFORE, key)
        return [*cast("list[Timestamp]", older or []), newest]


class DeduplicateOperator(KeyedStateOperator):
    """Drops a record if its key has passed less than ``within`` ms of event time away; None: has ever passed.

    Without ``within`` records need no timestamps, and each key is kept for ever. ``key_type`` is the type of the
    keys, which snapshots need unless they are plain Python values.
    """

    def __init__(self, within: int | None = None, key_type: type[Hashable] | None = None) -> None:
        self._within = within
        self._newest = ValueState[int](_PASSED, of=int)
        self._others = ValueState[list[int]](_BEFORE, of=list[int])
        super().__init__((self._newest, self._others), key_type)
        self._width = max(1, (within or 0) // _CHECKS)
        self._expiry = Expiry(self._width)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        #: The timestamp of the newest record that passed, by key; 0 for all where time does not matter.
        self._seen = self._backend.table(self._newest)
        #: Kept timestamps of older ones, ascending; never empty.
        self._older = self._backend.table(self._others)

    def readable_state(self) -> ReadableState:
        return _Passed(self._backend, [_PASSED], timed=self._within is not None)

    def process(self, batch: Batch[Any]) -> None:
        touch(self, self._backend, batch)
        if self._within is None:
            passing = self._new_keys(batch)
        elif batch.timestamps is None:
            raise OperatorError(
                f"step {self.name!r} compares event time, but its records have no timestamps; "
                f"call .event_time(…) before .key_by(…), or omit within",
                operator=self.name,
                record=batch.values[0],
            )
        else:
            passing = self._far_enough(batch, batch.timestamps, self._within)
        self._emit(batch, passing)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if self._within is not None and self._expiry.is_due(timestamp):
            self.pieces.run(self._forget_until(timestamp, self._within))
        else:
            super().on_watermark(timestamp)

    def _forget_until(self, timestamp: Timestamp, within: int) -> Iterator[int]:
        """Remove what the watermark ``timestamp`` makes superfluous, in pieces, and emit it."""
        for due in slices(self._expiry.due(timestamp)):
            self._backend.touch(due)
            for key in due:
                self._forget(key, timestamp - within + 1)
            yield 0
        super().on_watermark(timestamp)

    def row_times(self) -> RowTimes:
        within, width = self._within, self._width
        if within is None:
            return {}
        newest, others = self._newest.layout().decode, self._others.layout().decode

        def check_after(passed: Timestamp) -> tuple[Timestamp]:
            return (-(-(passed + within - 1) // width) * width,)  # as ``Expiry`` rounds it

        return {
            _PASSED: lambda data: check_after(newest(data)),
            _BEFORE: lambda data: check_after(min(others(data))),
        }

    def size(self) -> StateSize:
        held = len(self._seen) + sum(map(len, self._older.values()))
        return StateSize(held, event_timers=len(self._expiry))

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        yield from super().restore_in_pieces(snapshot)
        if self._within is None:
            return
        newest = self._seen.items()
        older = ((key, at) for key, passed in self._older.items() for at in passed)
        for some in batched(chain(newest, older)):
            for key, at in some:
                self._expiry.add(key, at + self._within - 1)
            yield

    def _new_keys(self, batch: Batch[Any]) -> list[int]:
        """Return the indexes of the records that are the first of their key."""
        seen = self._seen
        passing: list[int] = []
        index = 0
        try:
            for index, key in enumerate(batch.keys or ()):
                if key not in seen:
                    check_key(key)
                    seen[key] = 0
                    passing.append(index)
        except RAISED as exc:
            raise self.failure_at(exc, batch, index) from exc
        return passing

    def _far_enough(self, batch: Batch[Any], times: list[Timestamp], within: int) -> list[int]:
        """Return the indexes of the records that are ``within`` or more away from all that have passed."""
        # Hot path: one lookup for a dropped record, and calls only for one that passes.
        seen, note = self._seen, self._expiry.add
        passing: list[int] = []
        index = 0
        try:
            for index, (key, time) in enumerate(zip(batch.keys or (), times, strict=True)):
                at = seen.get(key)
                if at is None:
                    check_key(key)
                    seen[key] = time
                elif time - at >= within:
                    self._older.setdefault(key, []).append(at)
                    seen[key] = time
                elif at - time < within or not self._fits_before(key, time, within):
                    continue
                passing.append(index)
                note(key, time + within - 1)
        except RAISED as exc:
            raise self.failure_at(exc, batch, index) from exc
        return passing

    def _fits_before(self, key: Hashable, time: Timestamp, within: int) -> bool:
        """Add ``time``, far enough before the newest one, to the older ones if none of them is too close."""
        older = self._older.get(key)
        if older is None:
            self._older[key] = [time]
            return True
        place = bisect_left(older, time)
        if place < len(older) and older[place] - time < within:
            return False
        if place and time - older[place - 1] < within:
            return False
        older.insert(place, time)
        return True

    def _forget(self, key: Hashable, gone: Timestamp) -> None:
        """Remove timestamps up to ``gone``."""
        older = self._older.get(key)
        if older is not None:
            del older[: bisect_right(older, gone)]
            if not older:
                del self._older[key]
        if self._seen.get(key, gone + 1) <= gone:
            del self._seen[key]

    def _emit(self, batch: Batch[Any], passing: list[int]) -> None:
        if len(passing) == len(batch):
            self.output.emit(Batch(batch.values, batch.timestamps, None, batch.watermarks))
            return
        if passing:
            self.output.emit(batch.pick(passing))
        passed = set(passing)
        dropped = [index for index in range(len(batch)) if index not in passed]
        self.output.side(DUPLICATES, batch.pick(dropped))
