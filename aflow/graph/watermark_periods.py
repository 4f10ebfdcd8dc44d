"""Watermarks that triggers downstream need between the records of a batch.

A watermark is emitted after a batch unless a record of the batch is late for it. A trigger that fires at multiples of a
period would then find more records in its window if batches are larger. So the steps where event time begins have the
periods of all downstream triggers, and emit a watermark at each multiple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from aflow.graph.nodes import Node
from aflow.operators.base import Operator
from aflow.operators.event_time import EventTimeOperator


def watermark_periods(nodes: Iterable[Node]) -> dict[int, tuple[int, ...]]:
    """Return the periods (ms) by the id of each node where event time begins, if there are any.

    ``nodes`` are sorted: each is after its inputs.
    """
    downstream: dict[int, set[int]] = {}
    needed: dict[int, tuple[int, ...]] = {}
    for node in reversed(list(nodes)):
        periods = downstream.pop(node.id, set[int]())
        if node.begins_time:
            # It replaces the watermarks of its inputs.
            if periods:
                needed[node.id] = tuple(sorted(periods))
            continue
        if node.windows is not None:
            periods.update(node.windows.trigger.periods)
        for edge in node.inputs:
            downstream.setdefault(edge.origin.id, set()).update(periods)
    return needed


def with_periods(node: Node, periods: tuple[int, ...]) -> Node:
    """Return ``node``, where event time begins, with an operator that emits watermarks at multiples of ``periods``."""
    make = node.operator
    if make is None or not periods:
        return node
    return replace(node, operator=_factory_with(make, periods))


def _factory_with(make: Callable[[], Operator], periods: tuple[int, ...]) -> Callable[[], Operator]:
    def make_with_periods() -> Operator:
        operator = make()
        if isinstance(operator, EventTimeOperator):
            operator.periods = periods
        return operator

    return make_with_periods
