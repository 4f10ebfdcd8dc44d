"""Side outputs that no step reads: their records are counted and dropped, and plans show it."""

from __future__ import annotations

from typing import Final

from aflow.graph.nodes import Node
from aflow.graph.plan import Plan
from aflow.machines.windows.assigners import GlobalWindows
from aflow.model.time import TimeDomain
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT
from aflow.operators.windows.lateness import LATE

#: Steps in event time that have no windows and two inputs.
_JOINS: Final = frozenset({"interval_join", "as_of_join"})

_DROPPED: Final = {
    LATE: "late records dropped",
    LATE_LEFT: "late left records dropped",
    LATE_RIGHT: "late right records dropped",
}


def unread(plan: Plan) -> dict[int, list[str]]:
    """Return, by id of a node, descriptions of its outputs that no step reads.

    The side outputs that user code writes to are not known before it runs; such a step is listed if no step reads any
    of its side outputs.
    """
    nodes = [node for task in plan.tasks for node in task.nodes]
    read = {
        (edge.origin.id, edge.side)
        for node in nodes
        for edge in node.inputs
        if edge.side is not None
    }
    found: dict[int, list[str]] = {}
    for node in nodes:
        late = late_sides(node)
        dropped = [_DROPPED[side] for side in late if (node.id, side) not in read]
        others = any(origin == node.id and side not in late for origin, side in read)
        if node.sides and not others:
            dropped.append("no side output read")
        found[node.id] = dropped
    return found


def late_sides(node: Node) -> tuple[str, ...]:
    """Return the names of the side outputs of a step for late records."""
    if node.windows is not None:
        assigner = node.windows.assigner
        if assigner.domain is not TimeDomain.EVENT or isinstance(assigner, GlobalWindows):
            return ()
    elif node.what not in _JOINS:
        return ()
    return (LATE_LEFT, LATE_RIGHT) if node.roles else (LATE,)
