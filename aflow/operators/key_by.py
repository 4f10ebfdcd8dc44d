"""The step of ``key_by``: keys as a column of the batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from aflow.model.batch import Batch
from aflow.operators.base import RAISED, Operator
from aflow.operators.first_call import FirstCall


class KeyByOperator(Operator):
    """Adds the column ``keys``; values and timestamps are kept."""

    def __init__(self, key: Callable[[Any], Hashable]) -> None:
        self._key: Callable[[Any], Hashable] = FirstCall(self, "_key", key, "key_by()")

    def process(self, batch: Batch[Any]) -> None:
        # Hot path (benchmark `keyed_window`).
        key = self._key
        left = iter(batch.values)
        try:
            keys = [key(value) for value in left]
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        self.output.emit(Batch(batch.values, batch.timestamps, keys))
