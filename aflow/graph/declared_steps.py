"""The declared state of the steps of a plan."""

from __future__ import annotations

from aflow.graph.nodes import Kind, Node
from aflow.graph.plan import Plan
from aflow.state.change_plan import DeclaredStep


def declared_steps(plan: Plan) -> list[DeclaredStep]:
    """Return all steps of ``plan`` with their declared state, for comparison with a stored checkpoint."""
    return [_declared(node, task.parallelism) for task in plan.tasks for node in task.nodes]


def _declared(node: Node, parallelism: int) -> DeclaredStep:
    states = None if node.operator is None else node.operator().declares()
    stateful = node.stateful or node.kind is Kind.SOURCE
    return DeclaredStep(node.name, node.what, parallelism, states, stateful)
