"""The declared state of steps, of a plan or of a graph."""

from __future__ import annotations

from aflow.graph.nodes import Kind, Node
from aflow.graph.plan import Plan
from aflow.state.change_plan import DeclaredStep


def declared_steps(plan: Plan) -> list[DeclaredStep]:
    """Return all steps of ``plan`` with their declared state, for comparison with a stored checkpoint."""
    return [declared_step(node, task.parallelism) for task in plan.tasks for node in task.nodes]


def declared_step(node: Node, parallelism: int) -> DeclaredStep:
    """Return one step with its declared state."""
    states = None if node.operator is None else node.operator().declares()
    stateful = node.stateful or node.kind is Kind.SOURCE
    return DeclaredStep(node.name, node.what, parallelism, states, stateful)
