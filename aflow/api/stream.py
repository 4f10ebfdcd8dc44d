"""Streams without keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from aflow.api.async_methods import AsyncCallMethods
from aflow.api.checks import check_function, check_storable
from aflow.api.error_policy import error_policy
from aflow.api.missing_methods import missing_method
from aflow.api.step_inputs import StepInput, check_flow, step_input_of
from aflow.api.time import Generators, time_strategy, watermark_period
from aflow.connect import Sink
from aflow.errors import FlowDefinitionError, shown
from aflow.graph.flow_graph import FlowGraph, check_parallelism, check_side
from aflow.graph.nodes import Broadcast, Custom, Edge, HashByKey, Partitioning, Rebalance
from aflow.machines.calls.on_error import FAIL, OnError
from aflow.model.tags import Tag
from aflow.model.time import Instant
from aflow.operators.alignment import Alignment
from aflow.operators.base import Operator
from aflow.operators.event_time import EventTimeOperator
from aflow.operators.ingestion_time import IngestionTimeOperator
from aflow.operators.process import ProcessFunction, ProcessOperator, check_process_function
from aflow.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    MapBatchOperator,
    MapOperator,
    PassThroughOperator,
)
from aflow.operators.watermark_use import WatermarkUse

if TYPE_CHECKING:
    from aflow.api.connected import BroadcastConnectedStreams
    from aflow.api.keyed import KeyedStream
    from aflow.api.windowed import WindowedStream
    from aflow.api.windows import Windows
    from aflow.machines.windows.assigners import WindowAssigner
    from aflow.machines.windows.evictors import Evictor
    from aflow.machines.windows.trigger import Trigger

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
P = ParamSpec("P")


class Stream(AsyncCallMethods[T]):
    """Records of type ``T``; each method adds a step and returns the stream of its results.

    Functions of steps are called once for each record, synchronously, in the order of the stream. By default an error
    that they raise stops the job with an ``OperatorError`` that names the step and the record, after the results of the
    preceding records were emitted. ``on_error=`` of a step, or of the ``Flow``, selects another policy: ``Drop()``,
    ``DeadLetter(tag)`` or ``Fallback(function)`` of ``aflow.calls``. ``name=`` names the step in plans, metrics and
    errors. A stream may be read several times: every reader receives every record.
    """

    def __init__(self, graph: FlowGraph, edge: Edge) -> None:
        self._graph = graph
        self._edge = edge

    @property
    def step_input(self) -> StepInput:
        """The stream as the input of a step."""
        return StepInput(self._graph, self._edge)

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
    ) -> Stream[U]:
        """Replace each value by ``fn(value)``."""
        check_function(fn, "map")
        policy = error_policy(self._graph, on_error, "map", self._edge)
        return self._step("map", name, lambda: MapOperator(fn), on_error=policy)

    def filter(
        self,
        keep: Callable[[T], object],
        *,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> Stream[T]:
        """Keep the values for which ``keep(value)`` is true."""
        check_function(keep, "filter")
        policy = error_policy(self._graph, on_error, "filter", self._edge)
        return self._step("filter", name, lambda: FilterOperator(keep), on_error=policy)

    def flat_map(
        self,
        fn: Callable[[T], Iterable[U]],
        *,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> Stream[U]:
        """Replace each value by all values of ``fn(value)``, which may be none, with its timestamp.

        A generator that raises has emitted nothing for its value.
        """
        check_function(fn, "flat_map")
        policy = error_policy(self._graph, on_error, "flat_map", self._edge)
        return self._step("flat_map", name, lambda: FlatMapOperator(fn), on_error=policy)

    def map_batch(
        self,
        fn: Callable[[list[T]], Sequence[U]],
        *,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> Stream[U]:
        """Replace the values of each batch by ``fn(values)``: one result for each value, in order.

        For vectorised work (NumPy, a model). A batch has at least one value; its size depends on the load. If ``fn``
        raises for several values, it is called again for each of them alone, and ``on_error`` applies to those for
        which it raises again.
        """
        check_function(fn, "map_batch")
        policy = error_policy(self._graph, on_error, "map_batch", self._edge)
        return self._step("map_batch", name, lambda: MapBatchOperator(fn), on_error=policy)

    def process(
        self,
        function: ProcessFunction[T, U],
        *,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> Stream[U]:
        """Process each record with access to its timestamp, the watermark, and side outputs."""
        check_process_function(function)
        policy = error_policy(self._graph, on_error, "process", self._edge)
        return self._step(
            "process",
            name,
            lambda: ProcessOperator(function),
            sides=True,
            watermarks=WatermarkUse.READ,
            on_error=policy,
        )

    def event_time(
        self,
        time: Callable[[T], Instant] | None = None,
        *,
        max_delay: timedelta | None = None,
        generator: Generators[T] | None = None,
        idle_after: timedelta | None = None,
        advance_when_idle: bool = False,
        align: Alignment | None = None,
        watermark_interval: timedelta | None = None,
        source_watermarks: bool = False,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> Stream[T]:
        """Assign the timestamp ``time(value)`` to each record, and emit watermarks.

        ``time`` returns an aware ``datetime`` or epoch milliseconds; without it the timestamps of the source are used.
        The watermark is the newest timestamp less ``max_delay`` (default: 0), so records may be out of order by that
        much before they are late. Lateness never depends on how records were batched. With one split it depends on
        their order alone. A first timestamp that is plainly in seconds, microseconds or nanoseconds causes a
        ``UserWarning``. ``generator`` makes a ``WatermarkGenerator`` of your own instead, one for each split of the
        source. Its ``on_periodic`` is called every ``watermark_interval`` of processing time (default: 200 ms), also
        while no records arrive.

        With ``source_watermarks`` the watermarks are those that the source emits for each of its splits
        (``Chunk.watermark``), and none are generated. The source must declare ``emits_watermarks``. Between it and this
        step only steps such as ``map`` and ``filter`` are allowed; the job refuses to start otherwise, with a
        ``FlowDefinitionError``.

        Splits without a record for ``idle_after`` of processing time are idle: they no longer hold the watermark back.
        With ``advance_when_idle`` event time advances with the clock while all splits of the step are idle, from the
        last watermark on: so the last windows of a silent source fire. Records that arrive behind it are late.
        With ``align`` the source waits while it is too far ahead of the slowest source of its group; this step must
        then directly follow the source.

        ``on_error`` applies to errors of ``time``: a ``Fallback`` returns the time. Dead letters have
        the timestamp of the source, if any. A time without time zone or of another type fails the job.

        Chained to the source, the step tracks the watermark of each split; after an exchange, of the merged stream.
        """
        if time is not None:
            check_function(time, "event_time")
        strategy = time_strategy(
            max_delay,
            generator,
            idle_after,
            align,
            watermark_interval,
            advance_when_idle=advance_when_idle,
            source_watermarks=source_watermarks,
        )
        policy = error_policy(self._graph, on_error, "event_time", self._edge)
        return self._step(
            "event_time",
            name,
            lambda: EventTimeOperator(time, strategy),
            begins_time=True,
            on_error=policy,
        )

    def key_by(
        self,
        key: Callable[[T], K],
        *,
        of: type[K] | None = None,
        parallelism: int | None = None,
        on_error: OnError[T] | None = None,
        name: str | None = None,
    ) -> KeyedStream[K, T]:
        """Partition the stream by ``key(value)``: records with equal keys are in one subtask, in order.

        Keys are str, bytes, int, bool, None, float, tuple, datetime, date, UUID, Enum, Decimal or frozen
        dataclasses of these (docs/reference/key-hash.md). ``of`` is the type of the keys, by which snapshots store
        them; needed for enums and dataclasses only. ``parallelism`` is the number of subtasks of the keyed steps,
        by default that of the job. ``on_error`` applies to errors of ``key``: a ``Fallback`` returns the key.
        """
        # It imports Stream, so an import at the top would be circular.
        from aflow.api.keyed import KeyedStream

        check_function(key, "key_by")
        check_parallelism(parallelism)
        check_storable(of, "key_by()" if name is None else f"step {name!r} (key_by)")
        policy = error_policy(self._graph, on_error, "key_by", self._edge)
        node = self._graph.add_step(
            "key_by",
            name,
            (self._edge,),
            lambda: KeyByOperator(key),
            on_error=policy,
        )
        return KeyedStream(self._graph, Edge(node, partitioning=HashByKey()), of, parallelism)

    def ingestion_time(
        self, *, watermark_interval: timedelta | None = None, name: str | None = None
    ) -> Stream[T]:
        """Assign the time of arrival at this step as the timestamp of each record; no record is ever late.

        Event time advances with the clock, so windows fire while the source is silent: a watermark is emitted every
        ``watermark_interval`` of processing time (default: 200 ms), and after each batch. A replay assigns other
        timestamps.
        """
        period = watermark_period(watermark_interval)
        return self._step(
            "ingestion_time", name, lambda: IngestionTimeOperator(period), begins_time=True
        )

    def window_all(
        self,
        windows: Windows[T] | WindowAssigner[T],
        *,
        trigger: Trigger[T] | None = None,
        evictor: Evictor[T] | None = None,
        lateness: timedelta = timedelta(0),
    ) -> WindowedStream[None, T]:
        """Assign all records to windows, as those of a keyed stream with the one key None, so in one subtask.

        The arguments are those of ``KeyedStream.window``.
        """
        keyed = self.key_by(_no_key, parallelism=1, on_error=FAIL)
        return keyed.window(windows, trigger=trigger, evictor=evictor, lateness=lateness)

    def union(self, *others: Stream[T], name: str | None = None) -> Stream[T]:
        """Merge this stream with others of the same type; its watermark is the smallest of theirs."""
        for other in others:
            if not isinstance(other, Stream):
                raise FlowDefinitionError(f"union() takes streams, not {shown(other)}")
            if other._graph is not self._graph:
                raise FlowDefinitionError(
                    f"union() merges streams of one flow, and these belong to {self._graph.name!r} and "
                    f"{other._graph.name!r}; build both in the same Flow"
                )
        edges = (self._edge, *(other._edge for other in others))
        node = self._graph.add_step("union", name, edges, PassThroughOperator)
        return Stream(self._graph, Edge(node))

    def connect_broadcast(self, control: Stream[U]) -> BroadcastConnectedStreams[None, T, U]:
        """Send all records of ``control`` to every subtask of the next step, ``.process(BroadcastProcess)``.

        Without keys there is broadcast state only; call ``key_by`` first for keyed state and timers.
        """
        # It imports Stream, so an import at the top would be circular.
        from aflow.api.connected import BroadcastConnectedStreams

        read = step_input_of(control, "connect_broadcast", keyed=False)
        check_flow(self.step_input, read, "connect_broadcast")
        return BroadcastConnectedStreams(self.step_input, read)

    def side(self, tag: Tag[U]) -> Stream[U]:
        """Return the side output ``tag`` of the preceding step as a stream with the same event time."""
        if not isinstance(tag, Tag):
            raise FlowDefinitionError(f"side() takes an aflow.Tag, not {shown(tag)}")
        check_side(self._edge, tag)
        return Stream(self._graph, Edge(self._edge.origin, side=tag.name))

    def rebalance(self, parallelism: int | None = None) -> Stream[T]:
        """Distribute batches evenly over the subtasks of the next step; the order of records is lost."""
        return self._exchange("rebalance", Rebalance(), parallelism)

    def broadcast(self, parallelism: int | None = None) -> Stream[T]:
        """Send every record to every subtask of the next step."""
        return self._exchange("broadcast", Broadcast(), parallelism)

    def partition_by(
        self, choose: Callable[[T, int], int], parallelism: int | None = None
    ) -> Stream[T]:
        """Send each record to the subtask ``choose(value, subtasks)`` (from 0) of the next step."""
        check_function(choose, "partition_by")
        return self._exchange("partition_by", Custom(choose), parallelism)

    def pipe(
        self, fn: Callable[Concatenate[Stream[T], P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return ``fn(self, …)``, for steps of your own that are functions from stream to stream."""
        return fn(self, *args, **kwargs)

    def to(self, sink: Sink[T], *, name: str | None = None) -> None:
        """End the stream in ``sink``."""
        self._graph.add_sink(sink, name, self._edge)

    def _step(
        self, what: str, name: str | None, operator: Callable[[], Operator], **more: Any
    ) -> Stream[Any]:
        return Stream(
            self._graph, Edge(self._graph.add_step(what, name, (self._edge,), operator, **more))
        )

    def _exchange(
        self, what: str, partitioning: Partitioning, parallelism: int | None
    ) -> Stream[T]:
        edge = Edge(self._edge.origin, self._edge.side, partitioning)
        node = self._graph.add_step(
            what, None, (edge,), PassThroughOperator, parallelism=parallelism
        )
        return Stream(self._graph, Edge(node))


def _no_key(value: object) -> None:
    """Return None, the key of all records in ``window_all``."""
