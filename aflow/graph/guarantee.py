"""The end-to-end guarantee of each sink of a plan after a crash, with its reason.

Theory. The final content of a sink depends on three things: whether the job takes checkpoints, whether all upstream
sources emit the same records again (*replayable*) and no others (else they *repeat* records), and the effect of writing
records again (*delivery*). Without checkpoints, the next run starts every source at its beginning; a source that
*needs checkpoints* refuses the job. With them, the job continues from the last completed one: state is restored, and
sources emit the records after their positions again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from aflow.connect import Delivery
from aflow.graph.nodes import Kind, Node, upstream
from aflow.graph.plan import Plan


class Guarantee(Enum):
    """Guarantee for a sink after a crash and another run; the weakest first."""

    NONE = "no guarantee"
    AT_LEAST_ONCE = "at least once"
    EFFECTIVELY_ONCE = "exactly once in effect"
    EXACTLY_ONCE = "exactly once"


class RecoveryMode(Enum):
    """The checkpoints that a run after the crash continues from."""

    NO_CHECKPOINTS = "without checkpoints"
    AT_LEAST_ONCE = "with checkpoints, at least once"
    EXACTLY_ONCE = "with checkpoints"


@dataclass(frozen=True, slots=True)
class AfterCrash:
    """The guarantee for the sink named ``sink`` after another run, and the reason as a sentence."""

    sink: str
    guarantee: Guarantee
    reason: str


def after_crash(plan: Plan, mode: RecoveryMode = RecoveryMode.NO_CHECKPOINTS) -> list[AfterCrash]:
    """Return one entry for each sink, in the order of the plan."""
    nodes = [node for task in plan.tasks for node in task.nodes]
    return [_after_crash(node, mode) for node in nodes if node.kind is Kind.SINK]


def weakest(entries: list[AfterCrash]) -> Guarantee:
    """Return the weakest guarantee of all sinks; a plan has at least one."""
    order = list(Guarantee)
    return min((entry.guarantee for entry in entries), key=order.index)


def _after_crash(sink: Node, mode: RecoveryMode) -> AfterCrash:
    if names := _names(sink, "replayable", has=False):
        reason = f"{names} cannot be read again, so {_LOST[mode]} is lost"
        return AfterCrash(sink.name, Guarantee.NONE, reason)
    if mode is RecoveryMode.NO_CHECKPOINTS and (refusing := _names(sink, "needs_checkpoints")):
        return AfterCrash(
            sink.name, Guarantee.NONE, f"{refusing} can be read only by a job with checkpoints"
        )
    if repeating := _names(sink, "repeats_records"):
        reason = f"{repeating} may repeat records since the last checkpoint, and results count them twice"
        return AfterCrash(sink.name, Guarantee.AT_LEAST_ONCE, reason)
    assert sink.sink is not None
    guarantee, reason = _REPLAYED[mode][sink.sink.delivery]
    return AfterCrash(sink.name, guarantee, reason)


_LOST = {
    RecoveryMode.NO_CHECKPOINTS: "every record that was read and not yet written",
    RecoveryMode.AT_LEAST_ONCE: "every record that was read since the last checkpoint",
    RecoveryMode.EXACTLY_ONCE: "every record that was read since the last checkpoint",
}

_DUPLICATED = "records since the last checkpoint are written again, as duplicates"
_REPLACED = "records since the last checkpoint are written again, and replace the former ones"

_REPLAYED = {
    RecoveryMode.NO_CHECKPOINTS: {
        Delivery.AT_LEAST_ONCE: (
            Guarantee.AT_LEAST_ONCE,
            "the next run writes everything again, so records written before the crash are duplicated",
        ),
        Delivery.IDEMPOTENT: (
            Guarantee.EFFECTIVELY_ONCE,
            "the next run replaces the records, if it computes the same",
        ),
        Delivery.TRANSACTIONAL: (
            Guarantee.AT_LEAST_ONCE,
            "without checkpoints the sink does not know which records are committed, so some may be duplicated",
        ),
    },
    RecoveryMode.AT_LEAST_ONCE: {
        Delivery.AT_LEAST_ONCE: (Guarantee.AT_LEAST_ONCE, _DUPLICATED),
        Delivery.IDEMPOTENT: (
            Guarantee.AT_LEAST_ONCE,
            "checkpoints at least once may count records twice, and results with them",
        ),
        Delivery.TRANSACTIONAL: (
            Guarantee.AT_LEAST_ONCE,
            "checkpoints at least once may count records twice, and results with them",
        ),
    },
    RecoveryMode.EXACTLY_ONCE: {
        Delivery.AT_LEAST_ONCE: (Guarantee.AT_LEAST_ONCE, _DUPLICATED),
        Delivery.IDEMPOTENT: (Guarantee.EFFECTIVELY_ONCE, _REPLACED),
        Delivery.TRANSACTIONAL: (
            Guarantee.EXACTLY_ONCE,
            "records become visible only when the checkpoint that covers them is complete",
        ),
    },
}


def _names(sink: Node, attribute: str, *, has: bool = True) -> str:
    """Return the names of the sources upstream of ``sink`` of which ``attribute`` is ``has``; empty for none."""
    sources = {
        one.name
        for one in upstream(sink)
        if one.kind is Kind.SOURCE and bool(getattr(one.source, attribute)) is has
    }
    return " and ".join(repr(name) for name in sorted(sources))
