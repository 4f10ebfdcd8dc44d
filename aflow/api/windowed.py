"""Windows of keyed streams, and the functions over them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from aflow.api.checks import check_function, check_storable
from aflow.api.error_policy import NO_RESULT_OF_A_RECORD, error_policy
from aflow.api.functions import Initial
from aflow.api.missing_methods import missing_method
from aflow.api.stream import Stream
from aflow.api.windows import WindowChoice
from aflow.errors import FlowDefinitionError
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge
from aflow.machines.calls.on_error import OnError
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
        """Records that arrived after all their windows were closed, unchanged; counted if no step reads them."""
        return Stream(self._graph, Edge(self._edge.origin, side=LATE))


class WindowedStream(Generic[K, T]):
    """Records of type ``T`` by keys of type ``K`` and by window; each method computes a result for each window.

    ``fold``, ``reduce`` and ``aggregate`` fold records on arrival and keep one accumulator for each key and window;
    ``apply`` and ``process`` keep the records. With an evictor all of them keep the records.

    ``then`` is a ``WindowFunction`` that transforms each result, with access to key, window and watermark. ``of`` is
    the type by which snapshots store the accumulators or records; needed unless they are plain Python values. With an
    evictor, and for sliding ``Count`` windows, it is the type of the records.

    ``on_error`` applies to two kinds of record: one for which ``fn`` (``add``) raises when it is folded, and a
    ``Windowed`` with the contents of a window for which ``result``, ``then``, or the function of ``apply`` or
    ``process`` raises. Errors of ``merge``, triggers, evictors and assigners fail the job.
    """

    def __init__(
        self,
        graph: FlowGraph,
        edge: Edge,
        windows: WindowChoice,
        key_type: type[K] | None,
        parallelism: int | None,
    ) -> None:
        self._graph = graph
        self._edge = edge
        self._windows = windows
        self._key_type = key_type
        self._parallelism = parallelism

    # Type checkers find the mistake themselves, and must not accept every name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, name)

    @overload
    def fold(
        self,
        initial: Initial[A],
        fn: Callable[[A, T], A],
        *,
        name: str,
        merge: Callable[[A, A], A] | None = None,
        of: type[A] | type[T] | None = None,
        on_error: OnError[T | Windowed[K, A]] | None = None,
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
        on_error: OnError[T | Windowed[K, A]] | None = None,
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
        on_error: OnError[T | Windowed[K, A]] | None = None,
    ) -> WindowResults[T, Any]:
        """Fold the records of each key and window: ``fn(accumulator, value)`` returns the next accumulator.

        ``initial()`` makes the first. An accumulator may be changed in place and returned. If a window can emit several
        results (``lateness``, a custom trigger), this needs ``merge``: without it emitted results would change too.
        ``merge(a, b)`` returns the accumulator of the records of both; sessions need it, and sliding windows are faster
        with it. It may change and return ``a``, and must not change ``b``.
        """
        check_function(initial, "fold")
        check_function(fn, "fold")
        if merge is not None:
            check_function(merge, "fold(merge=…)")
        return self._folded("window.fold", folding(initial, fn, merge), name, then, of, on_error)

    @overload
    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        name: str,
        of: type[T] | None = None,
        on_error: OnError[T | Windowed[K, T]] | None = None,
    ) -> WindowResults[T, Windowed[K, T]]: ...

    @overload
    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        name: str,
        then: WindowFunction[K, T, U],
        of: type[T] | None = None,
        on_error: OnError[T | Windowed[K, T]] | None = None,
    ) -> WindowResults[T, U]: ...

    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        name: str,
        then: WindowFunction[K, T, Any] | None = None,
        of: type[T] | None = None,
        on_error: OnError[T | Windowed[K, T]] | None = None,
    ) -> WindowResults[T, Any]:
        """Reduce the records of each key and window by ``fn(accumulated, value)``, starting with the first record.

        ``fn`` returns a new value and must not change its arguments. For windows that merge or share panes it also
        combines the results of two parts, so it must be associative.
        """
        check_function(fn, "reduce")
        return self._folded("window.reduce", reducing(fn), name, then, of, on_error)

    @overload
    def aggregate(
        self,
        aggregate: Aggregate[T, A, R],
        *,
        name: str,
        of: type[A] | type[T] | None = None,
        on_error: OnError[T | Windowed[K, A] | Windowed[K, R]] | None = None,
    ) -> WindowResults[T, Windowed[K, R]]: ...

    @overload
    def aggregate(
        self,
        aggregate: Aggregate[T, A, R],
        *,
        name: str,
        then: WindowFunction[K, R, U],
        of: type[A] | type[T] | None = None,
        on_error: OnError[T | Windowed[K, A] | Windowed[K, R]] | None = None,
    ) -> WindowResults[T, U]: ...

    def aggregate(
        self,
        aggregate: Aggregate[T, A, R],
        *,
        name: str,
        then: WindowFunction[K, R, Any] | None = None,
        of: type[A] | type[T] | None = None,
        on_error: OnError[T | Windowed[K, A] | Windowed[K, R]] | None = None,
    ) -> WindowResults[T, Any]:
        """Aggregate the records of each key and window, by your ``Aggregate`` or one of ``aflow.aggregates``."""
        check_aggregate(aggregate, f"step {name!r} (window.aggregate)")
        return self._folded("window.aggregate", aggregating(aggregate), name, then, of, on_error)

    def apply(
        self,
        fn: Callable[[list[T]], R],
        *,
        name: str,
        of: type[T] | None = None,
        on_error: OnError[Windowed[K, list[T]]] | None = None,
    ) -> WindowResults[T, Windowed[K, R]]:
        """Emit ``fn(values)`` for each key and window, with all its records in the order of their arrival.

        ``fn`` may change the list.
        """
        check_function(fn, "apply")
        return self._results("window.apply", name, of, on_error, apply=fn)

    def process(
        self,
        function: WindowFunction[K, list[T], U],
        *,
        name: str,
        of: type[T] | None = None,
        on_error: OnError[Windowed[K, list[T]]] | None = None,
    ) -> WindowResults[T, U]:
        """Emit the results of ``function`` for all records of each key and window, in the order of their arrival."""
        return self._results("window.process", name, of, on_error, function=function)

    def _folded(
        self,
        what: str,
        accumulation: Accumulation,
        name: str,
        then: WindowFunction[Any, Any, Any] | None,
        of: type[Any] | None,
        on_error: OnError[Any] | None,
    ) -> WindowResults[T, Any]:
        return self._results(what, name, of, on_error, accumulation=accumulation, function=then)

    def _results(
        self,
        what: str,
        name: str,
        of: type[Any] | None,
        on_error: OnError[Any] | None,
        *,
        accumulation: Accumulation | None = None,
        function: WindowFunction[Any, Any, Any] | None = None,
        apply: Callable[[list[Any]], Any] | None = None,
    ) -> WindowResults[T, Any]:
        where = f"step {name!r} ({what})"
        check_storable(of, where)
        if function is not None or what == "window.process":
            check_window_function(function)
        folds = "" if accumulation is None else NO_RESULT_OF_A_RECORD
        policy = error_policy(self._graph, on_error, where, self._edge, fallback=folds)
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
            on_error=policy,
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
            on_error=policy,
        )
        return WindowResults(self._graph, Edge(node))
