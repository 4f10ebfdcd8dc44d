"""Two streams in the same windows: the records of both at once (co-group), or all pairs of them (window join).

Theory. The records of both inputs are added to the same windows of their key, which are those of a window step: any
assigner, trigger and evictor, allowed lateness, windows that merge. Both inputs share one window: its trigger is called
for each record of either input, and a count trigger counts both. At a firing the function gets two lists.

A window that fires again emits *all* its results again, corrected: a refinement after a late record, or an early
firing, repeats the pairs of the preceding firing. To emit each pair once, purge (``Purging(…)``), or allow neither
lateness nor early firings; a ``Windowed`` has the number of its firing.

Records are not marked with their input: assigners, triggers, evictors and side outputs get them unchanged. Instead the
operator sets the input before each batch. Only the elements for an evictor have their input: it gets the records of
both inputs together, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aflow.errors import FlowDefinitionError, OperatorError, shown
from aflow.machines.calls.on_error import Fail
from aflow.machines.windows.evictors import EvictorContext
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, OperatorContext, TwoInputOperator, is_of_record
from aflow.operators.first_call import FirstCall
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT, Join, JoinFunction
from aflow.operators.windows.arrival_order import ArrivalOrder, Arrivals, ArrivalsCodec
from aflow.operators.windows.factory import check_logic
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.window_contents import (
    EMPTY,
    EvictedContents,
    KeyWindow,
    OnContents,
    WindowContents,
    WindowElement,
)
from aflow.operators.windows.window_operator import WindowOperator
from aflow.state.defensive_copies import reader_copy
from aflow.state.layouts import Many, state_codec

RecordLists = tuple[list[Any], list[Any]]
"""The left records of a window and the right ones, in the order of arrival."""


class TwoListContents(WindowContents):
    """The records of each input in the order of arrival; the value is a pair of new lists."""

    kind = "records of two inputs"

    def __init__(self, layouts: Sequence[Many[Any]]) -> None:
        self._order = ArrivalOrder()
        self._codecs = [ArrivalsCodec(self._order, layout) for layout in layouts]

    def add(self, held: Any, value: Any, _timestamp: Timestamp, /) -> Any:
        if held is EMPTY:
            held = (Arrivals(), Arrivals())
        self._order.add(held[self.side], value)
        return held

    def merge(self, held: Any, other: Any) -> Any:
        for mine, others in zip(held, other, strict=True):
            self._order.merge(mine, others)
        return held

    def fire(
        self, one: KeyWindow, on_contents: OnContents, ctx: EvictorContext, *, last: bool
    ) -> None:
        lefts, rights = one.held
        on_contents((lefts.records.copy(), rights.records.copy()))

    def seen(self, held: Any) -> RecordLists:
        lefts, rights = held
        return reader_copy(lefts.records), reader_copy(rights.records)

    def encode(self, held: Any) -> bytes:
        parts = zip(self._codecs, held, strict=True)
        return PLAIN.encode([codec.encode(arrivals) for codec, arrivals in parts])

    def decode(self, data: bytes) -> Any:
        match PLAIN.decode(data):
            case [bytes(lefts), bytes(rights)]:
                return tuple(map(ArrivalsCodec.decode, self._codecs, (lefts, rights)))
            case _:
                raise CodecError(f"{len(data)} stored bytes are not {self.kind}")


def _lists_of(elements: list[WindowElement]) -> RecordLists:
    lists: RecordLists = ([], [])
    for element in elements:
        lists[element.side].append(element.value)
    return lists


class TwoInputWindowOperator(WindowOperator, TwoInputOperator):
    """A window step with two inputs; its function, or ``apply``, gets both lists of records as a pair.

    Raises ``FlowDefinitionError`` as ``check_logic`` does.
    """

    def __init__(
        self, logic: WindowLogic, *, left_type: type[Any] | None, right_type: type[Any] | None
    ) -> None:
        check_logic(logic)
        super().__init__(logic)
        layouts = [Many(state_codec(left_type)), Many(state_codec(right_type))]
        self._contents = (
            TwoListContents(layouts)
            if logic.evictor is None
            else EvictedContents(
                logic.evictor, layouts, _lists_of, "records of two inputs with timestamps"
            )
        )

    def process_left(self, batch: Batch[Any]) -> None:
        self._contents.side = 0
        self.process(batch)

    def process_right(self, batch: Batch[Any]) -> None:
        self._contents.side = 1
        self.process(batch)

    def _emit_late(self, batch: Batch[Any], late: list[int]) -> None:
        self.emit_side((LATE_LEFT, LATE_RIGHT)[self._contents.side], batch, late)


class CoGroupOperator(TwoInputWindowOperator):
    """Emit ``Windowed(key, window, into(lefts, rights), firing)`` for each firing; one of the lists may be empty.

    ``logic`` has no function of its own. ``left_type`` and ``right_type`` are the types of the records, which snapshots
    need unless they are plain Python values. Late records are emitted to ``LATE_LEFT`` and ``LATE_RIGHT``.
    """

    def __init__(
        self,
        logic: WindowLogic,
        into: Callable[[list[Any], list[Any]], Any],
        *,
        left_type: type[Any] | None = None,
        right_type: type[Any] | None = None,
    ) -> None:
        _check_no_function(logic)

        def apply(both: Any) -> Any:
            return into(*both)

        super().__init__(replace(logic, apply=apply), left_type=left_type, right_type=right_type)


class WindowJoinOperator(TwoInputWindowOperator):
    """Emit ``into(left, right)`` for each pair of records of one key in one window, with its last timestamp.

    With an outer ``kind`` also emit ``into(left, None)``, or ``into(None, right)``, for windows in which the other
    input has no record. Otherwise as ``CoGroupOperator``.
    """

    def __init__(
        self,
        logic: WindowLogic,
        into: JoinFunction,
        *,
        kind: Join = Join.INNER,
        left_type: type[Any] | None = None,
        right_type: type[Any] | None = None,
    ) -> None:
        _check_no_function(logic)
        pairs = _Pairs(into, kind)
        super().__init__(replace(logic, function=pairs), left_type=left_type, right_type=right_type)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        assert isinstance(self._function, _Pairs)
        self._function.settle = self._settle_pair

    def _settle_pair(
        self, cause: BaseException, left: object, right: object, ctx: WindowContext[Any]
    ) -> list[Any]:
        """Apply ``on_error`` to a pair. Raises ``cause`` if no policy applies: the caller describes it."""
        if isinstance(self.on_error, Fail) or not is_of_record(cause):
            raise cause
        pair, at = (left, right), ctx.window.max_timestamp
        error = OperatorError.of(self.name, cause, record=pair, key=ctx.key, timestamp=at)
        return self.settle_record(cause, error, pair, at)

    def _record_failure(
        self, cause: BaseException, batch: Batch[Any], index: int, one: KeyWindow | None
    ) -> OperatorError:
        return self._with_records(super()._record_failure(cause, batch, index, one))

    def _timer_failure(
        self, cause: BaseException, timer: str, at: Timestamp, one: KeyWindow
    ) -> OperatorError:
        return self._with_records(super()._timer_failure(cause, timer, at, one))

    def _with_records(self, error: OperatorError) -> OperatorError:
        """Return ``error`` with both records, if the function failed on them."""
        function = self._function
        if not isinstance(function, _Pairs) or function.failed is None:
            return error
        left, right = failed = function.failed
        return OperatorError(
            f"{error}; left record {shown(left)}, right record {shown(right)}",
            operator=error.operator,
            record=failed,
            key=error.key,
            timestamp=error.timestamp,
        )


class _Pairs(WindowFunction[Any, RecordLists, Any]):
    """Join each left record to each right one; with an outer ``kind``, the records of one input alone to None."""

    #: The pair on which the function failed.
    failed: tuple[Any, Any] | None = None
    #: Returns the replacement of the result for a pair on which the function raised, if any.
    settle: Callable[[BaseException, Any, Any, WindowContext[Any]], list[Any]]

    def __init__(self, into: JoinFunction, kind: Join) -> None:
        self._into = into
        self._kind = kind

    def open(self) -> None:
        # Not in ``__init__``: each subtask has its own copy, whose attribute is replaced.
        self._into = FirstCall(self, "_into", self._into, "a join")

    def process(self, value: RecordLists, ctx: WindowContext[Any]) -> list[Any]:
        lefts, rights = value
        into = self._into
        if not rights and self._kind.keeps_left:
            rights = [None]
        elif not lefts and self._kind.keeps_right:
            lefts = [None]
        results: list[Any] = []
        for left in lefts:
            for right in rights:
                try:
                    results.append(into(left, right))
                except RAISED as exc:
                    self.failed = left, right
                    results += self.settle(exc, left, right, ctx)
                    self.failed = None
        return results


def _check_no_function(logic: WindowLogic) -> None:
    """Raise ``FlowDefinitionError`` for a logic that has a function of its own."""
    if logic.accumulation or logic.function or logic.apply or logic.of:
        raise FlowDefinitionError(
            "a join of windows has a function of its own and a type for each input; "
            "give its logic neither accumulation, function, apply nor of"
        )
