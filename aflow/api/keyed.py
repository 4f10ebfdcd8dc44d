"""Streams with keys: everything that keeps state."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from aflow.api.checks import check_function, check_storable
from aflow.api.connected import BroadcastConnectedStreams, ConnectedStreams
from aflow.api.functions import Initial
from aflow.api.place import Pair, Place, check_flow, place_of
from aflow.api.stream import Stream
from aflow.api.windowed import WindowedStream
from aflow.api.windows import Windows
from aflow.errors import FlowDefinitionError, shown
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge
from aflow.model.time import to_millis
from aflow.operators.accumulation import Accumulation, folding, reducing
from aflow.operators.base import Operator
from aflow.operators.keyed_accumulate import KeyedAccumulateOperator
from aflow.operators.keyed_process import (
    KeyedProcess,
    KeyedProcessOperator,
    check_keyed_process,
)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")
R = TypeVar("R")


class KeyedStream(Generic[K, T]):
    """Records of type ``T``, brought together by keys of type ``K``.

    Its steps keep state for each key, so each must be named: the name is how the state is found again. They run in
    as many subtasks as ``key_by`` or the job asked for; all records of a key are in one of them, in order.
    """

    def __init__(
        self, graph: FlowGraph, edge: Edge, key_type: type[K] | None, parallelism: int | None
    ) -> None:
        self._graph = graph
        self._edge = edge
        self._key_type = key_type
        self._parallelism = parallelism

    @property
    def place(self) -> Place:
        """Where the stream is in the graph of its flow."""
        return Place(self._graph, self._edge, True, self._key_type, self._parallelism)

    def process(self, function: KeyedProcess[K, T, U], *, name: str) -> Stream[U]:
        """Handle each record with the state and the timers of its key."""
        check_keyed_process(function)
        return self._step(
            "process",
            name,
            lambda: KeyedProcessOperator(function, key_type=self._key_type),
            sides=True,
        )

    def reduce(self, fn: Callable[[T, T], T], *, name: str, of: type[T] | None = None) -> Stream[T]:
        """Combine the records of each key one after the other, and emit what they have come to after each.

        ``fn(so_far, value)`` returns the new value; the first record of a key is taken as it is. ``of`` is the
        type by which snapshots store it.
        """
        check_function(fn, "reduce")
        return self._accumulate("reduce", name, reducing(fn), of)

    def fold(
        self,
        initial: Initial[A],
        fn: Callable[[A, T], A],
        *,
        name: str,
        of: type[A] | None = None,
    ) -> Stream[A]:
        """Fold the records of each key into an accumulator, and emit it after each record.

        ``initial()`` makes the accumulator of a new key and ``fn(accumulator, value)`` returns the next one;
        return a new object rather than a changed one, since the old one was emitted. ``of`` is the type by which
        snapshots store it.
        """
        check_function(initial, "fold")
        check_function(fn, "fold")
        return self._accumulate("fold", name, folding(initial, fn), of)

    def window(
        self, windows: Windows, *, lateness: timedelta = timedelta(0)
    ) -> WindowedStream[K, T]:
        """Collect the records of each key in windows of event time.

        A window gives its result when the watermark passes its end. For ``lateness`` after that, a record that
        belongs to it still counts and gives the result of its key again, corrected; later ones go to ``.late``.
        """
        allowed = to_millis(lateness, what="lateness")
        if allowed < 0:
            raise FlowDefinitionError(f"lateness must not be negative, and it is {lateness!r}")
        if not isinstance(windows, Windows):
            raise FlowDefinitionError(
                f"window() takes aflow.Tumbling or aflow.Sliding, not {shown(windows)}"
            )
        return WindowedStream(
            self._graph, self._edge, windows, allowed, self._key_type, self._parallelism
        )

    def connect(self, other: KeyedStream[K, R]) -> ConnectedStreams[K, T, R]:
        """Bring the records of two streams together by key; go on with ``.process(CoProcess)``."""
        return ConnectedStreams(Pair.of(self, other, "connect"))

    def connect_broadcast(self, control: Stream[R]) -> BroadcastConnectedStreams[K, T, R]:
        """Give every subtask all records of ``control``; go on with ``.process(BroadcastProcess)``."""
        read = place_of(control, "connect_broadcast", keyed=False)
        check_flow(self.place, read, "connect_broadcast")
        return BroadcastConnectedStreams(self.place, read)

    def _accumulate(
        self, what: str, name: str, accumulation: Accumulation, of: type[Any] | None
    ) -> Stream[Any]:
        check_storable(of, f"step {name!r} ({what})")
        return self._step(
            what, name, lambda: KeyedAccumulateOperator(accumulation, of, self._key_type)
        )

    def _step(
        self, what: str, name: str, operator: Callable[[], Operator], *, sides: bool = False
    ) -> Stream[Any]:
        node = self._graph.add_step(
            what,
            name,
            (self._edge,),
            operator,
            stateful=True,
            sides=sides,
            parallelism=self._parallelism,
        )
        return Stream(self._graph, Edge(node))
