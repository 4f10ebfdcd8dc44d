"""The policy of a step for failed records: its ``on_error``, or that of the flow."""

from __future__ import annotations

from typing import Any

from aflow.errors import FlowDefinitionError
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge
from aflow.machines.calls.on_error import Fallback, OnError, check_on_error


def error_policy(
    graph: FlowGraph, on_error: OnError[Any] | None, method: str, *inputs: Edge, fallback: str = ""
) -> OnError[Any]:
    """Return the policy of a step. Raises ``FlowDefinitionError`` for anything else.

    ``fallback`` is the reason why ``Fallback`` has no meaning for the step; empty if it has one.
    """
    if on_error is None:
        return graph.default_policy(*inputs)
    check_on_error(on_error)
    if fallback and isinstance(on_error, Fallback):
        raise FlowDefinitionError(
            f"{method}(on_error=Fallback(…)): {fallback}; use Drop() or DeadLetter(tag), or call the function within "
            f"one of your own"
        )
    return on_error


#: The reason why a fold has no fallback.
NO_RESULT_OF_A_RECORD = "a record that is folded has no result of its own that could be replaced"
