"""Steps without state: ``map``, ``map_batch``, ``filter``, ``flat_map``, ``key_by``, and the step of a union.

Failed records. A loop over a batch appends each result as soon as it is there. If the function raises, ``on_error``
settles the record, and the loop continues with the *same* iterator: no function is called twice for a record, and a
batch without failures pays for one ``try``. If the job fails, the results of the preceding records are emitted first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress
from typing import Any, TypeVar

from aflow.errors import OperatorError, shown
from aflow.machines.calls.on_error import Fail
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, Operator, is_of_record
from aflow.operators.first_call import FirstCall
from aflow.operators.handler_results import iterable

C = TypeVar("C")


class MapOperator(Operator):
    """Replaces each value by ``fn(value)``; timestamps are kept."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        #: A ``FirstCall`` until the first record has passed.
        self.function: Callable[[Any], Any] = FirstCall(self, "function", fn, "map()")

    def process(self, batch: Batch[Any]) -> None:
        values: list[Any] = []
        skipped: list[int] = []
        try:
            append_results(self, self.function, batch, values, skipped)
        finally:
            if values:
                done = len(values) + len(skipped)
                times, keys = columns_of(batch, done, skipped)
                met = watermarks_of(batch, done, skipped)
                self.output.emit(Batch(values, times, keys, met))


class MapBatchOperator(Operator):
    """Replaces the values of a batch by ``fn(values)``, which must return one result for each, in order.

    If ``fn`` raises, it is called again for each value alone, so that one value does not fail the others.
    """

    def __init__(self, fn: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._fn: Callable[[list[Any]], Sequence[Any]] = FirstCall(self, "_fn", fn, "map_batch()")

    def process(self, batch: Batch[Any]) -> None:
        try:
            # A copy, since the batch may have other readers and the user may well change a list.
            results = list(self._fn(list(batch.values)))
        except RAISED as exc:
            if not is_of_record(exc):
                raise OperatorError.of(self.name, exc) from exc
            self._map_each(batch, exc)
            return
        self._check_count(batch, results)
        self.output.emit(Batch(results, batch.timestamps, None, batch.watermarks))

    def _map_each(self, batch: Batch[Any], cause: Exception) -> None:
        """Map the values one by one after ``cause``. Raises ``OperatorError`` as ``settle`` does."""
        values: list[Any] = []
        skipped: list[int] = []
        try:
            for index in range(len(batch)):
                one = batch.slice(index, index + 1)
                try:
                    results = _raise(cause) if len(batch) == 1 else list(self._fn(list(one.values)))
                    self._check_count(one, results)
                    values += results
                except OperatorError:
                    raise
                except RAISED as exc:
                    settle_result(self, exc, batch, index, values, skipped)
            if not skipped and isinstance(self.on_error, Fail):
                # No value alone fails: the job would fail on this batch for an unknown reason.
                values.clear()
                raise OperatorError.of(self.name, cause) from cause
        finally:
            if values:
                done = len(values) + len(skipped)
                times, _ = columns_of(batch, done, skipped)
                self.output.emit(Batch(values, times, None, watermarks_of(batch, done, skipped)))

    def _check_count(self, batch: Batch[Any], results: Sequence[Any]) -> None:
        if len(results) != len(batch):
            raise OperatorError(
                f"step {self.name!r}: the function of map_batch got {len(batch)} values and returned {len(results)}; "
                f"it must return one result for each value, in order. First value: {shown(batch.values[0])}",
                operator=self.name,
            )


def _raise(cause: Exception) -> list[Any]:
    raise cause


class FilterOperator(Operator):
    """Emits the records for which ``keep(value)`` is true."""

    def __init__(self, keep: Callable[[Any], object]) -> None:
        #: A ``FirstCall`` until the first record has passed.
        self.function: Callable[[Any], object] = FirstCall(self, "function", keep, "filter()")

    def process(self, batch: Batch[Any]) -> None:
        if batch.timestamps is None and batch.keys is None:
            self._filter_values(batch)
        else:
            self._filter_columns(batch)

    def _filter_values(self, batch: Batch[Any]) -> None:
        # Hot path (benchmark `stateless`).
        keep = self.function
        values: list[Any] = []
        left = iter(batch.values)
        try:
            while True:
                try:
                    for value in left:
                        if keep(value):
                            values.append(value)  # noqa: PERF401 - keeps results before an error
                    break
                except RAISED as exc:
                    index = self.index_of(batch, left)
                    if self.settle_kept(exc, batch, index):
                        values.append(batch.values[index])
        finally:
            if values:
                self.output.emit(Batch(values))

    def _filter_columns(self, batch: Batch[Any]) -> None:
        keep = self.function
        chosen: list[bool] = []
        left = iter(batch.values)
        try:
            while True:
                try:
                    for value in left:
                        chosen.append(bool(keep(value)))  # noqa: PERF401 - keeps results before an error
                    break
                except RAISED as exc:
                    chosen.append(self.settle_kept(exc, batch, self.index_of(batch, left)))
        finally:
            kept = _selected(batch, chosen)
            if kept.values:
                self.output.emit(kept)

    def settle_kept(self, cause: BaseException, batch: Batch[Any], index: int) -> bool:
        """Apply ``on_error`` to record ``index``, and return True if its ``Fallback`` keeps the record.

        Raises ``OperatorError`` as ``settle`` does, and if the replacement is neither true nor false.
        """
        replaced = self.settle(cause, batch, index)
        try:
            return any(replaced)
        except RAISED as exc:
            raise self.failure_at(exc, batch, index) from exc


def _selected(batch: Batch[Any], chosen: Sequence[object]) -> Batch[Any]:
    times, keys, met = batch.timestamps, batch.keys, batch.watermarks
    return Batch(
        list(compress(batch.values, chosen)),
        None if times is None else list(compress(times, chosen)),
        None if keys is None else list(compress(keys, chosen)),
        None if met is None else list(compress(met, chosen)),
    )


class FlatMapOperator(Operator):
    """Replace each value by all values of ``fn(value)``, in order, with its timestamp and key."""

    def __init__(self, fn: Callable[[Any], Iterable[Any]]) -> None:
        self._fn: Callable[[Any], Iterable[Any]] = FirstCall(self, "_fn", fn, "flat_map()")

    def process(self, batch: Batch[Any]) -> None:
        fn = self._fn
        values: list[Any] = []
        counts: list[int] = []
        left = iter(batch.values)
        try:
            while True:
                try:
                    for value in left:
                        # A list for each record: one that fails while it is iterated over emits nothing.
                        many = list(fn(value))
                        counts.append(len(many))
                        values += many
                    break
                except RAISED as exc:
                    counts.append(self._settle(exc, batch, self.index_of(batch, left), values))
        finally:
            if values:
                times, keys = _repeated(batch.timestamps, counts), _repeated(batch.keys, counts)
                met = _repeated(batch.watermarks, counts)
                self.output.emit(Batch(values, times, keys, met))

    def _settle(
        self, cause: BaseException, batch: Batch[Any], index: int, values: list[Any]
    ) -> int:
        """Apply ``on_error`` to a record, and return the number of values added in place of its results."""
        before = len(values)
        for replaced in self.settle(cause, batch, index):
            try:
                values += list(iterable(replaced))
            except RAISED as exc:
                raise self.failure_at(exc, batch, index) from exc
        return len(values) - before


def _repeated(column: Sequence[C] | None, counts: Sequence[int]) -> list[C] | None:
    """Return ``column`` with each entry as often as its record has results; ``counts`` may end before the column."""
    if column is None:
        return None
    return [entry for entry, count in zip(column, counts, strict=False) for _ in range(count)]


class KeyByOperator(Operator):
    """Adds the column ``keys``; values and timestamps are kept."""

    def __init__(self, key: Callable[[Any], Hashable]) -> None:
        self._key: Callable[[Any], Hashable] = FirstCall(self, "_key", key, "key_by()")

    def process(self, batch: Batch[Any]) -> None:
        # Hot path (benchmark `keyed_window`).
        keys: list[Hashable] = []
        skipped: list[int] = []
        try:
            append_results(self, self._key, batch, keys, skipped)
        finally:
            if keys:
                done = len(keys) + len(skipped)
                times, _ = columns_of(batch, done, skipped)
                values = part_of(batch.values, done, skipped)
                met = watermarks_of(batch, done, skipped)
                self.output.emit(Batch(values, times, keys, met))


def append_results(
    step: Operator,
    fn: Callable[[Any], Any],
    batch: Batch[Any],
    results: list[Any],
    skipped: list[int],
) -> None:
    """Append ``fn(value)`` for each value of ``batch`` to ``results``; add indexes of dropped records to ``skipped``.

    Raises ``OperatorError`` as ``Operator.settle`` does; then ``results`` has those of the preceding records.
    """
    # Hot path (benchmarks `stateless`, `keyed_window`): on Python 3.11 `append` costs 2 ns a record more than a
    # comprehension, which would lose the results before a failed record.
    left = iter(batch.values)
    while True:
        try:
            for value in left:
                results.append(fn(value))  # noqa: PERF401 - keeps results before an error
            return
        except RAISED as exc:
            settle_result(step, exc, batch, step.index_of(batch, left), results, skipped)


def settle_result(
    step: Operator,
    cause: BaseException,
    batch: Batch[Any],
    index: int,
    results: list[Any],
    skipped: list[int],
) -> None:
    """Append the replacement of the result of record ``index`` to ``results``, or ``index`` to ``skipped``.

    Raises ``OperatorError`` as ``Operator.settle`` does.
    """
    replaced = step.settle(cause, batch, index)
    results += replaced
    if not replaced:
        skipped.append(index)


def columns_of(
    batch: Batch[Any], done: int, skipped: Sequence[int]
) -> tuple[list[Timestamp] | None, Sequence[Hashable] | None]:
    """Return timestamps and keys of the first ``done`` records of ``batch`` without those at ``skipped``."""
    times, keys = batch.timestamps, batch.keys
    return (
        None if times is None else part_of(times, done, skipped),
        None if keys is None else part_of(keys, done, skipped),
    )


def watermarks_of(batch: Batch[Any], done: int, skipped: Sequence[int]) -> list[Timestamp] | None:
    """Return the watermarks that the first ``done`` records of ``batch`` meet, without those at ``skipped``."""
    met = batch.watermarks
    return None if met is None else part_of(met, done, skipped)


def part_of(column: Sequence[C], done: int, skipped: Sequence[int]) -> list[C]:
    """Return the first ``done`` entries of ``column`` without those at ``skipped``."""
    if done == len(column) and not skipped:
        return column if isinstance(column, list) else list(column)
    without = set(skipped)
    return [entry for index, entry in enumerate(column[:done]) if index not in without]


class PassThroughOperator(Operator):
    """Emits its input: a union, whose inputs the gate of the task reads."""

    def process(self, batch: Batch[Any]) -> None:
        self.output.emit(batch)
