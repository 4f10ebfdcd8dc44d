"""A plan as text for a terminal, and as a Mermaid flowchart for a document.

Both depend on the plan alone: equal plans have equal text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_letters, digits
from typing import TypeAlias

from aflow.graph.guarantee import Guarantee, RecoveryMode, after_crash, weakest
from aflow.graph.nodes import Broadcast, Custom, Edge, Forward, HashByKey, Kind, Node, Rebalance
from aflow.graph.plan import Channels, Plan, TaskPlan
from aflow.graph.tree import branches, counted, side_mark
from aflow.graph.unread_outputs import unread

__all__ = ["exchange_type", "to_mermaid", "to_text"]

Dropped: TypeAlias = Mapping[int, Sequence[str]]
"""By id of a node, its records that no step reads."""

#: The maximum number of key-group ranges listed for a task; of more, only the first two and the last.
_RANGES_SHOWN = 8

#: Characters of Mermaid labels that are not escaped. Others are written as character codes: quotes end a label,
#: ``%%{`` is a directive, a backtick begins Markdown even inside of quotes, and Mermaid looks for ``style…:`` anywhere.
_PLAIN = frozenset(ascii_letters + digits + " _-.,()=/+*×·→[]{}'")


def to_text(plan: Plan) -> str:
    """Return the tasks with their chains, exchanges and key groups, then the end-to-end guarantee of each sink."""
    subtasks = sum(task.parallelism for task in plan.tasks)
    lines = [
        f"flow {plan.flow!r}: {counted(len(plan.tasks), 'task')} in {counted(subtasks, 'subtask')}, "
        f"{counted(plan.key_groups, 'key group')}"
    ]
    task_of, dropped = _task_of(plan), unread(plan)
    for task in plan.tasks:
        lines += ["", *_task_lines(plan, task, task_of, dropped)]
    return "\n".join([*lines, "", *_guarantee_lines(plan)]) + "\n"


def to_mermaid(plan: Plan) -> str:
    """Return a Mermaid ``flowchart`` with a subgraph for each task; exchanges are labels of edges between tasks."""
    dropped = unread(plan)
    lines = ["flowchart LR"]
    for task in plan.tasks:
        title = f"task {task.index} · {counted(task.parallelism, 'subtask')}"
        lines.append(f'    subgraph task{task.index}["{_escaped(title)}"]')
        lines += [f"        {_shape(node, dropped)}" for node in task.nodes]
        lines += [f"        {_arrow(edge, node)}" for edge, node in _links(task)]
        lines.append("    end")
    lines += [
        f"    {_arrow(channels.edge, channels.reader, _exchange(channels, number))}"
        for task in plan.tasks
        for number, channels in enumerate(task.incoming)
    ]
    return "\n".join(lines) + "\n"


def _task_lines(
    plan: Plan, task: TaskPlan, task_of: dict[int, TaskPlan], dropped: Dropped
) -> Iterator[str]:
    yield f"task {task.index}: {counted(task.parallelism, 'subtask')}{_key_groups(plan, task)}"
    for number, channels in enumerate(task.incoming):
        yield f"  reads {_origin(channels, task_of)}: {_exchange(channels, number)}"
    yield f"  {_node_line(task.head, dropped)}"
    readers: dict[int, list[tuple[Edge, Node]]] = {}
    for edge, node in _links(task):
        readers.setdefault(edge.origin.id, []).append((edge, node))
    below = branches(readers.get(task.head.id, []), lambda one: readers.get(one[1].id, []), "  ")
    for start, (edge, node) in below:
        yield f"{start}{_node_line(node, dropped)}{side_mark(edge.side)}"


def _guarantee_lines(plan: Plan) -> Iterator[str]:
    for mode in (
        RecoveryMode.EXACTLY_ONCE,
        RecoveryMode.AT_LEAST_ONCE,
        RecoveryMode.NO_CHECKPOINTS,
    ):
        entries = after_crash(plan, mode)
        if mode is RecoveryMode.AT_LEAST_ONCE and entries == after_crash(
            plan, RecoveryMode.EXACTLY_ONCE
        ):
            continue  # The guarantee of each sink is the same as with exactly-once checkpoints.
        yield f"end-to-end guarantee {mode.value}: {weakest(entries).value}"
        alike: dict[tuple[Guarantee, str], list[str]] = {}
        for entry in entries:
            alike.setdefault((entry.guarantee, entry.reason), []).append(entry.sink)
        for (guarantee, reason), sinks in alike.items():
            yield f"  {', '.join(sinks)}: {guarantee.value}; {reason}"


def _node_line(node: Node, dropped: Dropped) -> str:
    return f"{node.name}  {' · '.join(_properties(node, dropped))}"


def _properties(node: Node, dropped: Dropped) -> list[str]:
    """Return the kind of a node, its parameters and its properties."""
    what = "sink" if node.kind is Kind.SINK else node.what
    facts = [f"{what} {node.detail}".rstrip()]
    if node.source is not None:
        facts.append("bounded" if node.source.bounded else "unbounded")
        facts.append("replayable" if node.source.replayable else "not replayable")
    if node.sink is not None:
        facts.append(f"delivers {node.sink.delivery.value}")
    if node.stateful:
        facts.append("keyed state")
    return [*facts, *dropped[node.id]]


def _key_groups(plan: Plan, task: TaskPlan) -> str:
    """Return the key groups of each subtask; empty for tasks without keyed state."""
    if not any(node.stateful for node in task.nodes):
        return ""
    owned = [f"{one.start}–{one.stop - 1}" for one in plan.ranges(task)]
    if len(owned) > _RANGES_SHOWN:
        owned = [*owned[:2], "…", owned[-1]]
    return f", key groups {', '.join(owned)}"


def _origin(channels: Channels, task_of: dict[int, TaskPlan]) -> str:
    origin = channels.edge.origin
    return f"{origin.name} of task {task_of[origin.id].index}"


def _task_of(plan: Plan) -> dict[int, TaskPlan]:
    return {node.id: task for task in plan.tasks for node in task.nodes}


def _links(task: TaskPlan) -> list[tuple[Edge, Node]]:
    """Return the edges inside of a task."""
    return [(node.inputs[0], node) for node in task.nodes[1:]]


def _exchange(channels: Channels, number: int) -> str:
    """Return the partitioning of an exchange, its side output, and the role of its records in the reader."""
    edge, roles = channels.edge, channels.reader.roles
    side = "" if edge.side is None else f", side output {edge.side!r}"
    role = f", as its {roles[number]} input" if roles else ""
    return exchange_type(edge) + side + role


def exchange_type(edge: Edge) -> str:
    """Return the name of the partitioning of ``edge``: ``hash by key``, for example."""
    match edge.partitioning:
        case Forward():
            return "forward"
        case HashByKey():
            return "hash by key"
        case Rebalance():
            return "rebalance"
        case Broadcast():
            return "broadcast"
        case Custom(choose):
            return f"partition by {getattr(choose, '__name__', type(choose).__name__)}"


_BRACKETS = {Kind.SOURCE: ("([", "])"), Kind.STEP: ("[", "]"), Kind.SINK: ("[(", ")]")}


def _shape(node: Node, dropped: Dropped) -> str:
    begin, end = _BRACKETS[node.kind]
    label = "<br/>".join(
        [_escaped(node.name), *(_escaped(fact) for fact in _properties(node, dropped))]
    )
    return f'n{node.id}{begin}"{label}"{end}'


def _arrow(edge: Edge, node: Node, label: str | None = None) -> str:
    if label is None and edge.side is not None:
        label = f"side output {edge.side!r}"
    labelled = "" if label is None else f'|"{_escaped(label)}"|'
    return f"n{edge.origin.id} -->{labelled} n{node.id}"


def _escaped(text: str) -> str:
    """Escape ``text`` for a quoted Mermaid label; non-ASCII letters are kept, line breaks become spaces."""
    flat = " ".join(text.split())
    return "".join(char if char in _PLAIN or char.isalnum() else f"#{ord(char)};" for char in flat)
