"""Fusion of the steps of a chain that can run as one comprehension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aflow.graph.nodes import Node
from aflow.operators.base import Operator
from aflow.operators.filter import FilterOperator
from aflow.operators.fused import FusedOperator, Fusible
from aflow.operators.map import MapOperator
from aflow.runtime.metrics import StepCounters
from aflow.runtime.outputs import OutputLink, StepOutput

Run = list[tuple[int, Fusible]]
"""Ids of nodes, each the only reader of the preceding one, and their operators."""


def fuse(
    nodes: Sequence[Node],
    operators: Mapping[int, Operator],
    links: Mapping[int, OutputLink],
    outputs: Mapping[int, StepOutput],
    counters: Mapping[int, StepCounters],
) -> None:
    """Let the link into the first step of each run lead to a ``FusedOperator``. The steps themselves are unchanged."""
    for run in _runs(nodes, operators, links, outputs):
        if len(run) > 1:
            ids, steps = zip(*run, strict=True)
            links[ids[0]].lead_to(FusedOperator(steps, [counters[one] for one in ids]))


def _runs(
    nodes: Sequence[Node],
    operators: Mapping[int, Operator],
    links: Mapping[int, OutputLink],
    outputs: Mapping[int, StepOutput],
) -> Iterator[Run]:
    taken: set[int] = set()
    for node in nodes:
        run: Run = []
        at: int | None = node.id
        while at is not None and at not in taken:
            operator = operators.get(at)
            if not isinstance(operator, MapOperator | FilterOperator) or not _fits(run, operator):
                break
            run.append((at, operator))
            taken.add(at)
            target = outputs[at].only_target
            at = next((one for one, link in links.items() if link is target), None)
        yield run


def _fits(run: Run, operator: Fusible) -> bool:
    """Return True unless the operator would be the second filter of the run."""
    return not isinstance(operator, FilterOperator) or not any(
        isinstance(step, FilterOperator) for _, step in run
    )
