"""Inputs of steps that read several streams, and the checks that they fit each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from aflow.errors import FlowDefinitionError, shown
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge, Node
from aflow.machines.calls.on_error import FAIL, OnError
from aflow.operators.base import TwoInputOperator
from aflow.operators.watermark_use import WatermarkUse
from aflow.operators.windows.logic import WindowLogic


@dataclass(frozen=True, slots=True)
class StepInput:
    """A stream as the input of a step: its graph, the edge that carries its records, and the options of ``key_by``."""

    graph: FlowGraph
    edge: Edge
    keyed: bool = False
    key_type: type[Hashable] | None = None
    parallelism: int | None = None


def step_input_of(stream: object, what: str, *, keyed: bool) -> StepInput:
    """Return the input for ``stream``. Raises ``FlowDefinitionError`` unless it has keys as required."""
    found = getattr(stream, "step_input", None)
    if isinstance(found, StepInput) and found.keyed is keyed:
        return found
    wanted = "a keyed stream" if keyed else "a stream without keys"
    hint = "; call .key_by(…) on it" if keyed and isinstance(found, StepInput) else ""
    raise FlowDefinitionError(f"{what}() takes {wanted}, not {shown(stream)}{hint}")


def check_flow(left: StepInput, right: StepInput, what: str) -> None:
    """Raise ``FlowDefinitionError`` if the streams belong to two flows."""
    if left.graph is not right.graph:
        raise FlowDefinitionError(
            f"{what}() takes streams of one flow, and these belong to {left.graph.name!r} and "
            f"{right.graph.name!r}; build both in the same Flow"
        )


@dataclass(frozen=True, slots=True)
class KeyedPair:
    """Two keyed streams of which equal keys belong to the same subtask."""

    left: StepInput
    right: StepInput
    key_type: type[Hashable] | None
    """The type declared for the keys of either stream."""

    @staticmethod
    def of(left: object, right: object, what: str) -> KeyedPair:
        """Return the pair. Raises ``FlowDefinitionError`` unless both fit: keys, flow, parallelism, types."""
        one, two = step_input_of(left, what, keyed=True), step_input_of(right, what, keyed=True)
        check_flow(one, two, what)
        if len({one.parallelism, two.parallelism} - {None}) > 1:
            raise FlowDefinitionError(
                f"{what}() needs both streams in the same subtasks, and their key_by sets parallelism "
                f"{one.parallelism} and {two.parallelism}; leave it out on one side"
            )
        if len({one.key_type, two.key_type} - {None}) > 1:
            raise FlowDefinitionError(
                f"{what}() compares keys, and their key_by declares them as {shown(one.key_type)} and "
                f"{shown(two.key_type)}"
            )
        return KeyedPair(one, two, one.key_type or two.key_type)

    def check_time(self, what: str, name: str) -> None:
        """Raise ``FlowDefinitionError`` for a step in event time if only one input has event time.

        The watermark would not wait for the other one, so lateness of its records would be random.
        """
        left, right = self.left.edge.origin.has_time, self.right.edge.origin.has_time
        if left is not right:
            has, lacks = ("left", "right") if left else ("right", "left")
            raise FlowDefinitionError(
                f"step {name!r} ({what}) uses event time, which its {has} stream has and its {lacks} one has not; "
                f"call .event_time(…) before .key_by(…) on the {lacks} one"
            )

    def add_step(
        self,
        what: str,
        name: str,
        operator: Callable[[], TwoInputOperator],
        *,
        sides: bool = False,
        detail: str = "",
        windows: WindowLogic | None = None,
        on_error: OnError[Any] = FAIL,
        watermarks: WatermarkUse = WatermarkUse.APPLIED_FOR_READERS,
    ) -> Node:
        """Add a step that reads both streams."""
        return self.left.graph.add_step(
            what,
            name,
            (self.left.edge, self.right.edge),
            operator,
            stateful=True,
            sides=sides,
            parallelism=self.left.parallelism or self.right.parallelism,
            detail=detail,
            windows=windows,
            on_error=on_error,
            watermarks=watermarks,
        )
