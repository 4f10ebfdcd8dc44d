"""Check of the steps that take the watermarks of their source.

Such a step must get the records of a split, and the watermarks between them, in the order of the source. So it must be
in the task of the source, and the steps between the two emit the results of a record before they get the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aflow.errors import FlowDefinitionError
from aflow.graph.nodes import Kind, Node
from aflow.operators.base import Operator
from aflow.operators.event_time import EventTimeOperator


def check_source_watermarks(nodes: Sequence[Node], operators: Mapping[int, Operator]) -> None:
    """Raise ``FlowDefinitionError`` if a step of a task cannot have the watermarks of a source that it takes."""
    for node in nodes:
        operator = operators.get(node.id)
        if isinstance(operator, EventTimeOperator) and operator.from_source:
            _check(node, {one.id: one for one in nodes})


def _check(step: Node, chained: Mapping[int, Node]) -> None:
    node = step
    while True:
        origins = [chained.get(edge.origin.id) for edge in node.inputs]
        origin = origins[0] if len(origins) == 1 else None
        if origin is None:
            raise _refused(step, "has no source in its task")
        if origin.source is not None:
            if not origin.source.emits_watermarks:
                raise FlowDefinitionError(
                    f"step {step.name!r} takes the watermarks of source {origin.name!r}, which emits none; omit "
                    f"source_watermarks and use max_delay=…, or set emits_watermarks = True in the class of the source "
                    f"if its chunks have watermarks"
                )
            return
        if origin.kind is not Kind.STEP or any(_delays(origin)):
            raise _refused(
                step,
                f"reads step {origin.name!r} ({origin.what}), which the watermarks may overtake",
            )
        node = origin


def _delays(node: Node) -> Iterator[bool]:
    """Yield True if ``node`` may emit the result of a record after it got other records."""
    yield node.calls
    yield node.stateful
    yield node.begins_time


def _refused(step: Node, reason: str) -> FlowDefinitionError:
    return FlowDefinitionError(
        f"step {step.name!r} takes the watermarks of its source and {reason}; put "
        f".event_time(…, source_watermarks=True) directly after the source, with no exchange, union, change of "
        f"parallelism, async call or event time between them, and run with Options(chaining=True)"
    )
