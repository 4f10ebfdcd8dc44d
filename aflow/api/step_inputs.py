"""Where a stream is in the graph of its flow: what steps with several inputs need to know of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from aflow.errors import FlowDefinitionError, shown
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge, Node
from aflow.operators.base import TwoInputOperator
from aflow.operators.windows.logic import WindowLogic


@dataclass(frozen=True, slots=True)
class Place:
    """The graph, the edge on which the records travel, and what ``key_by`` said of their keys."""

    graph: FlowGraph
    edge: Edge
    keyed: bool = False
    key_type: type[Hashable] | None = None
    parallelism: int | None = None


def place_of(stream: object, what: str, *, keyed: bool) -> Place:
    """Where ``stream`` is. Raises ``FlowDefinitionError`` unless it is a stream, with or without keys as asked for."""
    place = getattr(stream, "place", None)
    if isinstance(place, Place) and place.keyed is keyed:
        return place
    wanted = "a keyed stream" if keyed else "a stream without keys"
    hint = "; call .key_by(…) on it" if keyed and isinstance(place, Place) else ""
    raise FlowDefinitionError(f"{what}() takes {wanted}, not {shown(stream)}{hint}")


def check_flow(left: Place, right: Place, what: str) -> None:
    """Refuse streams of two flows."""
    if left.graph is not right.graph:
        raise FlowDefinitionError(
            f"{what}() brings together streams of one flow, and these belong to {left.graph.name!r} and "
            f"{right.graph.name!r}; build both in the same Flow"
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two keyed streams whose keys meet in the same subtasks."""

    left: Place
    right: Place
    key_type: type[Hashable] | None
    """As declared on either side."""

    @staticmethod
    def of(left: object, right: object, what: str) -> Pair:
        """Refuse what is no keyed stream of the same flow, parallelism and keys. Raises ``FlowDefinitionError``."""
        one, two = place_of(left, what, keyed=True), place_of(right, what, keyed=True)
        check_flow(one, two, what)
        if len({one.parallelism, two.parallelism} - {None}) > 1:
            raise FlowDefinitionError(
                f"{what}() needs both streams in the same subtasks, and their key_by asks for parallelism "
                f"{one.parallelism} and {two.parallelism}; leave it out on one side"
            )
        if len({one.key_type, two.key_type} - {None}) > 1:
            raise FlowDefinitionError(
                f"{what}() compares keys, and their key_by declares them as {shown(one.key_type)} and "
                f"{shown(two.key_type)}"
            )
        return Pair(one, two, one.key_type or two.key_type)

    def check_time(self, what: str, name: str) -> None:
        """Refuse a step by event time of which one input has that and the other has not.

        Time would not wait for the other, so which of its records come too late would be chance. Raises
        ``FlowDefinitionError``.
        """
        left, right = self.left.edge.origin.has_time, self.right.edge.origin.has_time
        if left is not right:
            has, lacks = ("left", "right") if left else ("right", "left")
            raise FlowDefinitionError(
                f"step {name!r} ({what}) goes by event time, which its {has} stream has and its {lacks} one has not; "
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
    ) -> Node:
        """Add a step that reads both."""
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
        )
