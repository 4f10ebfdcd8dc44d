"""A sink that calls a function of the user."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from inspect import isawaitable, iscoroutine
from typing import Generic, TypeVar

from aflow.connect import Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError, OperatorError, shown
from aflow.model.batch import Batch
from aflow.operators.base import RAISED
from aflow.runtime.cancellation import asked_to_end

T = TypeVar("T")


class CallbackSink(Sink[T], Generic[T]):
    """Calls ``fn`` with each value, in order; an awaitable result is awaited, any other result is ignored.

    One call at a time in each subtask: while an ``async def`` function waits, the pipeline has backpressure. A plain
    function blocks the event loop, so it should be quick. An exception in it stops the job as an ``OperatorError`` that
    names step and record, also a ``CancelledError`` of its own. A call that swallows the cancellation of the job is the
    last one nevertheless.
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
        #: The awaitable result of ``fn`` until it is awaited.
        self._unawaited: object = None

    def write(self, batch: Batch[T]) -> Awaitable[None] | None:
        fn = self._fn
        for index, value in enumerate(batch.values):
            try:
                result = fn(value)
            except RAISED as exc:
                raise self._failed(exc, batch, index) from exc
            if result is not None and isawaitable(result):
                self._unawaited = result
                return self._go_on(result, batch, index)
        return None

    async def _go_on(self, result: object, batch: Batch[T], index: int) -> None:
        """Await the ``result`` of record ``index``, then call and await for the following records."""
        self._unawaited = None
        while True:
            try:
                if isawaitable(result):
                    await result
                    if asked_to_end():  # and the function has swallowed the cancellation
                        raise CancelledError
                index += 1
                if index == len(batch):
                    return
                result = self._fn(batch.values[index])
            except CancelledError as exc:
                if asked_to_end():
                    raise
                raise self._failed(exc, batch, index) from exc
            except Exception as exc:
                raise self._failed(exc, batch, index) from exc

    async def close(self) -> None:
        """Close a coroutine that was not awaited because the job has ended."""
        if iscoroutine(self._unawaited):
            self._unawaited.close()

    def _failed(self, cause: BaseException, batch: Batch[T], index: int) -> OperatorError:
        timestamp = None if batch.timestamps is None else batch.timestamps[index]
        return OperatorError.of(self._step, cause, record=batch.values[index], timestamp=timestamp)
