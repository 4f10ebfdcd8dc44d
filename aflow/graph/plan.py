"""The plan of a job: tasks with their chained steps, their numbers of subtasks, and the exchanges between them.

Chaining rule: a step runs in the task of its input if that is its only input, the records need no redistribution, and
both have the same parallelism. A hash, rebalance or custom exchange from one subtask to one subtask redistributes
nothing, so it is no exchange. A step calls the next one, so at most ``LONGEST_CHAIN`` steps follow each other in a
task.

Parallelism rule: a source has its own or the job's, bounded by the source; a step after an exchange has the one of the
node or the job's; every other step has that of its input. A broadcast beside an input without exchange does not count:
the step has the parallelism of the other input, and the broadcast is sent to all its subtasks.

Time rule: event time begins at ``event_time`` and ``ingestion_time``. The watermark of a step with several inputs is
the smallest of theirs. An input without event time would hold it back for ever, so a step that distinguishes its inputs
does not wait for it. A union does wait: its records are merged, and those without event time would be late at random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from aflow.errors import FlowDefinitionError
from aflow.graph.flow_graph import FlowGraph, check_parallelism
from aflow.graph.nodes import Broadcast, Edge, Forward, Kind, Node, Rebalance
from aflow.graph.watermark_needs import watermark_needs, with_needs
from aflow.graph.watermark_periods import watermark_periods, with_periods
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange, ranges

#: Maximum number of steps after one another in a task. A watermark takes up to nine frames in each, of the 1,000 that
#: Python permits.
LONGEST_CHAIN: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """An exchange between two tasks: ``edge`` of node ``reader``, from all subtasks of one to all of the other."""

    edge: Edge
    reader: Node
    timeless: bool = False
    """True if only another input of the reader has event time: the watermark does not wait for this one."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskPlan:
    """Chained steps, which run in one coroutine for each subtask."""

    index: int
    nodes: tuple[Node, ...]
    """The chain: its head first, every other node after its only input."""
    parallelism: int
    incoming: tuple[Channels, ...]
    """The exchanges into the head; empty for a source."""

    @property
    def head(self) -> Node:
        """The first node, which reads the task's input."""
        return self.nodes[0]

    @property
    def name(self) -> str:
        """The names of the steps, joined by arrows."""
        return " → ".join(node.name for node in self.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Tasks of a job and the exchanges between them."""

    flow: str
    tasks: tuple[TaskPlan, ...]
    """The tasks, each after its upstream tasks."""
    key_groups: int

    def ranges(self, task: TaskPlan) -> list[KeyGroupRange]:
        """Return the key groups of each subtask of ``task``."""
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
    """Plan the pipeline with ``parallelism`` as the default number of subtasks.

    ``chaining=False`` gives every step a task of its own, to measure the cost of exchanges.
    Raises ``FlowDefinitionError`` for an invalid graph and for more subtasks than key groups.
    """
    check_parallelism(parallelism)
    graph.validate()
    drafts: list[_Draft] = []
    draft_of: dict[int, _Draft] = {}
    #: Number of steps from the head of the task to each node.
    depth_of: dict[int, int] = {}
    periods, needs = watermark_periods(graph), watermark_needs(graph)
    for node in graph:
        wanted = _parallelism(node, draft_of, parallelism)
        _check_key_groups(node, wanted, key_groups)
        inputs = tuple(
            _simplified(edge, draft_of[edge.origin.id].parallelism, wanted) for edge in node.inputs
        )
        planned = with_periods(replace(node, inputs=inputs), periods.get(node.id, ()))
        planned = with_needs(planned, needs[node.id])
        depth = 1 + max((depth_of[edge.origin.id] for edge in inputs), default=0)
        if chaining and depth <= LONGEST_CHAIN and _chainable(planned, draft_of, wanted):
            draft = draft_of[node.inputs[0].origin.id]
            draft.nodes.append(planned)
            depth_of[node.id] = depth
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
            depth_of[node.id] = 1
        draft_of[node.id] = draft
    tasks = tuple(
        TaskPlan(index, tuple(draft.nodes), draft.parallelism, tuple(draft.incoming))
        for index, draft in enumerate(drafts)
    )
    return Plan(graph.name, tasks, key_groups)


def _parallelism(node: Node, draft_of: dict[int, _Draft], default: int) -> int:
    if node.kind is Kind.SOURCE:
        assert node.source is not None
        most = node.source.max_parallelism
        if most is not None and (node.parallelism or 1) > most:
            raise FlowDefinitionError(
                f"source {node.name!r} can be read by {most} subtask(s) at most, not by {node.parallelism}; "
                f"distribute its records after it with .rebalance({node.parallelism})"
            )
        wanted = node.parallelism or default
        return wanted if most is None else min(wanted, most)
    if node.parallelism is not None:
        return node.parallelism
    forward = [edge for edge in node.inputs if isinstance(edge.partitioning, Forward)]
    broadcast = [edge for edge in node.inputs if isinstance(edge.partitioning, Broadcast)]
    if not forward or len(forward) + len(broadcast) < len(node.inputs):
        return default
    return max(draft_of[edge.origin.id].parallelism for edge in forward)


def _check_key_groups(node: Node, wanted: int, key_groups: int) -> None:
    if wanted > key_groups:
        raise FlowDefinitionError(
            f"step {node.name!r} has parallelism {wanted} but there are only {key_groups} key groups; "
            f"lower the parallelism or run with more key groups"
        )


def _simplified(edge: Edge, writers: int, readers: int) -> Edge:
    """Return ``edge``: a forward from one subtask to one, a rebalance if a forward has unequal parallelisms."""
    if isinstance(edge.partitioning, Forward):
        return edge if writers == readers else replace(edge, partitioning=Rebalance())
    if writers == readers == 1:
        return replace(edge, partitioning=Forward())
    return edge


def _chainable(node: Node, draft_of: dict[int, _Draft], wanted: int) -> bool:
    if len(node.inputs) != 1:
        return False
    edge = node.inputs[0]
    return isinstance(edge.partitioning, Forward) and draft_of[edge.origin.id].parallelism == wanted
