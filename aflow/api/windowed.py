"""Keyed streams cut into windows, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, overload

from aflow.api.checks import check_function, check_storable
from aflow.api.functions import Initial
from aflow.api.stream import Stream
from aflow.api.windows import Chosen
from aflow.errors import FlowDefinitionError
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge
from aflow.model.windows import Windowed
from aflow.operators.accumulation import Accumulation, aggregating, folding, reducing
from aflow.operators.windows.factory import check_logic, window_operator
from aflow.operators.windows.function import WindowFunction, check_window_function
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.logic import WindowLogic
from aflow.state.aggregate import Aggregate
from aflow.state.specs import check_aggregate

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")
U = TypeVar("U")


class WindowResults(Stream[U], Generic[T, U]):
    """Results ``U`` of windows of records ``T``, each with the last timestamp of its window."""

    @property
    def late(self) -> Stream[T]:
        """The records that came when all their windows were gone, as they were; unread, they are only counted."""
        return Stream(self._graph, Edge(self._edge.origin, side=LATE))


class WindowedStream(Generic[K, T]):
    """Records of type ``T`` by keys of type ``K`` and by window; say how they become a result.

    ``fold``, ``reduce`` and ``aggregate`` fold records as they come and keep one accumulator for each key and window;
    ``apply`` and ``process`` keep the records. With an evictor all of them keep the records.

    ``then`` is a ``WindowFunction`` that makes something else of each result, knowing key, window and watermark.
    ``of`` is the type by which snapshots store what is kept, accumulators or records; needed unless they are plain
    Python values. With an evictor, also that of ``Count`` windows that slide, it is the type of the records.
    """

    def __init__(
        self,
        graph: FlowGraph,
        edge: Edge,
        windows: Chosen,
        key_type: type[K] | None,
        parallelism: int | None,
    ) -> None:
        self._graph = graph
        self._edge = edge
        self._windows = windows
        self._key_type = key_type
        self._parallelism = parallelism

    @overload
    def fold(
        self,
        initial: Initial[A],
        fn: Callable[[A, T], A],
        *,
        name: str,
        merge: Callable[[A, A], A] | None = None,
        of: type[A] | type[T] | None = None,
    ) -> WindowResults[T, Windowed[K, A]]: ...

    @overload
    def fold(
        self,
        initial: Initial[A],
        fn: Callable[[A, T], A],
        *,
        name: str,
        then: WindowFunction[K, A, U],
        merge: Callable[[A, A], A] | None = None,
        of: type[A] | type[T] | None = None,
    ) -> WindowResults[T, U]: ...

    def fold(
        self,
        initial: Initial[A],
        fn: Callable[[A, T], A],
        *,
        name: str,
        then: WindowFunction[K, A, Any] | None = None,
        merge: Callable[[A, A], A] | None = None,
        of: type[A] | type[T] | None = None,
    ) -> WindowResults[T, Any]:
        """Fold the records of each key and window: ``fn(accumulator, value)`` returns the next accumulator.

        ``initial()`` makes the first. An accumulator may be changed in place and returned; if a window can give several
        results (``lateness``, a trigger of your own), only with ``merge``, since what was emitted would change with it.
        ``merge(a, b)`` gives the accumulator of the records of both; sessions need it, and sliding windows are faster
        with it. It may change and return ``a``, and must leave ``b`` as it is.
        """
        check_function(initial, "fold")
        check_function(fn, "fold")
        if merge is not None:
            check_function(merge, "fold(merge=…)")
        return self._folded("window.fold", folding(initial, fn, merge), name, then, of)

    @overload
    def reduce(
        self, fn: Callable[[T, T], T], *, name: str, of: type[T] | None = None
    ) -> WindowResults[T, Windowed[K, T]]: ...

    @overload
    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        name: str,
        then: WindowFunction[K, T, U],
        of: type[T] | None = None,
    ) -> WindowResults[T, U]: ...

    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        name: str,
        then: WindowFunction[K, T, Any] | None = None,
        of: type[T] | None = None,
    ) -> WindowResults[T, Any]:
        """Combine the records of each key and window: ``fn(so_far, value)``, beginning with the first record.

        ``fn`` returns a new value and leaves both of its arguments as they are. Where windows merge or share parts it
        also combines what two parts have come to, so it must be associative.
        """
        check_function(fn, "reduce")
        return self._folded("window.reduce", reducing(fn), name, then, of)

    @overload
    def aggregate(
        self, aggregate: Aggregate[T, A, R], *, name: str, of: type[A] | type[T] | None = None
    ) -> WindowResults[T, Windowed[K, R]]: ...

    @overload
    def aggregate(
        self,
        aggregate: Aggregate[T, A, R],
        *,
        name: str,
        then: WindowFunction[K, R, U],
        of: type[A] | type[T] | None = None,
    ) -> WindowResults[T, U]: ...

    def aggregate(
        self,
        aggregate: Aggregate[T, A, R],
        *,
        name: str,
        then: WindowFunction[K, R, Any] | None = None,
        of: type[A] | type[T] | None = None,
    ) -> WindowResults[T, Any]:
        """Aggregate the records of each key and window, by an ``Aggregate`` of yours or one of ``aflow.aggregates``."""
        check_aggregate(aggregate, f"step {name!r} (window.aggregate)")
        return self._folded("window.aggregate", aggregating(aggregate), name, then, of)

    def apply(
        self, fn: Callable[[list[T]], R], *, name: str, of: type[T] | None = None
    ) -> WindowResults[T, Windowed[K, R]]:
        """Give ``fn(values)`` for each key and window: all its records, in the order of their arrival.

        The list is the function's own.
        """
        check_function(fn, "apply")
        return self._results("window.apply", name, of, apply=fn)

    def process(
        self, function: WindowFunction[K, list[T], U], *, name: str, of: type[T] | None = None
    ) -> WindowResults[T, U]:
        """Give what ``function`` makes of all records of each key and window, in the order of their arrival."""
        return self._results("window.process", name, of, function=function)

    def _folded(
        self,
        what: str,
        accumulation: Accumulation,
        name: str,
        then: WindowFunction[Any, Any, Any] | None,
        of: type[Any] | None,
    ) -> WindowResults[T, Any]:
        return self._results(what, name, of, accumulation=accumulation, function=then)

    def _results(
        self,
        what: str,
        name: str,
        of: type[Any] | None,
        *,
        accumulation: Accumulation | None = None,
        function: WindowFunction[Any, Any, Any] | None = None,
        apply: Callable[[list[Any]], Any] | None = None,
    ) -> WindowResults[T, Any]:
        where = f"step {name!r} ({what})"
        check_storable(of, where)
        if function is not None or what == "window.process":
            check_window_function(function)
        logic = WindowLogic(
            assigner=self._windows.assigner,
            trigger=self._windows.trigger,
            evictor=self._windows.evictor,
            lateness=self._windows.lateness,
            accumulation=accumulation,
            function=function,
            apply=apply,
            of=of,
            key_type=self._key_type,
        )
        try:
            check_logic(logic)
        except FlowDefinitionError as exc:
            raise FlowDefinitionError(f"{where}: {exc}") from exc
        node = self._graph.add_step(
            what,
            name,
            (self._edge,),
            lambda: window_operator(logic),
            stateful=True,
            sides=function is not None,
            parallelism=self._parallelism,
            detail=self._windows.detail,
            windows=logic,
        )
        return WindowResults(self._graph, Edge(node))
