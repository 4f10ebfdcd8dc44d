"""Windows of processing time that are told to fire in event time while they run over history.

A live job has them end by the clock, and so puts a record where the clock is; over history the time of the record takes
the place of both. A window that is open at the end of the history is left in the state as one that the live job has
kept itself: the clock has passed its end there, so it gives its result as soon as the live job begins.

That is possible where the window alone says when it ends. A trigger that keeps timers of its own on the clock, or that
a user has written, may mean more by the clock than can be known; so may a user's assigner.
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

#: The method of the node, and not what it makes of two streams: of those the node does not know all that is done.
_OF_ONE_STREAM = "window."


def can_fire_in_event_time(node: Node) -> bool:
    """True for a step with windows of processing time that ``in_event_time`` knows how to make another of."""
    return node.what.startswith(_OF_ONE_STREAM) and _in_event_time(node.windows) is not None


def in_event_time(node: Node) -> Node:
    """The same step with its windows in event time; other steps as they are.

    Its operator is the one of the live step, so that the live job can read what it leaves.
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
