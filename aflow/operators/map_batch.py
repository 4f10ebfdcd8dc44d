"""The step of ``map_batch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aflow.errors import OperatorError, shown
from aflow.model.batch import Batch
from aflow.operators.base import RAISED, Operator
from aflow.operators.first_call import FirstCall


class MapBatchOperator(Operator):
    """Replaces the values of a batch by ``fn(values)``, which must return one result for each, in order."""

    def __init__(self, fn: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._fn: Callable[[list[Any]], Sequence[Any]] = FirstCall(self, "_fn", fn, "map_batch()")

    def process(self, batch: Batch[Any]) -> None:
        try:
            # A copy, since the batch may have other readers and the user may well change a list.
            results = list(self._fn(list(batch.values)))
        except RAISED as exc:
            raise OperatorError.of(self.name, exc) from exc
        if len(results) != len(batch):
            raise OperatorError(
                f"step {self.name!r}: the function of map_batch got {len(batch)} values and returned {len(results)}; "
                f"it must return one result for each value, in order. First value: {shown(batch.values[0])}",
                operator=self.name,
            )
        self.output.emit(Batch(results, batch.timestamps))
