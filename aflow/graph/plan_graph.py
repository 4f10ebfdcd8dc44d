"""A plan as a person reads it: as text for a terminal, and as a Mermaid flowchart for a document.

Both are functions of the plan alone, and the same plan gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_letters, digits
from typing import TypeAlias

from aflow.graph.guarantee import Guarantee, Recovery, after_crash, weakest
from aflow.graph.nodes import Broadcast, Custom, Edge, Forward, HashByKey, Kind, Node, Rebalance
from aflow.graph.plan import Channels, Plan, TaskPlan
from aflow.graph.unread_outputs import unread

__all__ = ["to_mermaid", "to_text"]

Dropped: TypeAlias = Mapping[int, Sequence[str]]
"""By id of a node, what no step reads of it."""

#: Up to this many key-group ranges of a task are listed; of more, the first two and the last.
_RANGES_SHOWN = 8

#: What a Mermaid label shows as it is. All else is written as a character code: quotes end a label, ``%%{`` is a
#: directive and a backtick begins Markdown even inside of quotes, and Mermaid looks for ``style…:`` anywhere.
_PLAIN = frozenset(ascii_letters + digits + " _-.,()=/+*×·→[]{}'")


def to_text(plan: Plan) -> str:
    """The tasks with their chains, exchanges and key groups, then what a crash means for each sink."""
    subtasks = sum(task.parallelism for task in plan.tasks)
    lines = [
        f"flow {plan.flow!r}: {_count(len(plan.tasks), 'task')} in {_count(subtasks, 'subtask')}, "
        f"{_count(plan.key_groups, 'key group')}"
    ]
    homes, dropped = _homes(plan), unread(plan)
    for task in plan.tasks:
        lines += ["", *_task_lines(plan, task, homes, dropped)]
    return "\n".join([*lines, "", *_guarantee_lines(plan)]) + "\n"


def to_mermaid(plan: Plan) -> str:
    """A Mermaid ``flowchart`` with one subgraph for each task; edges between tasks are labelled by their exchange."""
    dropped = unread(plan)
    lines = ["flowchart LR"]
    for task in plan.tasks:
        title = f"task {task.index} · {_count(task.parallelism, 'subtask')}"
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
    plan: Plan, task: TaskPlan, homes: dict[int, TaskPlan], dropped: Dropped
) -> Iterator[str]:
    yield f"task {task.index}: {_count(task.parallelism, 'subtask')}{_key_groups(plan, task)}"
    for number, channels in enumerate(task.incoming):
        yield f"  reads {_origin(channels, homes)}: {_exchange(channels, number)}"
    yield f"  {_node_line(task.head, dropped)}"
    yield from _branches(task, task.head, "  ", dropped)


def _branches(task: TaskPlan, parent: Node, indent: str, dropped: Dropped) -> Iterator[str]:
    """The steps chained behind ``parent``, as a tree; by a stack: a chain may be longer than Python recurses."""
    readers: dict[int, list[tuple[Edge, Node]]] = {}
    for edge, node in _links(task):
        readers.setdefault(edge.origin.id, []).append((edge, node))
    waiting = _siblings(readers, parent, indent)
    while waiting:
        edge, node, indent, last = waiting.pop()
        side = "" if edge.side is None else f" ← side output {edge.side!r}"
        yield f"{indent}{'└─' if last else '├─'} {_node_line(node, dropped)}{side}"
        waiting += _siblings(readers, node, indent + ("   " if last else "│  "))


def _siblings(
    readers: dict[int, list[tuple[Edge, Node]]], parent: Node, indent: str
) -> list[tuple[Edge, Node, str, bool]]:
    """The readers of ``parent`` to be drawn, last one first, with their indentation and whether each is the last."""
    found = readers.get(parent.id, [])
    last = len(found) - 1
    return [(edge, node, indent, at == last) for at, (edge, node) in enumerate(found)][::-1]


def _guarantee_lines(plan: Plan) -> Iterator[str]:
    for recovery in (Recovery.EXACTLY_ONCE, Recovery.AT_LEAST_ONCE, Recovery.NOTHING):
        entries = after_crash(plan, recovery)
        if recovery is Recovery.AT_LEAST_ONCE and entries == after_crash(
            plan, Recovery.EXACTLY_ONCE
        ):
            continue  # no sink is better than that, whatever is processed how often
        yield f"end-to-end guarantee {recovery.value}: {weakest(entries).value}"
        alike: dict[tuple[Guarantee, str], list[str]] = {}
        for entry in entries:
            alike.setdefault((entry.guarantee, entry.reason), []).append(entry.sink)
        for (guarantee, reason), sinks in alike.items():
            yield f"  {', '.join(sinks)}: {guarantee.value}; {reason}"


def _node_line(node: Node, dropped: Dropped) -> str:
    return f"{node.name}  {' · '.join(_facts(node, dropped))}"


def _facts(node: Node, dropped: Dropped) -> list[str]:
    """What a node is, then what is worth knowing about it."""
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
    """Who owns which key groups; said only of tasks that keep state by key."""
    if not any(node.stateful for node in task.nodes):
        return ""
    owned = [f"{one.start}–{one.stop - 1}" for one in plan.ranges(task)]
    if len(owned) > _RANGES_SHOWN:
        owned = [*owned[:2], "…", owned[-1]]
    return f", key groups {', '.join(owned)}"


def _origin(channels: Channels, homes: dict[int, TaskPlan]) -> str:
    origin = channels.edge.origin
    return f"{origin.name} of task {homes[origin.id].index}"


def _homes(plan: Plan) -> dict[int, TaskPlan]:
    return {node.id: task for task in plan.tasks for node in task.nodes}


def _links(task: TaskPlan) -> list[tuple[Edge, Node]]:
    """The edges inside of a task."""
    return [(node.inputs[0], node) for node in task.nodes[1:]]


def _exchange(channels: Channels, number: int) -> str:
    """How records get from one task to another, which, and as what: input ``number`` of their reader."""
    edge, roles = channels.edge, channels.reader.roles
    side = "" if edge.side is None else f", side output {edge.side!r}"
    role = f", as its {roles[number]} input" if roles else ""
    return _partitioning(edge) + side + role


def _partitioning(edge: Edge) -> str:
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
    label = "<br/>".join([_escaped(node.name), *(_escaped(fact) for fact in _facts(node, dropped))])
    return f'n{node.id}{begin}"{label}"{end}'


def _arrow(edge: Edge, node: Node, label: str | None = None) -> str:
    if label is None and edge.side is not None:
        label = f"side output {edge.side!r}"
    said = "" if label is None else f'|"{_escaped(label)}"|'
    return f"n{edge.origin.id} -->{said} n{node.id}"


def _escaped(text: str) -> str:
    """``text`` as the inside of a quoted Mermaid label; non-ASCII letters stay, line breaks become spaces."""
    flat = " ".join(text.split())
    return "".join(char if char in _PLAIN or char.isalnum() else f"#{ord(char)};" for char in flat)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
