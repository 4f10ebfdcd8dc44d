"""Lets the first record of each key pass, and drops the others for a while or for ever.

Theory. A record that passes is remembered by its timestamp. One that comes later passes too if it is ``within`` or more
away from it in event time, in either direction, and is remembered in its place if it is newer. Once the watermark has
come so far that a record on time is that far away, what is remembered is forgotten. A late record beyond that passes:
nobody knows any more whether there was one before it, and a record too many is better than one too few.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from aflow.errors import InternalError, OperatorError
from aflow.machines.expiry import Expiry
from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, Operator, OperatorContext, StateSize
from aflow.operators.keyed_state import keyed_backend
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import ValueState

#: Side output of the records that were dropped.
DUPLICATES: Final = "duplicates"

#: What is remembered is looked at this many times at most before it goes, so it stays for up to a 16th longer.
_STRETCHES: Final = 16


class DeduplicateOperator(Operator):
    """Drops records whose key has passed less than ``within`` ms of event time away; None: has ever passed.

    Without ``within`` records need no timestamps, and each key is remembered for ever. ``key_type`` is the type of the
    keys, which snapshots need unless they are plain Python values.
    """

    def __init__(self, within: int | None = None, key_type: type[Hashable] | None = None) -> None:
        self._within = within
        self._passed = ValueState[int]("passed", of=int)
        self._key_type = key_type
        self._expiry = Expiry(max(1, (within or 0) // _STRETCHES))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = keyed_backend(context, self._key_type)
        #: The timestamp of the record that passed, by key; 0 for all where time does not matter.
        self._seen = self._backend.table(self._passed)

    def process(self, batch: Batch[Any]) -> None:
        if batch.keys is None:
            raise InternalError(f"step {self.name!r} got a batch without keys")
        if self._within is None:
            passing = self._new_keys(batch)
        elif batch.timestamps is None:
            raise OperatorError(
                f"step {self.name!r} compares event time, but its records have no timestamps; "
                f"call .event_time(…) before .key_by(…), or leave within out",
                operator=self.name,
                record=batch.values[0],
            )
        else:
            passing = self._far_enough(batch, batch.timestamps, self._within)
        self._emit(batch, passing)

    def on_watermark(self, timestamp: Timestamp) -> None:
        seen, within = self._seen, self._within
        if within is not None:
            for key in self._expiry.due(timestamp):
                at = seen.get(key)
                if at is not None and at + within - 1 <= timestamp:
                    del seen[key]
        super().on_watermark(timestamp)

    def size(self) -> StateSize:
        return StateSize(len(self._seen), event_timers=len(self._expiry))

    def snapshot(self) -> OperatorSnapshot:
        """Raises ``CheckpointError`` for a key that cannot be encoded."""
        return OperatorSnapshot(self._backend.snapshot())

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._backend.restore(snapshot.keyed)
        if self._within is not None:
            for key, at in self._seen.items():
                self._expiry.note(key, at + self._within - 1)

    def _new_keys(self, batch: Batch[Any]) -> list[int]:
        """Which records are the first of their key."""
        seen = self._seen
        passing: list[int] = []
        for index, key in enumerate(batch.keys or ()):
            try:
                known = key in seen
            except TypeError as exc:
                raise self.failure_at(exc, batch, index) from exc
            if not known:
                self._remember(batch, index, key, 0)
                passing.append(index)
        return passing

    def _far_enough(self, batch: Batch[Any], times: list[Timestamp], within: int) -> list[int]:
        """Which records have no other of their key that has passed less than ``within`` away from them."""
        seen, note = self._seen, self._expiry.note
        passing: list[int] = []
        for index, (key, time) in enumerate(zip(batch.keys or (), times, strict=True)):
            try:
                at = seen.get(key)
            except TypeError as exc:
                raise self.failure_at(exc, batch, index) from exc
            if at is not None and -within < time - at < within:
                continue
            passing.append(index)
            if at is None or time > at:
                self._remember(batch, index, key, time)
                note(key, time + within - 1)
        return passing

    def _remember(self, batch: Batch[Any], index: int, key: Hashable, time: Timestamp) -> None:
        try:
            check_key(key)
        except RAISED as exc:
            raise self.failure_at(exc, batch, index) from exc
        self._seen[key] = time

    def _emit(self, batch: Batch[Any], passing: list[int]) -> None:
        if len(passing) == len(batch):
            self.output.emit(Batch(batch.values, batch.timestamps))
            return
        if passing:
            self.output.emit(_some(batch, passing))
        passed = set(passing)
        dropped = [index for index in range(len(batch)) if index not in passed]
        self.output.side(DUPLICATES, _some(batch, dropped))


def _some(batch: Batch[Any], indexes: list[int]) -> Batch[Any]:
    times = batch.timestamps
    return Batch(
        [batch.values[index] for index in indexes],
        None if times is None else [times[index] for index in indexes],
    )
