"""Split of a flow at its keyed exchanges: the steps of each fragment, and its exits.

Heads are the sources and the steps that read by key. A step belongs to the fragment of every head from which it is
reachable without a keyed exchange, so a step downstream of a union is in several fragments. Each copy receives the
records of its own path, and no record reaches two copies. That is correct because such steps keep no state between
records; steps with keyed state are heads themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, starmap
from typing import Final

from aflow.backfill.event_time_only import in_event_time
from aflow.backfill.fragments import NEVER, Exit, Fragment, FragmentPlan
from aflow.backfill.partial import merging_step, partial_step
from aflow.backfill.refusals import refuse_unsupported
from aflow.errors import FlowDefinitionError, InternalError, shown
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Edge, HashByKey, Kind, Node
from aflow.graph.unread_outputs import late_sides
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import Count, Delta, EventTime, Never, Purging
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.operators.joins.interval import IntervalJoinOperator

#: Steps in which user code registers event-time timers.
_WITH_TIMERS: Final = frozenset({"process", "connect.process", "process_async"})

#: Triggers whose decisions on records in event-time order do not depend on the lag of the watermark. Composed triggers
#: are checked recursively.
_IGNORES_LAG: Final = (EventTime, Count, Delta, Never, Purging)


def plan_fragments(
    graph: FlowGraph,
    *,
    key_groups: int = DEFAULT_KEY_GROUPS,
    event_time_for_processing_time: bool = False,
    can_be_late: bool = False,
) -> FragmentPlan:
    """Return the fragments of a flow, each after its upstream fragments.

    With ``event_time_for_processing_time`` windows of processing time are treated as windows of event time over
    history, where possible (see ``event_time_only``), instead of being refused. With ``can_be_late`` a record may be
    late, as in a stream of micro-batches, so windows that emit late records or correct results are not aggregated in
    parts. Raises ``FlowDefinitionError`` for an incomplete flow, and for one that cannot run over history, with a line
    for each step that prevents it.
    """
    if type(key_groups) is not int or key_groups < 1:
        raise FlowDefinitionError(
            f"key_groups must be a whole number from 1 on, as in the live job's Options, not {shown(key_groups)}"
        )
    graph.validate()
    refuse_unsupported(graph, event_time_for_processing_time=event_time_for_processing_time)
    heads = [node for node in graph if is_head(node)]
    index_of = {head.id: index for index, head in enumerate(heads)}
    readers = _readers(graph)
    numbers = count()
    whole = _with_late_records(graph) if can_be_late else frozenset[int]()
    fragments: list[Fragment] = []
    for index, head in enumerate(heads):
        nodes = (_over_history(head, whole), *_reached(graph, head)[1:])
        exits: list[Exit] = []
        for exit in _exits(nodes, readers, index_of, numbers):
            part = _partial_step_of(exit, heads, graph, whole)
            if part is None:
                exits.append(exit)
            else:
                exits.append(replace(exit, origin=part, side=None))
                nodes = (*nodes, part)
        inputs_of = ((one, exit) for one in fragments for exit in one.exits if exit.reader == index)
        fragments.append(
            Fragment(
                index,
                nodes,
                tuple(exits),
                cuts_at=_cuts(nodes),
                watermark_per_timestamp=_needs_each_watermark(nodes[0]),
                watermark_lag=2
                if head.windows is not None and head.windows.assigner.merging
                else 1,
                end_margin=max(starmap(_result_margin, inputs_of), default=0),
            )
        )
    return FragmentPlan(graph.name, tuple(fragments), key_groups)


def _over_history(head: Node, whole: frozenset[int]) -> Node:
    changed = in_event_time(head)
    return merging_step(head) if changed is head and head.id not in whole else changed


def _with_late_records(graph: FlowGraph) -> frozenset[int]:
    """Return the windows that emit late records, or correct their results by each of them.

    An accumulator of several records cannot take their place.
    """
    read = {(edge.origin.id, edge.side) for node in graph for edge in node.inputs}
    return frozenset(
        node.id
        for node in graph
        if node.windows is not None
        and (node.windows.lateness > 0 or any((node.id, side) in read for side in late_sides(node)))
    )


def _partial_step_of(
    exit: Exit, heads: list[Node], graph: FlowGraph, whole: frozenset[int]
) -> Node | None:
    """Return the step that pre-aggregates the records of ``exit``; None unless it leads to windows with partial
    aggregation.
    """
    if exit.reader is None or heads[exit.reader].id in whole:
        return None
    head = heads[exit.reader]
    name = f"{head.name} (partial)"
    if any(node.name == name for node in graph):
        name = f"{name} {exit.number}"
    number = 1 + max(node.id for node in graph) + exit.number
    return partial_step(head, Edge(exit.origin, exit.side), id=number, name=name)


def is_head(node: Node) -> bool:
    """Return True if a fragment begins at ``node``: a source, or a step that reads by key."""
    return node.kind is Kind.SOURCE or any(_by_key(edge) for edge in node.inputs)


def _by_key(edge: Edge) -> bool:
    return isinstance(edge.partitioning, HashByKey)


def _reached(graph: FlowGraph, head: Node) -> tuple[Node, ...]:
    """Return ``head`` and the steps downstream of it up to the next keyed exchange, each after its inputs."""
    found = {head.id: head}
    for node in graph:
        if node.kind is not Kind.STEP or is_head(node):
            continue
        if any(edge.origin.id in found for edge in node.inputs):
            found[node.id] = node
    return tuple(found.values())


def _readers(graph: FlowGraph) -> dict[int, list[tuple[Node, int, Edge]]]:
    """Return, for each step, the sinks and heads that read it, with the number of the input."""
    found: dict[int, list[tuple[Node, int, Edge]]] = {}
    for node in graph:
        for number, edge in enumerate(node.inputs):
            if node.kind is Kind.SINK or _by_key(edge):
                found.setdefault(edge.origin.id, []).append((node, number, edge))
    return found


def _exits(
    nodes: tuple[Node, ...],
    readers: dict[int, list[tuple[Node, int, Edge]]],
    index_of: dict[int, int],
    numbers: Iterator[int],
) -> Iterator[Exit]:
    for origin in nodes:
        for reader, input_, edge in readers.get(origin.id, ()):
            number = next(numbers)
            if reader.kind is Kind.SINK:
                yield Exit(number, origin, edge.side, sink=reader)
            else:
                yield Exit(number, origin, edge.side, reader=index_of[reader.id], input=input_)


def before_time(nodes: tuple[Node, ...]) -> frozenset[int]:
    """Return the ids of those ``nodes`` of a fragment whose input records have no event time yet."""
    if nodes[0].kind is not Kind.SOURCE:
        return frozenset()
    before = {nodes[0].id}
    for node in nodes[1:]:
        if not node.begins_time and any(edge.origin.id in before for edge in node.inputs):
            before.add(node.id)
    return frozenset(before)


def _cuts(nodes: tuple[Node, ...]) -> frozenset[str]:
    """Return the steps that assign the first timestamps to records of a source."""
    before = before_time(nodes)
    return frozenset(
        node.name
        for node in nodes
        if node.begins_time and any(edge.origin.id in before for edge in node.inputs)
    )


def _needs_each_watermark(head: Node) -> bool:
    """Return True if the results of ``head`` depend on how often the watermark advances between records."""
    if head.kind is Kind.SOURCE:
        return False
    return head.what in _WITH_TIMERS or (
        head.windows is not None and not _ignores_lag(head.windows.trigger)
    )


def _result_margin(fragment: Fragment, exit: Exit) -> int:
    """Return how far (ms) before the end of history a record may be that only the live job sends by ``exit``.

    The watermark ends at T - end_margin - watermark_lag. Later output of the head is later than the watermark that it
    has emitted, unless a downstream step assigns another time: then the bound is unknown.
    """
    if exit.origin.id in _retimed(fragment):
        return NEVER
    if not fragment.keyed:
        return 0
    return fragment.end_margin + fragment.watermark_lag - 1 + _delay(fragment.head)


def _retimed(fragment: Fragment) -> frozenset[int]:
    """Return the steps whose records had another time before."""
    again: set[int] = set()
    for node in fragment.nodes:
        if (node.begins_time and node.name not in fragment.cuts_at) or any(
            edge.origin.id in again for edge in node.inputs
        ):
            again.add(node.id)
    return frozenset(again)


def _delay(node: Node) -> int:
    """Return by how much (ms) a step delays the watermark."""
    if node.what != "interval_join" or node.operator is None:
        return 0
    join = node.operator()
    if not isinstance(join, IntervalJoinOperator):
        raise InternalError(f"step {node.name!r} is a {type(join).__name__}")
    return join.delay


def _ignores_lag(trigger: Trigger[object] | None) -> bool:
    match trigger:
        case None:
            return True
        case EventTime(early, late) if type(trigger) is EventTime:
            return _ignores_lag(early) and _ignores_lag(late)
        case Purging(inner) if type(trigger) is Purging:
            return _ignores_lag(inner)
        case _:
            return type(trigger) in _IGNORES_LAG
