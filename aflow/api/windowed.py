"""Keyed streams cut into windows, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from aflow.api.checks import check_function, check_storable
from aflow.api.functions import Initial
from aflow.api.stream import Stream
from aflow.api.windows import Windows
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge
from aflow.model.time import short
from aflow.model.windows import Windowed
from aflow.operators.accumulation import Accumulation, aggregating, folding, reducing
from aflow.operators.windows.aligned import WindowAggregateOperator
from aflow.operators.windows.late import LATE
from aflow.state.aggregate import Aggregate
from aflow.state.specs import check_aggregate

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


class WindowResults(Stream[Windowed[K, R]], Generic[K, T, R]):
    """One ``Windowed(key, window, value)`` for each key and window, with the window's last timestamp."""

    @property
    def late(self) -> Stream[T]:
        """The records that came when all their windows were gone, as they were; unread, they are only counted."""
        return Stream(self._graph, Edge(self._edge.origin, side=LATE))


class WindowedStream(Generic[K, T]):
    """Records of type ``T`` by keys of type ``K`` and by window; say how they become a result."""

    def __init__(
        self,
        graph: FlowGraph,
        edge: Edge,
        windows: Windows,
        lateness: int,
        key_type: type[K] | None,
        parallelism: int | None,
    ) -> None:
        self._graph = graph
        self._edge = edge
        self._windows = windows
        self._lateness = lateness
        self._key_type = key_type
        self._parallelism = parallelism

    def fold(
        self,
        initial: Initial[A],
        fn: Callable[[A, T], A],
        *,
        name: str,
        of: type[A] | None = None,
    ) -> WindowResults[K, T, A]:
        """Fold the records of each key and window: ``fn(accumulator, value)`` returns the next accumulator.

        ``initial()`` makes the first. An accumulator may be changed in place and returned, unless the window has a
        ``lateness``: then what was emitted would change with it. ``of`` is the type by which snapshots store it.
        """
        check_function(initial, "fold")
        check_function(fn, "fold")
        return self._results("window.fold", folding(initial, fn), name, of)

    def reduce(
        self, fn: Callable[[T, T], T], *, name: str, of: type[T] | None = None
    ) -> WindowResults[K, T, T]:
        """Combine the records of each key and window: ``fn(so_far, value)``, beginning with the first record."""
        check_function(fn, "reduce")
        return self._results("window.reduce", reducing(fn), name, of)

    def aggregate(
        self, aggregate: Aggregate[T, A, R], *, name: str, of: type[A] | None = None
    ) -> WindowResults[K, T, R]:
        """Aggregate the records of each key and window; ``of`` is the type by which snapshots store the accumulator."""
        check_aggregate(aggregate, f"step {name!r} (window.aggregate)")
        return self._results("window.aggregate", aggregating(aggregate), name, of)

    def _results(
        self, what: str, accumulation: Accumulation, name: str, of: type[Any] | None
    ) -> WindowResults[K, T, Any]:
        check_storable(of, f"step {name!r} ({what})")

        def operator() -> WindowAggregateOperator:
            return WindowAggregateOperator(
                self._windows.assigner(),
                accumulation,
                lateness=self._lateness,
                of=of,
                key_type=self._key_type,
            )

        late = f", lateness {short(self._lateness)}" if self._lateness else ""
        node = self._graph.add_step(
            what,
            name,
            (self._edge,),
            operator,
            stateful=True,
            parallelism=self._parallelism,
            detail=f"{self._windows}{late}",
        )
        return WindowResults(self._graph, Edge(node))
