"""A step written as a class, with access to time and side outputs, without keys."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from inspect import isasyncgenfunction, iscoroutinefunction
from itertools import islice, repeat
from operator import length_hint
from typing import Any, ClassVar, Final, Generic, TypeVar

from aflow.errors import FlowDefinitionError, InternalError, OperatorError, described, shown
from aflow.model.batch import Batch
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.base import RAISED, Operator, OperatorContext
from aflow.operators.context import ProcessContext
from aflow.operators.handler_results import TAKEN, iterable
from aflow.operators.record_watermarks import EventTimers, ResultColumns, interval_end
from aflow.operators.side_outputs import SideOutputs

T = TypeVar("T")
U = TypeVar("U")
F = TypeVar("F", bound="LifeCycle")

#: Keys of records that are announced again after a firing, at least.
_TOUCHED: Final = 8


class LifeCycle(ABC):  # noqa: B024 - abstract in what its two children add
    """The life cycle that all process functions share.

    Each subtask uses a shallow copy of the object of the flow: attributes assigned in ``open`` belong to one subtask,
    those of ``__init__`` are shared by all.
    """

    #: The call that precedes ``.process(…)`` for functions of this kind, for messages.
    preceding_call: ClassVar[str] = ""

    def open(self) -> None:
        """Prepare, for instance load a table; called once in each subtask before the first record."""
        return None

    def close(self) -> None:
        """Clean up: called once if ``open`` had succeeded, also after a failure. Nothing by default."""
        return None


class ProcessFunction(LifeCycle, Generic[T, U]):
    """Subclass it to process records one by one, with their time and side outputs; see ``KeyedProcess`` for state."""

    @abstractmethod
    def process(self, value: T, ctx: ProcessContext) -> Iterable[U] | None:
        """Return the results for ``value``: a list, a tuple, a generator (run at once) or None.

        Results have the timestamp of the record.
        """


def check_process_function(function: object) -> None:
    """Check a ``ProcessFunction``. Raises ``FlowDefinitionError`` for anything else."""
    check_kind(function, ProcessFunction, handlers=("process", "open", "close"))


def check_kind(function: object, kind: type[LifeCycle], *, handlers: Iterable[str]) -> None:
    """Raise ``FlowDefinitionError`` for a class, an object of another kind, and an async handler."""
    needed = f"{'an' if kind.__name__.startswith('A') else 'a'} {kind.__name__}"
    if isinstance(function, type):
        raise FlowDefinitionError(
            f"{needed} object is needed, not its class; write {function.__name__}()"
        )
    if not isinstance(function, kind):
        call = function.preceding_call if isinstance(function, LifeCycle) else ""
        other = f", or call {call} before .process(…) to use this one" if call else ""
        hint = f"subclass {kind.__name__}{other}"
        raise FlowDefinitionError(f"{needed} is needed, not {shown(function)}; {hint}")
    for name in handlers:
        handler = getattr(function, name)
        if iscoroutinefunction(handler) or isasyncgenfunction(handler):
            raise FlowDefinitionError(
                f"{type(function).__name__}.{name} is a coroutine function, which this step does not await; make it "
                f"a plain method, or subclass AsyncKeyedProcess and call .key_by(…).process_async(…)"
            )


class ProcessFunctionOperator(Operator, Generic[F]):
    """The base of operators of process functions: the copy of the subtask, its life cycle, side outputs."""

    def __init__(self, function: F) -> None:
        self._function = copy.copy(function)
        self._opened = False
        #: The watermark that the last record has met, or the last one that was received if it is greater.
        self._reached: Timestamp = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        """Open the function. Raises ``OperatorError`` if that fails."""
        super().open(context)
        self._sides = SideOutputs(context.name)
        try:
            self._function.open()
        except RAISED as exc:
            raise self._failed("open()", exc) from exc
        self._opened = True

    def close(self) -> None:
        """Close the function. Raises ``OperatorError`` if that fails."""
        if not self._opened:
            return
        self._opened = False
        try:
            self._function.close()
        except RAISED as exc:
            raise self._failed("close()", exc) from exc

    def _failed(self, where: str, cause: BaseException) -> OperatorError:
        return OperatorError(
            f"step {self.name!r} failed in {type(self._function).__name__}.{where}: {described(cause)}",
            operator=self.name,
        )

    def _handle_each(
        self,
        batch: Batch[Any],
        handle: Callable[[Any, Any], Iterable[Any] | None],
        ctx: ProcessContext,
    ) -> None:
        """Call ``handle`` for each record, without a key, and emit its results."""
        left = iter(batch.values)
        moments = repeat(None) if batch.timestamps is None else batch.timestamps
        records = zip(left, moments, strict=False)
        results = self._begin_results(batch, left)
        try:
            if batch.watermarks is None:
                self._handle_some(batch, handle, ctx, left, records, results)
            else:
                self._in_intervals(
                    batch.watermarks,
                    ctx,
                    left,
                    results,
                    lambda count: self._handle_some(
                        batch, handle, ctx, left, islice(records, count), results
                    ),
                )
        finally:
            ctx.reach(self._reached)
            self._emit_results(results, has_times=batch.timestamps is not None)

    def _handle_some(
        self,
        batch: Batch[Any],
        handle: Callable[[Any, Any], Iterable[Any] | None],
        ctx: ProcessContext,
        left: Iterator[Any],
        records: Iterator[tuple[Any, Any]],
        columns: ResultColumns,
    ) -> None:
        """Call ``handle`` for ``records`` of ``batch``, and append its results to ``columns``.

        ``left`` iterates over the values of the batch.
        """
        # Hot path: the timestamp of one context object is set, and results are appended to the output columns.
        values, timestamps = columns.values, columns.timestamps
        while True:
            try:
                for value, at in records:
                    ctx.timestamp = at
                    results = handle(value, ctx)
                    if results is not None:
                        values.extend(results if type(results) in TAKEN else iterable(results))
                        timestamps.extend([at] * (len(values) - len(timestamps)))
                        if columns.watermarks is not None:
                            self._carry(columns, batch, left)
                return
            except RAISED as exc:
                self._settle_handler(exc, batch, left, columns)

    def _begin_results(self, batch: Batch[Any], left: Iterator[Any]) -> ResultColumns:
        """Accept results of the records of ``batch``, over whose values ``left`` iterates."""
        carries = batch.watermarks is not None and self.context.carries_watermarks
        self._sides.begin(left, has_watermarks=carries)
        return ResultColumns(carry_watermarks=carries)

    def _carry(self, columns: ResultColumns, batch: Batch[Any], left: Iterator[Any]) -> None:
        """Let the new results of the last record of ``left`` carry the watermark that it has met."""
        carried, met = columns.watermarks, batch.watermarks
        if carried is not None and met is not None:
            at = max(met[-1 - length_hint(left)], self._reached)
            carried.extend([at] * (len(columns.values) - len(carried)))

    def _in_intervals(
        self,
        met: Sequence[Timestamp],
        ctx: ProcessContext,
        left: Iterator[Any],
        results: ResultColumns,
        handle_next: Callable[[int], None],
        keys: Sequence[Hashable] = (),
    ) -> None:
        """Handle records that meet the watermarks ``met``, and fire the timers that are due between them.

        ``handle_next(count)`` handles the next records, of which ``left`` iterates over the values. It stops after one
        that registers a timer which may be due before the others. ``keys`` are those of the records, if they have any.
        """
        start, handled, has_fired = 0, 0, False
        timers = self.event_timers()
        ctx.reach_each(self._reached, met, left)
        while start < len(met):
            stop = interval_end(met, start, self._reached, timers)
            if stop == start:
                ctx.reach(self._reached)
                self.advance_between_records(self._reached, met[start], results)
                self._sides.begin(left, has_watermarks=results.watermarks is not None)
                ctx.reach_each(self._reached, met, left)
                has_fired = True
                continue
            if has_fired and keys:
                # Timers of other keys have fired. Not all keys are needed if the interval turns out to be shorter.
                stop = min(stop, start + 2 * handled + _TOUCHED)
                self._touch_again(keys[start:stop])
            ctx.begin_interval(met[stop - 1])
            handle_next(stop - start)
            handled = len(met) - length_hint(left) - start
            start += handled
            self._reached = max(self._reached, met[start - 1])
        self.meet(self._reached)

    def _touch_again(self, keys: Sequence[Hashable]) -> None:
        """Announce ``keys`` to the backend of a step with state, which may have lost them."""

    def event_timers(self) -> EventTimers | None:
        """Return the event timers of the step; None if it has none."""
        return None

    def meet(self, watermark: Timestamp) -> None:
        """Set the watermark that the last record has met."""
        self._reached = watermark

    def advance_between_records(
        self, before: Timestamp, watermark: Timestamp, results: ResultColumns
    ) -> None:
        """Fire the timers that are due at ``watermark``; the preceding records have met ``before``.

        ``results`` are those of the preceding records that were not emitted yet.
        """
        raise InternalError(f"step {self.name!r} has no event timers")

    def _settle_handler(
        self,
        cause: BaseException,
        batch: Batch[Any],
        left: Iterator[object],
        columns: ResultColumns,
    ) -> None:
        """Remove the output of the handler that raised ``cause``, and apply ``on_error`` to its record.

        Raises ``OperatorError`` as ``settle`` does.
        """
        values, timestamps = columns.values, columns.timestamps
        del values[len(timestamps) :]  # results of a generator that failed later
        self._sides.retract()
        index = self.index_of(batch, left)
        at = None if batch.timestamps is None else batch.timestamps[index]
        for replaced in self.settle(cause, batch, index):
            try:
                values.extend(() if replaced is None else iterable(replaced))
            except RAISED as exc:
                raise self.failure_at(exc, batch, index) from exc
            timestamps.extend([at] * (len(values) - len(timestamps)))
            self._carry(columns, batch, left)

    def _emit_results(self, results: ResultColumns, *, has_times: bool = True) -> None:
        """Emit ``results`` and side outputs, and begin with none."""
        self._emit(results.values, results.timestamps if has_times else None, results.watermarks)
        results.clear()

    def _emit(
        self,
        values: list[Any],
        timestamps: list[Timestamp] | None,
        met: list[Timestamp] | None = None,
    ) -> None:
        if values:
            self.output.emit(Batch(values, timestamps, None, met))
        self._sides.emit(self.output)


class ProcessOperator(ProcessFunctionOperator[ProcessFunction[Any, Any]]):
    """Runs a ``ProcessFunction`` on each record."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._ctx = ProcessContext(clock=context.clock, sides=self._sides)

    def process(self, batch: Batch[Any]) -> None:
        self._handle_each(batch, self._function.process, self._ctx)

    def meet(self, watermark: Timestamp) -> None:
        super().meet(watermark)
        self._ctx.reach(watermark)

    def on_watermark(self, timestamp: Timestamp) -> None:
        self.meet(timestamp)
        super().on_watermark(timestamp)
