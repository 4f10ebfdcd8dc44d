"""From the description to what will run: which steps share a task, with how many subtasks, joined by which exchanges.

Chaining rule: a step runs in the task of its input if that is its only input, the records need no redistribution, and
both have the same parallelism. A hash, rebalance or custom exchange from one subtask to one subtask redistributes
nothing, so it is no exchange.

Parallelism rule: a source takes its own or the job's, bounded by the source; a step behind an exchange takes the
one asked for there or the job's; every other step has that of its input. A broadcast beside an input that is no
exchange has no say: the step stays with the records that it handles, and the broadcast goes wherever they are.

Time rule: event time begins at the steps that say so (``event_time``). Behind a step that reads several inputs, time is
that of the slowest. An input on which it never began would stop time for the other one, so a step that tells its inputs
apart does not wait for it. A union does: its records are mixed with the others, and would be late as it happens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aflow.errors import FlowDefinitionError
from aflow.graph.flow_graph import FlowGraph, check_parallelism
from aflow.graph.nodes import Broadcast, Edge, Forward, Kind, Node, Rebalance
from aflow.graph.watermark_periods import watermark_periods, with_periods
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange, ranges


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """An exchange between two tasks: ``edge`` of node ``reader``, from all subtasks of one to all of the other."""

    edge: Edge
    reader: Node
    timeless: bool = False
    """True if its records have no event time and those of another input have: the reader's time waits for those."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskPlan:
    """Steps that run together in one coroutine for each subtask."""

    index: int
    nodes: tuple[Node, ...]
    """The chain: its head first, every other node after its only input."""
    parallelism: int
    incoming: tuple[Channels, ...]
    """The exchanges that the head reads; empty for a source."""

    @property
    def head(self) -> Node:
        """The node that reads the task's input."""
        return self.nodes[0]

    @property
    def name(self) -> str:
        """The names of the steps, as one."""
        return " → ".join(node.name for node in self.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a job runs."""

    flow: str
    tasks: tuple[TaskPlan, ...]
    """Each after the tasks that feed it."""
    key_groups: int

    def ranges(self, task: TaskPlan) -> list[KeyGroupRange]:
        """The key groups of each subtask of ``task``."""
        return ranges(self.key_groups, task.parallelism)


@dataclass(slots=True)
class _Draft:
    nodes: list[Node]
    parallelism: int
    incoming: list[Channels]


def make_plan(
    graph: FlowGraph,
    *,
    parallelism: int = 1,
    key_groups: int = DEFAULT_KEY_GROUPS,
    chaining: bool = True,
) -> Plan:
    """Plan the pipeline for ``parallelism`` subtasks where the pipeline does not say otherwise.

    ``chaining=False`` gives every step a task of its own, which shows what the exchanges cost.
    Raises ``FlowDefinitionError`` for an invalid graph and for more subtasks than key groups.
    """
    check_parallelism(parallelism)
    graph.validate()
    drafts: list[_Draft] = []
    home: dict[int, _Draft] = {}
    periods = watermark_periods(graph)
    for node in graph:
        wanted = _parallelism(node, home, parallelism)
        _check_key_groups(node, wanted, key_groups)
        inputs = tuple(
            _simplified(edge, home[edge.origin.id].parallelism, wanted) for edge in node.inputs
        )
        planned = with_periods(replace(node, inputs=inputs), periods.get(node.id, ()))
        if chaining and _chainable(planned, home, wanted):
            draft = home[node.inputs[0].origin.id]
            draft.nodes.append(planned)
        else:
            incoming = [
                Channels(
                    edge,
                    planned,
                    timeless=bool(node.roles) and node.has_time and not edge.origin.has_time,
                )
                for edge in inputs
            ]
            draft = _Draft([planned], wanted, incoming)
            drafts.append(draft)
        home[node.id] = draft
    tasks = tuple(
        TaskPlan(index, tuple(draft.nodes), draft.parallelism, tuple(draft.incoming))
        for index, draft in enumerate(drafts)
    )
    return Plan(graph.name, tasks, key_groups)


def _parallelism(node: Node, home: dict[int, _Draft], default: int) -> int:
    if node.kind is Kind.SOURCE:
        assert node.source is not None
        most = node.source.max_parallelism
        if most is not None and (node.parallelism or 1) > most:
            raise FlowDefinitionError(
                f"source {node.name!r} can be read by {most} subtask(s) at most, not by {node.parallelism}; "
                f"spread its records behind it with .rebalance({node.parallelism})"
            )
        wanted = node.parallelism or default
        return wanted if most is None else min(wanted, most)
    if node.parallelism is not None:
        return node.parallelism
    forward = [edge for edge in node.inputs if isinstance(edge.partitioning, Forward)]
    broadcast = [edge for edge in node.inputs if isinstance(edge.partitioning, Broadcast)]
    if not forward or len(forward) + len(broadcast) < len(node.inputs):
        return default
    return max(home[edge.origin.id].parallelism for edge in forward)


def _check_key_groups(node: Node, wanted: int, key_groups: int) -> None:
    if wanted > key_groups:
        raise FlowDefinitionError(
            f"step {node.name!r} has parallelism {wanted} but there are only {key_groups} key groups to share out; "
            f"lower the parallelism or run with more key groups"
        )


def _simplified(edge: Edge, writers: int, readers: int) -> Edge:
    """An exchange from one to one is a forward; a forward between unequal parallelisms has to rebalance."""
    if isinstance(edge.partitioning, Forward):
        return edge if writers == readers else replace(edge, partitioning=Rebalance())
    if writers == readers == 1:
        return replace(edge, partitioning=Forward())
    return edge


def _chainable(node: Node, home: dict[int, _Draft], wanted: int) -> bool:
    if len(node.inputs) != 1:
        return False
    edge = node.inputs[0]
    return isinstance(edge.partitioning, Forward) and home[edge.origin.id].parallelism == wanted
