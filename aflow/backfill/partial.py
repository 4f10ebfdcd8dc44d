"""Partial aggregation of windows: each task upstream of the exchange aggregates its records, and the step downstream
merges.

If the accumulators of a window can be merged in any order, no records need to cross the exchange: a task sends one
accumulator for each key and window. Databases call this partial aggregation, stream processors local and global
aggregation. The downstream step is the live one, with the same state; but its ``add`` is ``merge``.

It applies to tumbling windows, and to sliding ones whose slide divides their size, in event time, with the default
trigger and a ``commutative`` aggregate. Others depend on the order of records. All records of an accumulator are in the
same windows, so they are late together; but a late stream needs the records themselves, and allowed lateness a result
for each of them. Over history none is late. In a stream the planner leaves such windows as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from aflow.backfill.exit_writer import without_time
from aflow.errors import InternalError
from aflow.graph.nodes import Edge, Kind, Node
from aflow.machines.calls.on_error import Fail
from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows, WindowAssigner
from aflow.model.batch import BATCH_RECORDS, Batch
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, Operator
from aflow.operators.windows.factory import is_incremental, window_operator
from aflow.operators.windows.incremental_windows import fold_by_time
from aflow.operators.windows.logic import WindowLogic

#: Maximum number of accumulators in a task. Each may have some hundred bytes.
_HELD: Final = 65_536
#: Maximum number of records folded into them, whose accumulators may have grown.
_FOLDED: Final = 1_000_000

#: Minimum number of records per accumulator for which aggregating upstream of the exchange pays off.
_MIN_RATIO: Final = 2
#: If it did not, it is tried again after this multiple of the records.
_RETRY_AFTER: Final = 16


def merging_step(head: Node) -> Node:
    """Return the step, reading accumulators, if its windows can be aggregated in parts; other steps unchanged."""
    found = _parts_of(head)
    if found is None:
        return head
    logic = replace(found.logic, accumulation=_merging(found.accumulation))
    return replace(head, operator=lambda: window_operator(logic))


def partial_step(head: Node, edge: Edge, *, id: int, name: str) -> Node | None:
    """Return the step upstream of the exchange by ``edge``; None if the windows of ``head`` need all records."""
    found = _parts_of(head)
    if found is None:
        return None
    part, accumulation = found.part, found.accumulation
    return Node(
        id=id,
        name=name,
        kind=Kind.STEP,
        what="window.partial",
        inputs=(edge,),
        operator=lambda: PartialWindowOperator(part, accumulation),
        has_time=True,
        detail=f"merged by {head.name}",
    )


@dataclass(frozen=True, slots=True)
class _PartialAggregation:
    """Partial aggregation of the windows of a step."""

    logic: WindowLogic
    accumulation: Accumulation
    part: TumblingWindows
    """Records in one of these windows are in the same windows of the step."""


def _parts_of(head: Node) -> _PartialAggregation | None:
    logic = head.windows
    if logic is None or len(head.inputs) != 1:
        return None
    accumulation = logic.accumulation
    if accumulation is None or not accumulation.commutative or not is_incremental(logic):
        return None
    if not isinstance(logic.on_error, Fail):  # a dead letter belongs to the step itself
        return None
    part = _part(logic.assigner)
    return None if part is None else _PartialAggregation(logic, accumulation, part)


def _part(assigner: WindowAssigner[Any]) -> TumblingWindows | None:
    match assigner:
        case TumblingWindows():
            return assigner
        case SlidingWindows(size, slide, offset) if slide < size and size % slide == 0:
            return TumblingWindows(slide, offset)
        case _:
            return None


def _merging(accumulation: Accumulation) -> Accumulation:
    merge = accumulation.merge
    assert merge is not None  # else there are no parts
    return replace(accumulation, first=_identity, add=merge, number_of=None)


def _identity(part: Any) -> Any:
    return part


class PartialWindowOperator(Operator):
    """Folds records by key and part of time; emits the accumulators when there are many, and at the end.

    An accumulator gets the time at which its part begins. If there are hardly two records per accumulator, none are
    held for a while, and one is emitted for each record.
    """

    def __init__(
        self, part: TumblingWindows, accumulation: Accumulation, *, held: int = _HELD
    ) -> None:
        self._start_of = part.start_of
        self._size = part.size
        self._accumulation = accumulation
        self._max_held = held
        #: Accumulators by part of time and key.
        self._parts: dict[Timestamp, dict[Hashable, Any]] = {}
        #: Records since the accumulators were last emitted.
        self._records = 0
        #: Records that are still to be emitted unaggregated, each as an accumulator.
        self._passing = 0

    def process(self, batch: Batch[Any]) -> None:
        keys, times = batch.keys, batch.timestamps
        if keys is None:
            raise InternalError(f"step {self.name!r} got a batch without keys")
        if times is None:
            raise without_time(self.name, batch.values[0])
        if self._passing > 0:
            self._passing -= len(batch)
            self._pass_on(batch, keys, times)
            return
        fold_by_time(self._contents, self._part_at, batch, keys, times, self._accumulation, self)
        self._records += len(batch)
        held = sum(map(len, self._parts.values()))
        if held >= self._max_held or self._records >= _FOLDED:
            if held * _MIN_RATIO > self._records:
                self._passing = self._records * _RETRY_AFTER
            self._send()

    def end_input(self) -> None:
        self._send()

    def _part_at(self, time: Timestamp) -> tuple[Timestamp, Timestamp]:
        start = self._start_of(time)
        return start, start + self._size

    def _contents(self, start: Timestamp) -> dict[Hashable, Any]:
        return self._parts.setdefault(start, {})

    def _pass_on(
        self, batch: Batch[Any], keys: Sequence[Hashable], times: Iterable[Timestamp]
    ) -> None:
        left = iter(batch.values)
        try:
            values = list(map(self._accumulation.first, left))
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        self.output.emit(Batch(values, list(map(self._time_of, times)), keys))

    def _send(self) -> None:
        for start in sorted(self._parts):
            contents = self._parts.pop(start)
            keys, values = list(contents), list(contents.values())
            at = max(start, MIN_TIMESTAMP)
            for begin in range(0, len(keys), BATCH_RECORDS):
                some = values[begin : begin + BATCH_RECORDS]
                chosen = keys[begin : begin + BATCH_RECORDS]
                self.output.emit(Batch(some, [at] * len(some), chosen))
        self._records = 0

    def _time_of(self, time: Timestamp) -> Timestamp:
        return max(self._start_of(time), MIN_TIMESTAMP)
