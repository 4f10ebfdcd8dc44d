"""Pairs of streams that one step reads, and the results of joins."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Generic, TypeVar

from aflow.api.step_inputs import KeyedPair, StepInput
from aflow.api.stream import Stream
from aflow.graph.nodes import Broadcast, Edge
from aflow.operators.broadcast_process import (
    BroadcastProcess,
    BroadcastProcessOperator,
    check_broadcast_process,
)
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT
from aflow.operators.keyed_function import CoProcess, CoProcessOperator, check_co_process
from aflow.operators.watermark_use import WatermarkUse

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
        """Left records that were too late to be joined, unchanged; counted if no step reads them."""
        return Stream(self._graph, Edge(self._edge.origin, side=LATE_LEFT))

    @property
    def late_right(self) -> Stream[R]:
        """Right records that were too late to be joined, unchanged; counted if no step reads them."""
        return Stream(self._graph, Edge(self._edge.origin, side=LATE_RIGHT))


class ConnectedStreams(Generic[K, L, R]):
    """Two keyed streams with common state for each key: records ``L`` of the left one, ``R`` of the right one."""

    def __init__(self, pair: KeyedPair) -> None:
        self._pair = pair

    def process(self, function: CoProcess[K, L, R, U], *, name: str) -> Stream[U]:
        """Process the records of both streams with common state and timers for each key.

        Records of the two streams are processed in the order of their arrival, not of event time.
        """
        check_co_process(function)
        pair, key_type = self._pair, self._pair.key_type
        node = pair.add_step(
            "connect.process",
            name,
            lambda: CoProcessOperator(function, key_type),
            sides=True,
            watermarks=WatermarkUse.READ,
        )
        return Stream(pair.left.graph, Edge(node))


class BroadcastConnectedStreams(Generic[K, T, C]):
    """A stream, and a control stream whose records are sent to every subtask."""

    def __init__(self, stream: StepInput, control: StepInput) -> None:
        self._stream = stream
        self._control = control

    def process(self, function: BroadcastProcess[K, T, C, U], *, name: str) -> Stream[U]:
        """Process the records of the stream with the broadcast state that control records write.

        The order of records and control records is that of their arrival, not of event time.
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
            watermarks=WatermarkUse.READ,
        )
        return Stream(stream.graph, Edge(node))
