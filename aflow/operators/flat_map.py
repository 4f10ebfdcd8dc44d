"""Any number of results for each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aflow.model.batch import Batch
from aflow.operators.base import RAISED, Operator
from aflow.operators.first_call import FirstCall


class FlatMapOperator(Operator):
    """Replaces each value by all values of ``fn(value)``, in order; each has the timestamp of its origin."""

    def __init__(self, fn: Callable[[Any], Iterable[Any]]) -> None:
        self._fn: Callable[[Any], Iterable[Any]] = FirstCall(self, "_fn", fn, "flat_map()")

    def process(self, batch: Batch[Any]) -> None:
        fn = self._fn
        left = iter(batch.values)
        try:
            if batch.timestamps is None:
                out = Batch([result for value in left for result in fn(value)])
            else:
                # A list for each record, so that an error while iterating still belongs to that record.
                results = [list(fn(value)) for value in left]
                times = [
                    at for at, many in zip(batch.timestamps, results, strict=True) for _ in many
                ]
                out = Batch([result for many in results for result in many], times)
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        if out.values:
            self.output.emit(out)
