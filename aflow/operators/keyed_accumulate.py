"""The step of ``fold`` and ``reduce`` on a keyed stream: a running value for each key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize
from aflow.operators.keyed_state import KeyedStateOperator, touch
from aflow.operators.stateless import columns_of, watermarks_of
from aflow.state.specs import ValueState


class KeyedAccumulateOperator(KeyedStateOperator):
    """Emits, for each record, the accumulator of its key with the record added.

    The functions should return a new accumulator: one that is changed in place was emitted as a result before, and
    shows later changes downstream. ``of`` and ``key_type`` are the types of accumulators and keys, which snapshots need
    unless they are plain Python values.
    """

    def __init__(
        self,
        accumulation: Accumulation,
        of: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        self._accumulation = accumulation
        self._accumulator = ValueState[Any](
            "accumulator", of=of, codec=accumulation.codec if of is None else None
        )
        super().__init__((self._accumulator,), key_type)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._accumulators = self._backend.table(self._accumulator)

    def size(self) -> StateSize:
        return StateSize(len(self._accumulators))

    def row_times(self) -> RowTimes:
        return {}

    def process(self, batch: Batch[Any]) -> None:
        keys = touch(self, self._backend, batch)
        # Hot path (benchmark `exchange`): one dict for all keys, without a current key, and two lookups a record.
        accumulators = self._accumulators
        first, add = self._accumulation.first, self._accumulation.add
        results: list[Any] = []
        skipped: list[int] = []
        left = iter(batch.values)
        records = zip(left, keys, strict=True)
        try:
            while True:
                try:
                    for value, key in records:
                        try:
                            before = accumulators[key]
                        except KeyError:
                            check_key(key)
                            after = first(value)
                        else:
                            after = add(before, value)
                        accumulators[key] = after
                        results.append(after)
                    break
                except RAISED as exc:
                    index = self.index_of(batch, left)
                    self.settle(exc, batch, index)
                    skipped.append(index)
        finally:
            if results:
                done = len(results) + len(skipped)
                times, _ = columns_of(batch, done, skipped)
                met = watermarks_of(batch, done, skipped)
                self.output.emit(Batch(results, times, None, met))
