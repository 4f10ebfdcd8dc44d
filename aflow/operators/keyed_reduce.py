"""A running value for each key, of the type of the records: ``reduce``."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from aflow.errors import InternalError
from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.operators.base import Operator, OperatorContext
from aflow.operators.keyed_state import keyed_backend
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import ValueState

#: Stands for the value of a key that has none.
_NEW: Final = object()


class KeyedReduceOperator(Operator):
    """Emits a key's first record as it is, and for each later one what ``fn`` makes of the last result and the record.

    ``fn`` should return a new value: one that it changes in place is also in the hands of whoever got it as a result.
    ``of`` and ``key_type`` are the types of records and keys, which snapshots need unless they are plain Python values.
    """

    def __init__(
        self,
        fn: Callable[[Any, Any], Any],
        of: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        self._fn = fn
        self._reduced = ValueState[Any]("reduced", of=of)
        self._key_type = key_type

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = keyed_backend(context, self._key_type)
        self._values = self._backend.table(self._reduced)

    def process(self, batch: Batch[Any]) -> None:
        if batch.keys is None:
            raise InternalError(f"step {self.name!r} is keyed and got a batch without keys")
        # Hot path: one dict for all keys, read and written here, without a current key.
        reduced, fn = self._values, self._fn
        results: list[Any] = []
        left = iter(batch.values)
        try:
            for value, key in zip(left, batch.keys, strict=True):
                try:
                    before = reduced[key]
                except KeyError:
                    before = _NEW
                if before is _NEW:
                    check_key(key)
                reduced[key] = after = value if before is _NEW else fn(before, value)
                results.append(after)
        except Exception as exc:
            raise self.failure(exc, batch, left) from exc
        self.output.emit(Batch(results, batch.timestamps))

    def snapshot(self) -> OperatorSnapshot:
        """Raises ``CheckpointError`` for a key or a value that cannot be encoded."""
        return OperatorSnapshot(self._backend.snapshot())

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._backend.restore(snapshot.keyed)
