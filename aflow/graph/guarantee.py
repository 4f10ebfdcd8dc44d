"""What a crash means for each sink of a plan: the end-to-end guarantee, and what it rests on.

Theory. What a sink holds in the end depends on three things: whether the job takes checkpoints, whether all sources
before it give the same records again (*replayable*), and what the sink makes of records that are written again (its
*delivery*). Without checkpoints, whoever runs the flow again starts every source at its beginning. With them, the job
goes on from the last complete one: state is as it was then, and sources give again what they gave since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from aflow.connect import Delivery
from aflow.graph.nodes import Kind, Node
from aflow.graph.plan import Plan


class Guarantee(Enum):
    """What holds for a sink after a crash and another run; the weakest first."""

    NONE = "no guarantee"
    AT_LEAST_ONCE = "at least once"
    EFFECTIVELY_ONCE = "exactly once in effect"
    EXACTLY_ONCE = "exactly once"


class Recovery(Enum):
    """What a run after the crash can go on from."""

    NOTHING = "without checkpoints"
    AT_LEAST_ONCE = "with checkpoints, at least once"
    EXACTLY_ONCE = "with checkpoints"


@dataclass(frozen=True, slots=True)
class AfterCrash:
    """What holds for the sink named ``sink`` once the flow was run again, and why, as a sentence."""

    sink: str
    guarantee: Guarantee
    reason: str


def after_crash(plan: Plan, recovery: Recovery = Recovery.NOTHING) -> list[AfterCrash]:
    """One entry for each sink, in the order of the plan."""
    nodes = [node for task in plan.tasks for node in task.nodes]
    return [_after_crash(node, recovery) for node in nodes if node.kind is Kind.SINK]


def weakest(entries: list[AfterCrash]) -> Guarantee:
    """What holds for all sinks together; a plan has at least one."""
    order = list(Guarantee)
    return min((entry.guarantee for entry in entries), key=order.index)


def _after_crash(sink: Node, recovery: Recovery) -> AfterCrash:
    lost = sorted({node.name for node in _sources(sink) if not _replayable(node)})
    if lost:
        names = " and ".join(repr(name) for name in lost)
        reason = f"{names} cannot be read again, so {_LOST[recovery]} is lost"
        return AfterCrash(sink.name, Guarantee.NONE, reason)
    assert sink.sink is not None
    guarantee, reason = _REPLAYED[recovery][sink.sink.delivery]
    return AfterCrash(sink.name, guarantee, reason)


_LOST = {
    Recovery.NOTHING: "what was read and not yet written",
    Recovery.AT_LEAST_ONCE: "what was read since the last checkpoint",
    Recovery.EXACTLY_ONCE: "what was read since the last checkpoint",
}

_TWICE = "what was written since the last checkpoint is written again, and is there twice"
_REPLACED = (
    "what was written since the last checkpoint is written again, in the place of what is there"
)

_REPLAYED = {
    Recovery.NOTHING: {
        Delivery.AT_LEAST_ONCE: (
            Guarantee.AT_LEAST_ONCE,
            "the next run writes everything again, so what was written before the crash is there twice",
        ),
        Delivery.IDEMPOTENT: (
            Guarantee.EFFECTIVELY_ONCE,
            "the next run replaces what was written, as long as it computes the same",
        ),
        Delivery.TRANSACTIONAL: (
            Guarantee.AT_LEAST_ONCE,
            "without checkpoints the sink cannot know what an earlier run has made visible, so some may be there twice",
        ),
    },
    Recovery.AT_LEAST_ONCE: {
        Delivery.AT_LEAST_ONCE: (Guarantee.AT_LEAST_ONCE, _TWICE),
        Delivery.IDEMPOTENT: (
            Guarantee.AT_LEAST_ONCE,
            "checkpoints at least once may count records twice, and so may what is written",
        ),
        Delivery.TRANSACTIONAL: (
            Guarantee.AT_LEAST_ONCE,
            "checkpoints at least once may count records twice, and so may what is written",
        ),
    },
    Recovery.EXACTLY_ONCE: {
        Delivery.AT_LEAST_ONCE: (Guarantee.AT_LEAST_ONCE, _TWICE),
        Delivery.IDEMPOTENT: (Guarantee.EFFECTIVELY_ONCE, _REPLACED),
        Delivery.TRANSACTIONAL: (
            Guarantee.EXACTLY_ONCE,
            "what it writes is visible only once the checkpoint that covers it is complete",
        ),
    },
}


def _replayable(node: Node) -> bool:
    return node.source is not None and node.source.replayable


def _sources(node: Node) -> Iterator[Node]:
    """All sources whose records can reach ``node``."""
    waiting, seen = [node], {node.id}
    while waiting:
        one = waiting.pop()
        if one.kind is Kind.SOURCE:
            yield one
        for edge in one.inputs:
            if edge.origin.id not in seen:
                seen.add(edge.origin.id)
                waiting.append(edge.origin)
