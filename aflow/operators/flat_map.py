"""The step of ``flat_map``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from aflow.model.batch import Batch
from aflow.operators.base import RAISED, Operator
from aflow.operators.first_call import FirstCall

C = TypeVar("C")


class FlatMapOperator(Operator):
    """Replace each value by all values of ``fn(value)``, in order, with its timestamp and key."""

    def __init__(self, fn: Callable[[Any], Iterable[Any]]) -> None:
        self._fn: Callable[[Any], Iterable[Any]] = FirstCall(self, "_fn", fn, "flat_map()")

    def process(self, batch: Batch[Any]) -> None:
        fn = self._fn
        left = iter(batch.values)
        try:
            if batch.timestamps is None and batch.keys is None:
                out = Batch([result for value in left for result in fn(value)])
            else:
                # A list for each record, so that an error while iterating still belongs to that record.
                results = [list(fn(value)) for value in left]
                out = Batch(
                    [result for many in results for result in many],
                    _repeated(batch.timestamps, results),
                    _repeated(batch.keys, results),
                )
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        if out.values:
            self.output.emit(out)


def _repeated(column: Sequence[C] | None, results: Sequence[Sequence[object]]) -> list[C] | None:
    """Return ``column`` with each entry as often as its record has results."""
    if column is None:
        return None
    return [entry for entry, many in zip(column, results, strict=True) for _ in many]
