"""Results into a list."""

from __future__ import annotations

from itertools import repeat
from typing import Generic, TypeVar

from aflow.connect import Sink, Writer, WriterContext
from aflow.model.batch import Batch
from aflow.model.time import Timestamp

T = TypeVar("T")


class CollectSink(Sink[T], Generic[T]):
    """Keeps everything in memory: ``values``, and ``timestamps`` (epoch ms, or None) in the same order.

    Subtasks share the lists, so with a parallelism above one only the order within a subtask is that of the pipeline.
    A second job appends to what the first one left.
    """

    def __init__(self) -> None:
        self.values: list[T] = []
        self.timestamps: list[Timestamp | None] = []

    async def writer(self, context: WriterContext) -> Writer[T]:
        return _CollectWriter(self)


class _CollectWriter(Writer[T]):
    def __init__(self, sink: CollectSink[T]) -> None:
        self._values = sink.values
        self._timestamps = sink.timestamps

    def write(self, batch: Batch[T]) -> None:
        self._values.extend(batch.values)
        self._timestamps.extend(
            repeat(None, len(batch)) if batch.timestamps is None else batch.timestamps
        )
