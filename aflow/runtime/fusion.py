"""Steps of a chain that can run as one loop."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

from aflow.graph.nodes import Node
from aflow.operators.base import Operator
from aflow.operators.fused import Fusible
from aflow.operators.stateless import FilterOperator, MapOperator


def fusible_runs(
    nodes: Sequence[Node], operators: Mapping[int, Operator], exchanged: Collection[int]
) -> dict[int, dict[int, Fusible]]:
    """Return the runs of two or more steps of a chain that can be fused, by the id of their first step.

    A run has the operators of its steps by their ids, in order. Each step is the only reader of the preceding one;
    ``exchanged`` are the ids of the steps that other tasks read.
    """
    readers: dict[int, list[int]] = {}
    for node in nodes[1:]:
        for edge in node.inputs:
            readers.setdefault(edge.origin.id, []).append(node.id)
    runs: dict[int, dict[int, Fusible]] = {}
    taken: set[int] = set()
    for node in nodes:
        run: dict[int, Fusible] = {}
        at = node.id
        while at not in taken and _fits(operator := operators.get(at), run):
            run[at] = operator
            taken.add(at)
            following = readers.get(at, [])
            if len(following) != 1 or at in exchanged:
                break
            at = following[0]
        if len(run) > 1:
            runs[node.id] = run
    return runs


def _fits(operator: Operator | None, run: Mapping[int, Fusible]) -> TypeGuard[Fusible]:
    """Return True if ``operator`` can be fused, and is not the second filter of the run."""
    if isinstance(operator, FilterOperator):
        return not any(isinstance(step, FilterOperator) for step in run.values())
    return isinstance(operator, MapOperator)
