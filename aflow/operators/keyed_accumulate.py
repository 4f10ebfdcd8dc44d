"""The step of ``fold`` and ``reduce`` on a keyed stream: a running value for each key."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import ExitStack
from typing import Any

from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, Operator, OperatorContext
from aflow.operators.keyed_state import keyed_backend, touch
from aflow.state.keyed_entries import CapturedRows
from aflow.state.layouts import descriptions
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import ValueState


class KeyedAccumulateOperator(Operator):
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
        self._key_type = key_type
        self._to_close = ExitStack()

    def declares(self) -> Mapping[str, bytes]:
        return descriptions((self._accumulator,))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = keyed_backend(context, self._key_type)
        self._to_close.callback(self._backend.close)
        self._accumulators = self._backend.table(self._accumulator)

    def process(self, batch: Batch[Any]) -> None:
        keys = touch(self, self._backend, batch)
        # Hot path (benchmark `exchange`): one dict for all keys, without a current key, and two lookups a record.
        accumulators = self._accumulators
        first, add = self._accumulation.first, self._accumulation.add
        results: list[Any] = []
        left = iter(batch.values)
        try:
            for value, key in zip(left, keys, strict=True):
                try:
                    before = accumulators[key]
                except KeyError:
                    check_key(key)
                    after = first(value)
                else:
                    after = add(before, value)
                accumulators[key] = after
                results.append(after)
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        self.output.emit(Batch(results, batch.timestamps))

    def close(self) -> None:
        self._to_close.close()

    def capture(self, *, changes: bool) -> CapturedRows:
        """Capture the state. Raises ``CheckpointError`` for an accumulator that cannot be encoded."""
        return CapturedRows(self._backend.key_codec, self._backend.capture(changes=changes))

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._backend.restore(snapshot.keyed)
