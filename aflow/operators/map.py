"""The step of ``map``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aflow.model.batch import Batch
from aflow.operators.base import RAISED, Operator
from aflow.operators.first_call import FirstCall


class MapOperator(Operator):
    """Replaces each value by ``fn(value)``; timestamps are kept."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        #: A ``FirstCall`` until the first record has passed.
        self.function: Callable[[Any], Any] = FirstCall(self, "function", fn, "map()")

    def process(self, batch: Batch[Any]) -> None:
        # Hot path (benchmark `stateless`): a comprehension around a Python function runs at the speed of a plain loop.
        fn = self.function
        left = iter(batch.values)
        try:
            values = [fn(value) for value in left]
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        self.output.emit(Batch(values, batch.timestamps, batch.keys))
