"""What the tests of the general window operator share: a harness for a logic, and triggers that do one thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aflow.machines.windows.assigners import TumblingWindows, WindowAssigner
from aflow.machines.windows.evictor import Element, Evictor, EvictorContext
from aflow.machines.windows.trigger import MergeContext, Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import EventTime
from aflow.model.tags import Tag
from aflow.model.time import TimeDomain, Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import StateSize
from aflow.operators.windows.factory import check_logic
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.window_operator import WindowOperator
from aflow.testing import Mode, OperatorHarness

Event = tuple[str, int]
Harness = OperatorHarness[Event, Any]

SUM = Accumulation(
    lambda event: event[1],
    lambda total, event: total + event[1],
    merge=lambda one, other: one + other,
)


def numbers(events: list[Event]) -> list[int]:
    """To ``apply``: the values in the order of their arrival."""
    return [number for _, number in events]


def logic(**parts: Any) -> WindowLogic:
    """Tumbling windows of 10 ms, the default trigger, sums: unless told otherwise."""
    given: dict[str, Any] = {"assigner": TumblingWindows(10), "trigger": EventTime(), **parts}
    if not given.keys() & {"accumulation", "apply", "function"}:
        given["accumulation"] = SUM
    made = WindowLogic(**given)
    check_logic(made)
    return made


def step(
    mode: Mode = Mode.STRAIGHT, *, subtask: int = 0, parallelism: int = 1, **parts: Any
) -> Harness:
    """A harness for a ``WindowOperator`` that does what ``logic`` says."""
    made = logic(**parts)
    return OperatorHarness(
        lambda: WindowOperator(made),
        key=lambda event: event[0],
        mode=mode,
        subtask=subtask,
        parallelism=parallelism,
    )


def rows(harness: Harness) -> list[tuple[Any, ...]]:
    """Key, start of the window, value and firing of each result so far."""
    return [(w.key, w.window.start, w.value, w.firing) for w in harness.values]


#: What ``left`` says of a step that has forgotten everything.
NOTHING: Final[tuple[StateSize, object]] = (StateSize(), {})


def left(harness: Harness) -> tuple[StateSize, object]:
    """What a step holds, and what of it would be stored for its keys."""
    snapshot = harness.snapshot()
    assert snapshot is not None
    return harness.size, dict(snapshot.keyed)


def late(harness: Harness) -> list[Event]:
    return [record.value for record in harness.side(Tag[Event](LATE))]


@dataclass(frozen=True)
class OnProcessingTime(WindowAssigner[object]):
    """Windows of 10 ms on the clock."""

    @property
    def domain(self) -> TimeDomain:
        return TimeDomain.PROCESSING

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        return TumblingWindows(10).assign(value, timestamp)


class Everywhere(WindowAssigner[object]):
    """The window of all time."""

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        return [GLOBAL_WINDOW]


class Says(Trigger[object]):
    """Answers each record in the same way, and does nothing else."""

    def __init__(self, says: TriggerResult, *, merges: bool = False) -> None:
        self._says = says
        self._merges = merges

    @property
    def merges(self) -> bool:
        return self._merges

    def on_element(
        self, value: object, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return self._says

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        return None


class KeepsLast(Evictor[Event]):
    """Shows the last ``shown`` records to the function, and keeps ``kept`` of them."""

    def __init__(self, shown: int, kept: int) -> None:
        self._shown = shown
        self._kept = kept

    def before(
        self, elements: Sequence[Element[Event]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[Event]]:
        return elements[-self._shown :] if self._shown else []

    def after(
        self, elements: Sequence[Element[Event]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[Event]]:
        return elements[-self._kept :] if self._kept else []
