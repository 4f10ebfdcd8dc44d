"""The step of ``filter``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

from aflow.model.batch import Batch
from aflow.operators.base import RAISED, Operator
from aflow.operators.first_call import FirstCall


class FilterOperator(Operator):
    """Emits the records for which ``keep(value)`` is true."""

    def __init__(self, keep: Callable[[Any], object]) -> None:
        #: A ``FirstCall`` until the first record has passed.
        self.function: Callable[[Any], object] = FirstCall(self, "function", keep, "filter()")

    def process(self, batch: Batch[Any]) -> None:
        # Hot path (benchmark `stateless`).
        keep = self.function
        left = iter(batch.values)
        try:
            if batch.timestamps is None and batch.keys is None:
                values = [value for value in left if keep(value)]
                kept = Batch(values)
            else:
                kept = _selected(batch, [keep(value) for value in left])
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        if kept.values:
            self.output.emit(kept)


def _selected(batch: Batch[Any], chosen: list[object]) -> Batch[Any]:
    times, keys = batch.timestamps, batch.keys
    return Batch(
        list(compress(batch.values, chosen)),
        None if times is None else list(compress(times, chosen)),
        None if keys is None else list(compress(keys, chosen)),
    )
