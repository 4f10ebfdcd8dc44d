"""Flows with a step of two inputs, put together below the fluent API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aflow as af
from aflow.api.keyed import KeyedStream
from aflow.api.stream import Stream
from aflow.graph.nodes import Broadcast, Edge, Forward, HashByKey, Node, Partitioning
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import TwoInputOperator


class Both(TwoInputOperator):
    """Emits each record with its input and the subtask: ``("left", 1, 0)``."""

    def process_left(self, batch: Batch[Any]) -> None:
        self._emit("left", batch)

    def process_right(self, batch: Batch[Any]) -> None:
        self._emit("right", batch)

    def _emit(self, side: str, batch: Batch[Any]) -> None:
        subtask = self.context.subtask
        values = [(side, value, subtask) for value in batch.values]
        self.output.emit(Batch(values, batch.timestamps))


class Clock(TwoInputOperator):
    """Emits each watermark as a record, before the watermark."""

    def process_left(self, batch: Batch[Any]) -> None:
        pass

    def process_right(self, batch: Batch[Any]) -> None:
        pass

    def on_watermark(self, timestamp: Timestamp) -> None:
        self.output.emit(Batch([timestamp]))
        super().on_watermark(timestamp)


def last(flow: af.Flow) -> Node:
    """Return the last node of the graph."""
    return flow.graph.nodes[-1]


def connect(
    flow: af.Flow,
    left: Stream[Any] | KeyedStream[Any, Any],
    right: Stream[Any] | KeyedStream[Any, Any],
    operator: Callable[[], TwoInputOperator],
    *,
    by: tuple[Partitioning, Partitioning] | None = None,
    parallelism: int | None = None,
    name: str = "two",
) -> Stream[Any]:
    """Return the output of a step that reads both streams; keyed ones are read by key unless ``by`` is given."""
    edges = tuple(
        Edge(stream._edge.origin, stream._edge.side, partitioning)  # pyright: ignore[reportPrivateUsage]
        for stream, partitioning in zip((left, right), by or (_by(left), _by(right)), strict=True)
    )
    node = flow.graph.add_step(
        "connect", name, edges, operator, stateful=True, sides=True, parallelism=parallelism
    )
    return Stream(flow.graph, Edge(node))


def _by(stream: object) -> Partitioning:
    return HashByKey() if isinstance(stream, KeyedStream) else Forward()


#: The right input goes to every subtask, the left one to the same subtask.
BROADCAST = (Forward(), Broadcast())
