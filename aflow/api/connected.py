"""Two streams side by side, and the process functions that read both."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Generic, TypeVar

from aflow.api.step_inputs import Pair, Place
from aflow.api.stream import Stream
from aflow.graph.nodes import Broadcast, Edge
from aflow.operators.broadcast_process import (
    BroadcastProcess,
    BroadcastProcessOperator,
    check_broadcast_process,
)
from aflow.operators.co_process import CoProcess, CoProcessOperator, check_co_process
from aflow.operators.joins.late_outputs import LATE_LEFT, LATE_RIGHT

K = TypeVar("K", bound=Hashable)
L = TypeVar("L")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C")
U = TypeVar("U")


class JoinResults(Stream[U], Generic[L, R, U]):
    """Results ``U`` of joining records ``L`` (left) with records ``R`` (right)."""

    @property
    def late_left(self) -> Stream[L]:
        """The left records that came too late to be joined, as they were; unread, they are only counted."""
        return Stream(self._graph, Edge(self._edge.origin, side=LATE_LEFT))

    @property
    def late_right(self) -> Stream[R]:
        """The right records that came too late to be joined, as they were; unread, they are only counted."""
        return Stream(self._graph, Edge(self._edge.origin, side=LATE_RIGHT))


class ConnectedStreams(Generic[K, L, R]):
    """Two keyed streams whose records of one key come to one place: ``L`` from the left, ``R`` from the right."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def process(self, function: CoProcess[K, L, R, U], *, name: str) -> Stream[U]:
        """Handle the records of both streams with common state and timers for each key.

        In which order records of the two come is a matter of arrival, not of event time.
        """
        check_co_process(function)
        pair, key_type = self._pair, self._pair.key_type
        node = pair.add_step(
            "connect.process", name, lambda: CoProcessOperator(function, key_type), sides=True
        )
        return Stream(pair.left.graph, Edge(node))


class BroadcastConnectedStreams(Generic[K, T, C]):
    """A stream, and a control stream of which every subtask gets every record."""

    def __init__(self, stream: Place, control: Place) -> None:
        self._stream = stream
        self._control = control

    def process(self, function: BroadcastProcess[K, T, C, U], *, name: str) -> Stream[U]:
        """Handle the records of the stream by what the control stream has said so far.

        How many control records have come when a record is handled is a matter of arrival, not of event time.
        """
        stream, control = self._stream, self._control
        check_broadcast_process(function, keyed=stream.keyed)
        node = stream.graph.add_step(
            "connect_broadcast.process",
            name,
            (stream.edge, replace(control.edge, partitioning=Broadcast())),
            lambda: BroadcastProcessOperator(function, stream.key_type, keyed=stream.keyed),
            stateful=True,
            sides=True,
            parallelism=stream.parallelism,
        )
        return Stream(stream.graph, Edge(node))
