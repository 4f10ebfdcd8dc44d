"""Watermarks that steps need between the records of a batch (docs/decisions/045).

A watermark is emitted after a batch. Results of some steps depend on the watermark that each record meets: event timers
fire between two records. So the steps where event time begins send a column of watermarks with the records if a step
downstream needs it, and all steps in between carry it. This walk finds the need of each step, from the sinks up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from aflow.graph.nodes import Node
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    Count,
    Delta,
    EventTime,
    Never,
    ProcessingTime,
    Purging,
)
from aflow.model.time import TimeDomain
from aflow.operators.base import Operator
from aflow.operators.event_time import EventTimeOperator
from aflow.operators.watermark_use import WatermarkUse

#: Triggers whose event timers are at the end of a window or at multiples of their ``periods``.
_PERIODIC = frozenset(
    {
        ContinuousEventTime,
        ContinuousProcessingTime,
        Count,
        Delta,
        EventTime,
        Never,
        ProcessingTime,
        Purging,
    }
)


@dataclass(frozen=True, slots=True)
class StepNeed:
    """The need of one step for watermarks between records, and that of the steps downstream of it."""

    divides: bool
    """True if the link into the step divides batches to apply them."""
    downstream: bool
    fires_in_order: bool
    """True if the results of a watermark carry watermarks."""


def watermark_needs(nodes: Iterable[Node]) -> Mapping[int, StepNeed]:
    """Return the needs by the id of each node. ``nodes`` are sorted: each is after its inputs."""
    needed: set[int] = set()
    needs: dict[int, StepNeed] = {}
    for node in reversed(list(nodes)):
        downstream = node.id in needed
        use = _use_of(node, downstream)
        divides = use is WatermarkUse.APPLIED or (
            use is WatermarkUse.APPLIED_FOR_READERS and downstream
        )
        fires = use is WatermarkUse.READ or node.windows is not None
        needs[node.id] = StepNeed(divides, downstream, fires and downstream)
        reads = divides or use is WatermarkUse.READ
        # Where event time begins, the watermarks of the inputs are replaced.
        if not node.begins_time and (reads or (use is WatermarkUse.CARRIED and downstream)):
            needed.update(edge.origin.id for edge in node.inputs)
    return needs


def with_needs(node: Node, need: StepNeed) -> Node:
    """Return ``node`` with what ``need`` says: where event time begins, an operator that sends the watermarks."""
    make = node.operator
    if node.begins_time and make is not None and need.downstream:
        return replace(node, operator=_sending(make))
    return replace(
        node,
        divides=need.divides,
        fires_in_order=need.fires_in_order,
        delay=1 if _has_sessions(node) else 0,
    )


def _has_sessions(node: Node) -> bool:
    """Return True for windows that merge: a record exactly at the end of one belongs to it, and is in time until then.

    Over history, the watermark of a fragment has a lag for this.
    """
    windows = node.windows
    return (
        windows is not None
        and windows.assigner.merging
        and windows.assigner.domain is TimeDomain.EVENT
    )


def _use_of(node: Node, downstream: bool) -> WatermarkUse:
    if node.windows is None:
        return node.watermarks
    windows = node.windows
    if not _is_periodic(windows.trigger) or (_has_sessions(node) and windows.trigger.periods):
        # The event time of sessions is behind, so it passes a multiple of a period later than that of other steps.
        return WatermarkUse.APPLIED
    if downstream and not _fires_by_watermark(windows.trigger):
        # Results of records, such as those of a count, carry no watermark.
        return WatermarkUse.APPLIED_FOR_READERS
    return WatermarkUse.UNUSED


def _fires_by_watermark(trigger: Trigger[object]) -> bool:
    return isinstance(trigger, EventTime) and trigger.early is None


def _is_periodic(trigger: Trigger[object]) -> bool:
    """Return True unless the trigger, or one inside of it, is written by a user."""
    if type(trigger) not in _PERIODIC:
        return False
    inner: list[Trigger[object]] = []
    if isinstance(trigger, Purging):
        inner = [trigger.trigger]
    elif isinstance(trigger, EventTime):
        inner = [one for one in (trigger.early, trigger.late) if one is not None]
    return all(_is_periodic(one) for one in inner)


def _sending(make: Callable[[], Operator]) -> Callable[[], Operator]:
    def make_sending() -> Operator:
        operator = make()
        if isinstance(operator, EventTimeOperator):
            operator.sends_met = True
        return operator

    return make_sending
