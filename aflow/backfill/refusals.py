"""Steps that cannot run over history, reported by name before anything runs.

Over history there is no clock to wait for, no arrival order, and no live stream beside the one that is read. A step
that depends on these would give results that no live job ever gave. Dependence that shows only when user code runs,
such as a processing-time timer of a process function, is refused then: fragments are built with
``OperatorContext.clocked`` False.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeGuard

from aflow.backfill.event_time_only import can_fire_in_event_time
from aflow.errors import FlowDefinitionError
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Broadcast, HashByKey, Kind, Node
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import ContinuousProcessingTime, ProcessingTime
from aflow.model.time import TimeDomain

_BY_CLOCK: Final = (ProcessingTime, ContinuousProcessingTime)


def refuse_unsupported(graph: FlowGraph, *, event_time_for_processing_time: bool = False) -> None:
    """Raise ``FlowDefinitionError`` with a line for each step of ``graph`` that cannot run over history.

    With ``event_time_for_processing_time`` windows of processing time can, if ``event_time_only`` supports them.
    """
    found = [
        f"step {node.name!r} ({node.what}) {reason}"
        for node, reason in _refused(graph, by_event_time=event_time_for_processing_time)
    ]
    if len(found) == 1:
        raise FlowDefinitionError(f"flow {graph.name!r} cannot run over history: {found[0]}")
    if found:
        lines = "".join(f"\n  {line}" for line in found)
        raise FlowDefinitionError(
            f"flow {graph.name!r} cannot run over history, for {len(found)} reasons:{lines}"
        )


def _refused(graph: FlowGraph, *, by_event_time: bool) -> Iterator[tuple[Node, str]]:
    """Yield at most one reason for each step: the first often causes the others."""
    timed = _timed(graph)
    for node in graph:
        if node.kind is not Kind.STEP:
            continue
        reason = _reason(node, timed, by_event_time=by_event_time)
        if reason is not None:
            yield node, reason


def _timed(graph: FlowGraph) -> frozenset[int]:
    """Return the nodes whose records all have event time, on every path; ``Node.has_time`` says that some have."""
    timed: set[int] = set()
    for node in graph:
        if node.begins_time or (
            node.inputs and all(edge.origin.id in timed for edge in node.inputs)
        ):
            timed.add(node.id)
    return frozenset(timed)


def _reason(node: Node, timed: frozenset[int], *, by_event_time: bool) -> str | None:
    if node.what == "ingestion_time":
        return (
            "takes the moment of arrival for event time, and all of history arrives at once; give records their "
            "own time with .event_time(…)"
        )
    if any(isinstance(edge.partitioning, Broadcast) for edge in node.inputs):
        return _broadcast(node)
    keyed = [isinstance(edge.partitioning, HashByKey) for edge in node.inputs]
    if not all(keyed):
        return _not_keyed(node)
    return _clock(node, by_event_time=by_event_time) or _arrival(node, timed)


def _broadcast(node: Node) -> str:
    if node.roles:
        return (
            "reads a live control stream: how much of it has come when a record is handled is a matter of arrival, "
            "which history does not tell; join with .as_of_join(…), by the time of both, or run this part live"
        )
    return (
        "gives every record to every subtask, so its results depend on their number, which history does not "
        "determine; use .rebalance(…), or read the stream once for each purpose"
    )


def _not_keyed(node: Node) -> str | None:
    if node.roles:
        return "reads two streams without keys, so nothing says which of their records meet; call .key_by(…) on both"
    if node.stateful:
        return (
            "keeps state that does not belong to keys, and history does not determine its partition; "
            "call .key_by(…) before it"
        )
    return None


def _clock(node: Node, *, by_event_time: bool) -> str | None:
    windows = node.windows
    if windows is None:
        return None
    if windows.assigner.domain is TimeDomain.PROCESSING:
        return _window_by_clock(node, by_event_time=by_event_time)
    by_clock = next((one for one in _parts(windows.trigger) if isinstance(one, _BY_CLOCK)), None)
    if by_clock is not None:
        return (
            f"has trigger {type(by_clock).__name__}, which waits for the clock, and over history nothing arrives by "
            f"the clock; use a trigger of event time such as triggers.ContinuousEventTime(…)"
        )
    return None


def _window_by_clock(node: Node, *, by_event_time: bool) -> str | None:
    why = (
        "has windows of processing time, and what they would have held depends on when records arrived; use windows of "
        "event time"
    )
    if not can_fire_in_event_time(node):
        return (
            f"{why} (these cannot be made to fire in event time over history)"
            if by_event_time
            else why
        )
    if by_event_time:
        return None
    return (
        f"{why}, or have these fire in event time over history: event_time_for_processing_time=True"
    )


def _parts(trigger: Trigger[Any]) -> Iterator[Trigger[Any]]:
    """Yield ``trigger`` and the triggers that it is composed of."""
    yield trigger
    if _has_fields(trigger):
        for field in fields(trigger):
            part = getattr(trigger, field.name)
            if _is_trigger(part):
                yield from _parts(part)


def _is_trigger(part: object) -> TypeGuard[Trigger[Any]]:
    return isinstance(part, Trigger)


def _has_fields(trigger: object) -> TypeGuard[Any]:
    return is_dataclass(trigger)


def _arrival(node: Node, timed: frozenset[int]) -> str | None:
    without = [index for index, edge in enumerate(node.inputs) if edge.origin.id not in timed]
    if not without:
        return None
    if len(without) > 1:
        lacks = "its streams have"
    elif node.roles:
        lacks = f"its {node.roles[without[0]]} stream has"
    else:
        lacks = "its stream has"
    return (
        f"goes by the order of arrival, since {lacks} no event time, and history is read in the order of event time; "
        f"call .event_time(…) before .key_by(…)"
    )
