"""Windows of processing time that fire in event time over history.

In a live job such windows follow the clock, and a record belongs to the window of its arrival; over history the
record's timestamp replaces both. A window that is open at the end of the history is stored as the live job stores it.
Its end has passed by the live job's clock, so it fires as soon as the live job starts.

This is possible if the window alone determines its end. A trigger with processing-time timers of its own, or a user's
trigger or assigner, may depend on the clock in other ways.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aflow.errors import InternalError
from aflow.graph.nodes import Node
from aflow.machines.windows.assigners import (
    DynamicSessionWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import Count, Delta, EventTime, Never, ProcessingTime, Purging
from aflow.model.time import TimeDomain
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.window_operator import WindowOperator

#: Prefix of steps on one stream. Steps on two streams do more than the node describes.
_OF_ONE_STREAM = "window."


def can_fire_in_event_time(node: Node) -> bool:
    """Return True for a step with windows of processing time that ``in_event_time`` can convert."""
    return node.what.startswith(_OF_ONE_STREAM) and _in_event_time(node.windows) is not None


def in_event_time(node: Node) -> Node:
    """Return the step with its windows in event time; other steps unchanged.

    Its operator is that of the live step, so that the live job can restore its state.
    """
    if node.windows is None or node.windows.assigner.domain is TimeDomain.EVENT:
        return node
    logic = _in_event_time(node.windows)
    if logic is None:
        raise InternalError(f"step {node.name!r} cannot fire in event time, and was not refused")
    return replace(node, windows=logic, operator=lambda: WindowOperator(logic))


def _in_event_time(logic: WindowLogic | None) -> WindowLogic | None:
    if logic is None:
        return None
    assigner, trigger = _assigner(logic.assigner), _trigger(logic.trigger)
    if assigner is None or trigger is None:
        return None
    return replace(logic, assigner=assigner, trigger=trigger)


def _assigner(assigner: WindowAssigner[Any]) -> WindowAssigner[Any] | None:
    match assigner:
        case TumblingWindows() | SlidingWindows() | SessionWindows() | DynamicSessionWindows() if (
            assigner.domain is TimeDomain.PROCESSING
        ):
            return replace(assigner, domain=TimeDomain.EVENT)
        case _:
            return None


def _trigger(trigger: Trigger[Any]) -> Trigger[Any] | None:
    kind = type(trigger)
    if kind is ProcessingTime:
        return EventTime()
    if kind in (Count, Delta, Never):
        return trigger
    if isinstance(trigger, Purging) and kind is Purging:
        inner = _trigger(trigger.trigger)
        return None if inner is None else Purging(inner)
    return None
