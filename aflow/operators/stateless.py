"""Steps without state: ``map``, ``map_batch``, ``filter``, ``flat_map``, ``key_by``, and the step of a union."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress
from typing import Any, TypeVar

from aflow.errors import OperatorError, shown
from aflow.model.batch import Batch
from aflow.operators.base import RAISED, Operator
from aflow.operators.first_call import FirstCall

C = TypeVar("C")


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


class PassThroughOperator(Operator):
    """Emits its input: a union, whose inputs the gate of the task reads."""

    def process(self, batch: Batch[Any]) -> None:
        self.output.emit(batch)
