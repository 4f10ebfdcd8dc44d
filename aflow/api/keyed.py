"""Keyed streams and their stateful steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from aflow.api.async_methods import AsyncCallMethods
from aflow.api.call_detail import call_detail, dead_letters_of
from aflow.api.checks import check_count, check_function, check_storable
from aflow.api.connected import BroadcastConnectedStreams, ConnectedStreams, JoinResults
from aflow.api.error_policy import NO_RESULT_OF_A_RECORD, error_policy
from aflow.api.functions import Initial
from aflow.api.joins import (
    AsOfJoinedStreams,
    JoinedStreams,
    as_of_join,
    co_group,
    interval_join,
    window_join,
)
from aflow.api.missing_methods import missing_method
from aflow.api.step_inputs import KeyedPair, StepInput, check_flow, step_input_of
from aflow.api.stream import Stream
from aflow.api.windowed import WindowedStream, WindowResults
from aflow.api.windows import Session, Windows, choose_windows
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge, Forward
from aflow.machines.calls.on_error import OnError
from aflow.machines.windows.assigners import WindowAssigner
from aflow.machines.windows.evictors import Evictor
from aflow.machines.windows.trigger import Trigger
from aflow.model.time import positive_millis
from aflow.model.windows import Windowed
from aflow.operators.accumulation import Accumulation, folding, reducing
from aflow.operators.base import Operator
from aflow.operators.calls.async_process import (
    AsyncKeyedProcess,
    check_async_keyed_process,
    resource_of,
)
from aflow.operators.calls.handlers.keyed_handlers import KeyedHandlers
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.deduplicate import DeduplicateOperator
from aflow.operators.keyed_accumulate import KeyedAccumulateOperator
from aflow.operators.keyed_function import (
    KeyedProcess,
    KeyedProcessOperator,
    check_keyed_process,
)
from aflow.operators.stateless import FilterOperator, FlatMapOperator, MapOperator
from aflow.operators.top import TopOperator
from aflow.operators.watermark_use import WatermarkUse
from aflow.runtime.calls.options import CallOptions, handler_settings

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")
R = TypeVar("R")


class KeyedStream(AsyncCallMethods[T], Generic[K, T]):
    """Records of type ``T``, partitioned by keys of type ``K``.

    Its stateful steps must be named: the name identifies their state after a restart. Their parallelism is that of
    ``key_by``, by default that of the job; one subtask processes all records of a key, in order.
    """

    _keyed = True

    def __init__(
        self, graph: FlowGraph, edge: Edge, key_type: type[K] | None, parallelism: int | None
    ) -> None:
        self._graph = graph
        self._edge = edge
        # Steps below copy it: a factory of operators is sent to executors, so it must not hold the stream and with it
        # the whole flow.
        self._key_type = key_type
        self._parallelism = parallelism

    @property
    def step_input(self) -> StepInput:
        """The stream as the input of a step."""
        return StepInput(self._graph, self._edge, True, self._key_type, self._parallelism)

    # Not for type checkers: they report an unknown method, and this definition would accept every name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, name)

    def map(
        self,
        fn: Callable[[T], U],
        *,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> KeyedStream[K, U]:
        """Replace each value by ``fn(value)`` and keep its key, as Kafka Streams' ``mapValues`` does.

        As ``filter`` and ``flat_map``, it runs in the subtask of the step before ``key_by``, upstream of the exchange:
        it adds no exchange, and what ``filter`` drops is not exchanged.
        """
        check_function(fn, "map")
        policy = self._policy(on_error, "map")
        return self._upstream("map", name, lambda: MapOperator(fn), policy)

    def filter(
        self,
        keep: Callable[[T], object],
        *,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> KeyedStream[K, T]:
        """Keep the records for which ``keep(value)`` is true, with their keys."""
        check_function(keep, "filter")
        policy = self._policy(on_error, "filter")
        return self._upstream("filter", name, lambda: FilterOperator(keep), policy)

    def flat_map(
        self,
        fn: Callable[[T], Iterable[U]],
        *,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> KeyedStream[K, U]:
        """Replace each value by all values of ``fn(value)``, which may be none, with its key and timestamp."""
        check_function(fn, "flat_map")
        policy = self._policy(on_error, "flat_map")
        return self._upstream("flat_map", name, lambda: FlatMapOperator(fn), policy)

    def process(
        self,
        function: KeyedProcess[K, T, U],
        *,
        name: str,
        on_error: OnError[T] | None = None,
    ) -> Stream[U]:
        """Process each record with the state and the timers of its key.

        With an ``on_error`` other than ``Fail()``, ``process`` of the function is a transaction: if it raises, its
        changes of state, its timers and its output are discarded. An error in ``on_timer`` fails the job.
        """
        check_keyed_process(function)
        key_type = self._key_type
        policy = self._policy(on_error, "process")
        return self._step(
            "process",
            name,
            lambda: KeyedProcessOperator(function, key_type=key_type),
            sides=True,
            watermarks=WatermarkUse.READ,
            on_error=policy,
        )

    def process_async(
        self,
        function: AsyncKeyedProcess[K, T, U],
        *,
        name: str,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]:
        """Process each record in an async handler, with the state and the timers of its key.

        One handler runs at a time for each key, many keys concurrently. A handler is a transaction: its effects are
        applied together, or not at all. ``options`` are those of ``map_async`` without ``ordered`` and ``cache``.
        """
        check_async_keyed_process(function)
        options = self._with_policy_of_flow(options)
        settings, resource = handler_settings(function.process, options), resource_of(function)
        key_type = self._key_type
        return self._step(
            "process_async",
            name,
            lambda: AsyncOperator(settings, KeyedHandlers(function, key_type)),
            sides=True,
            watermarks=WatermarkUse.APPLIED,
            dead_letters=dead_letters_of(settings),
            resource=resource,
            calls=True,
            detail=call_detail(settings, resource),
        )

    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        name: str,
        of: type[T] | None = None,
        on_error: OnError[T] | None = None,
    ) -> Stream[T]:
        """Reduce the records of each key by ``fn(accumulated, value)``, and emit the result after each record.

        The first record of a key is the first accumulated value. ``of`` is the type by which snapshots store it.
        """
        check_function(fn, "reduce")
        return self._accumulate("reduce", name, reducing(fn), of, on_error)

    def fold(
        self,
        initial: Initial[A],
        fn: Callable[[A, T], A],
        *,
        name: str,
        of: type[A] | None = None,
        on_error: OnError[T] | None = None,
    ) -> Stream[A]:
        """Fold the records of each key into an accumulator, and emit it after each record.

        ``initial()`` makes the accumulator of a new key and ``fn(accumulator, value)`` returns the next one. Return a
        new object and leave the old one unchanged: it was emitted. ``of`` is the type by which snapshots store the
        accumulator.
        """
        check_function(initial, "fold")
        check_function(fn, "fold")
        return self._accumulate("fold", name, folding(initial, fn), of, on_error)

    def window(
        self,
        windows: Windows[T] | WindowAssigner[T],
        *,
        trigger: Trigger[T] | None = None,
        evictor: Evictor[T] | None = None,
        lateness: timedelta = timedelta(0),
    ) -> WindowedStream[K, T]:
        """Assign the records of each key to windows.

        A window in event time fires when the watermark passes its end, one in processing time when the clock does, or
        when ``trigger`` (``aflow.triggers``) fires. For ``lateness`` (default: 0) after that, a record of the window
        makes it fire again with the updated result; later ones are emitted by ``.late``. ``evictor``
        (``aflow.evictors``) removes records when the window fires.
        """
        chosen = choose_windows(windows, trigger, evictor, lateness)
        return WindowedStream(self._graph, self._edge, chosen, self._key_type, self._parallelism)

    def sessions(
        self, gap: timedelta, *, name: str, of: type[T] | None = None
    ) -> WindowResults[T, Windowed[K, list[T]]]:
        """Emit the records of each session as one list; a session ends after ``gap`` of event time without a record.

        It is emitted when the watermark has passed its end. Its records are in the order of arrival.
        """
        return self.window(Session(gap)).apply(_unchanged, name=name, of=of)

    def deduplicate(self, *, name: str, within: timedelta | None = None) -> Stream[T]:
        """Emit the first record of each key; drop later ones within ``within`` of event time.

        Without ``within`` one record of each key is emitted, and its key is kept for ever. With it, event time is
        needed, and a record is also emitted if its distance from all emitted ones is at least ``within``. Dropped
        records are counted as side output ``duplicates``.
        """
        millis = None if within is None else positive_millis(within, what="within")
        key_type = self._key_type
        return self._step("deduplicate", name, lambda: DeduplicateOperator(millis, key_type))

    def top(
        self, n: int, *, by: Callable[[T], Any], name: str, of: type[T] | None = None
    ) -> Stream[tuple[T, ...]]:
        """Keep the ``n`` records of each key with the highest ``by(value)``, and emit them on each change.

        They are sorted from highest to lowest; of equal ones the earlier is first. For the highest of each window, use
        ``aflow.aggregates.top_k``.
        """
        check_function(by, "top")
        check_storable(of, f"step {name!r} (top)")
        check_count(n, "top")
        key_type = self._key_type
        return self._step("top", name, lambda: TopOperator(n, by, key_type, of))

    def connect(self, other: KeyedStream[K, R]) -> ConnectedStreams[K, T, R]:
        """Share state and timers between the keys of two streams in ``.process(CoProcess)``."""
        return ConnectedStreams(KeyedPair.of(self, other, "connect"))

    def connect_broadcast(self, control: Stream[R]) -> BroadcastConnectedStreams[K, T, R]:
        """Send all records of ``control`` to every subtask of ``.process(BroadcastProcess)``."""
        read = step_input_of(control, "connect_broadcast", keyed=False)
        check_flow(self.step_input, read, "connect_broadcast")
        return BroadcastConnectedStreams(self.step_input, read)

    def interval_join(
        self,
        other: KeyedStream[K, R],
        *,
        between: tuple[timedelta, timedelta],
        lower_inclusive: bool = True,
        upper_inclusive: bool = True,
        of: type[T] | None = None,
        other_of: type[R] | None = None,
    ) -> JoinedStreams[T, R]:
        """Join records with equal keys whose timestamps differ by ``lower`` to ``upper``.

        ``between=(lower, upper)``: a pair has ``left + lower <= right <= left + upper`` in event time, without the
        bound itself if it is not ``inclusive``. ``.inner(into, name=…)``, ``.left(…)``, ``.right(…)`` or ``.full(…)``
        of the result adds the step. Each pair is emitted once, as soon as both records have arrived, with the later of
        their timestamps. Outer joins emit a record without a partner, with its own timestamp, once no partner can
        arrive; they hold the watermark back by as much. ``of`` and ``other_of`` are the types by which snapshots store
        the records of either stream.
        """
        return JoinedStreams(
            interval_join(
                KeyedPair.of(self, other, "interval_join"),
                between,
                inclusive=(lower_inclusive, upper_inclusive),
                types=(of, other_of),
            )
        )

    def as_of_join(
        self,
        other: KeyedStream[K, R],
        *,
        tolerance: timedelta | None = None,
        of: type[T] | None = None,
        other_of: type[R] | None = None,
    ) -> AsOfJoinedStreams[T, R]:
        """Join each record with the newest record of ``other`` with its key and at most its timestamp.

        The partner is the version that was valid at the record's time. ``.inner(into, name=…)`` or ``.left(…)`` of the
        result adds the step. Event time decides, not arrival: a record is buffered until the watermark of both streams
        has reached it, and is emitted with its own timestamp. A right record that is older than ``tolerance`` is no
        partner. The newest right record of each key is kept, without a ``tolerance`` for ever.
        """
        return AsOfJoinedStreams(
            as_of_join(KeyedPair.of(self, other, "as_of_join"), tolerance, types=(of, other_of))
        )

    def window_join(
        self,
        other: KeyedStream[K, R],
        windows: Windows[T | R] | WindowAssigner[T | R],
        *,
        trigger: Trigger[T | R] | None = None,
        lateness: timedelta = timedelta(0),
        of: type[T] | None = None,
        other_of: type[R] | None = None,
    ) -> JoinedStreams[T, R]:
        """Join each record with all records of ``other`` with its key in the same window.

        ``.inner(into, name=…)``, ``.left(…)``, ``.right(…)`` or ``.full(…)`` of the result adds the step. When the
        window fires, its pairs are emitted with the last timestamp of the window; outer joins also emit the records of
        windows in which the other stream has none. A window that fires again, for a late record, emits all of its pairs
        again.
        """
        pair = KeyedPair.of(self, other, "window_join")
        return JoinedStreams(window_join(pair, windows, trigger, lateness, types=(of, other_of)))

    def co_group(
        self,
        other: KeyedStream[K, R],
        windows: Windows[T | R] | WindowAssigner[T | R],
        *,
        into: Callable[[list[T], list[R]], U],
        name: str,
        trigger: Trigger[T | R] | None = None,
        lateness: timedelta = timedelta(0),
        of: type[T] | None = None,
        other_of: type[R] | None = None,
        on_error: OnError[Windowed[K, tuple[list[T], list[R]]]] | None = None,
    ) -> JoinResults[T, R, Windowed[K, U]]:
        """Emit ``into(lefts, rights)`` for each key and window: all records of both streams. One list may be empty."""
        return co_group(
            KeyedPair.of(self, other, "co_group"),
            windows,
            into,
            name,
            trigger,
            lateness,
            types=(of, other_of),
            on_error=on_error,
        )

    def _policy(
        self, on_error: OnError[Any] | None, method: str, *, fallback: str = ""
    ) -> OnError[Any]:
        return error_policy(self._graph, on_error, method, self._edge, fallback=fallback)

    def _upstream(
        self,
        what: str,
        name: str | None,
        operator: Callable[[], Operator],
        policy: OnError[Any],
    ) -> KeyedStream[K, Any]:
        """Add a step without state before the exchange by key; its operator must keep the keys."""
        edge = replace(self._edge, partitioning=Forward())
        node = self._graph.add_step(what, name, (edge,), operator, on_error=policy)
        keyed = replace(self._edge, origin=node, side=None)
        return KeyedStream(self._graph, keyed, self._key_type, self._parallelism)

    def _accumulate(
        self,
        what: str,
        name: str,
        accumulation: Accumulation,
        of: type[Any] | None,
        on_error: OnError[Any] | None,
    ) -> Stream[Any]:
        check_storable(of, f"step {name!r} ({what})")
        key_type = self._key_type
        policy = self._policy(on_error, what, fallback=NO_RESULT_OF_A_RECORD)
        return self._step(
            what,
            name,
            lambda: KeyedAccumulateOperator(accumulation, of, key_type),
            on_error=policy,
        )

    def _step(
        self, what: str, name: str | None, operator: Callable[[], Operator], **more: Any
    ) -> Stream[Any]:
        node = self._graph.add_step(
            what,
            name,
            (self._edge,),
            operator,
            stateful=True,
            parallelism=self._parallelism,
            **more,
        )
        return Stream(self._graph, Edge(node))


def _unchanged(values: list[T]) -> list[T]:
    return values
