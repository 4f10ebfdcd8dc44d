"""Results into a function of the user's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Generic, TypeVar

from aflow.connect import Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError, OperatorError, shown
from aflow.model.batch import Batch

T = TypeVar("T")


class CallbackSink(Sink[T], Generic[T]):
    """Calls ``fn`` with each value, in order; what it returns is awaited if that is possible, and otherwise ignored.

    One call at a time in each subtask: while an ``async def`` function waits, the pipeline is slowed down. A plain
    function holds up the event loop, so it should be quick. An exception in it stops the job as an ``OperatorError``
    that names step and record.
    """

    def __init__(self, fn: Callable[[T], object]) -> None:
        if not callable(fn):
            raise FlowDefinitionError(
                f"CallbackSink needs a function that takes one value, not {shown(fn)}"
            )
        self._fn = fn

    async def writer(self, context: WriterContext) -> Writer[T]:
        return _CallbackWriter(self._fn, context.name)


class _CallbackWriter(Writer[T]):
    def __init__(self, fn: Callable[[T], object], step: str) -> None:
        self._fn = fn
        self._step = step

    def write(self, batch: Batch[T]) -> Awaitable[None] | None:
        fn = self._fn
        for index, value in enumerate(batch.values):
            try:
                result = fn(value)
            except Exception as exc:
                raise self._failed(exc, batch, index) from exc
            if result is not None and isawaitable(result):
                return self._go_on(result, batch, index)
        return None

    async def _go_on(self, result: object, batch: Batch[T], index: int) -> None:
        """Await the ``result`` of record ``index``, then do the same for all that follow."""
        while True:
            try:
                if isawaitable(result):
                    await result
                index += 1
                if index == len(batch):
                    return
                result = self._fn(batch.values[index])
            except Exception as exc:
                raise self._failed(exc, batch, index) from exc

    def _failed(self, cause: Exception, batch: Batch[T], index: int) -> OperatorError:
        timestamp = None if batch.timestamps is None else batch.timestamps[index]
        return OperatorError.of(self._step, cause, record=batch.values[index], timestamp=timestamp)
