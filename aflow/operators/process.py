"""A step written as a class, with access to time and side outputs, without keys."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from inspect import isasyncgenfunction, iscoroutinefunction
from itertools import repeat
from typing import Any, ClassVar, Generic, TypeVar

from aflow.errors import FlowDefinitionError, InternalError, OperatorError, described, shown
from aflow.model.batch import Batch
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.base import RAISED, Operator, OperatorContext
from aflow.operators.context import ProcessContext
from aflow.operators.handler_results import TAKEN, iterable
from aflow.operators.record_watermarks import EventTimers, RecordWatermarks
from aflow.operators.side_outputs import SideOutputs

T = TypeVar("T")
U = TypeVar("U")
F = TypeVar("F", bound="LifeCycle")


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
        if batch.watermarks is None:
            self._handle_some(batch, handle, ctx, left, records)
            return
        watermarks = RecordWatermarks(
            self,
            batch,
            records,
            self._reached,
            timers=self.event_timers(),
            carries=self.context.carries_watermarks,
        )
        while not watermarks.is_over:
            self._handle_some(batch, handle, ctx, left, records, watermarks)
            watermarks.advance()

    def _handle_some(
        self,
        batch: Batch[Any],
        handle: Callable[[Any, Any], Iterable[Any] | None],
        ctx: ProcessContext,
        left: Iterator[Any],
        records: Iterator[tuple[Any, Any]],
        watermarks: RecordWatermarks[tuple[Any, Any]] | None = None,
    ) -> None:
        """Call ``handle`` for all ``records`` of ``batch``, or for those of the next stretch of ``watermarks``.

        ``left`` iterates over the values of ``records``.
        """
        # Hot path: the timestamp of one context object is set, and results are appended to the output columns.
        values: list[Any] = []
        timestamps: list[Any] = []
        met: list[Timestamp] = []
        if watermarks is not None:
            records = watermarks.stretch(ctx, values, met)
        self._sides.begin(left, has_watermarks=watermarks is not None)
        try:
            while True:
                try:
                    for value, at in records:
                        ctx.timestamp = at
                        results = handle(value, ctx)
                        if results is not None:
                            values.extend(results if type(results) in TAKEN else iterable(results))
                            timestamps.extend([at] * (len(values) - len(timestamps)))
                    break
                except RAISED as exc:
                    self._settle_handler(exc, batch, left, values, timestamps)
        finally:
            self._emit(
                values,
                None if batch.timestamps is None else timestamps,
                None if watermarks is None else watermarks.filled(values, met),
            )

    # As a ``WatermarkReader``.

    def event_timers(self) -> EventTimers | None:
        """Return the event timers of the step; None if it has none."""
        return None

    def meet(self, watermark: Timestamp) -> None:
        self._reached = watermark

    def advance_between_records(self, before: Timestamp, watermark: Timestamp) -> None:
        raise InternalError(f"step {self.name!r} has no event timers")

    def _settle_handler(
        self,
        cause: BaseException,
        batch: Batch[Any],
        left: Iterator[object],
        values: list[Any],
        timestamps: list[Any],
    ) -> None:
        """Remove the output of the handler that raised ``cause``, and apply ``on_error`` to its record.

        Raises ``OperatorError`` as ``settle`` does.
        """
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
        self._ctx.watermark = watermark

    def on_watermark(self, timestamp: Timestamp) -> None:
        self.meet(timestamp)
        super().on_watermark(timestamp)
