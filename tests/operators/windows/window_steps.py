"""Harness of window steps for a logic, and triggers, assigners and evictors with one effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aflow.machines.windows.assigners import TumblingWindows, WindowAssigner
from aflow.machines.windows.evictors import Element, Evictor, EvictorContext
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
from aflow.testing import Mode
from tests.operators.backends import BackendHarness as OperatorHarness

Event = tuple[str, int]
Harness = OperatorHarness[Event, Any]

SUM = Accumulation(
    lambda event: event[1],
    lambda total, event: total + event[1],
    merge=lambda one, other: one + other,
)


def numbers(events: list[Event]) -> list[int]:
    """Return, as ``apply``, the values in the order of arrival."""
    return [number for _, number in events]


def logic(**parts: Any) -> WindowLogic:
    """Return a logic; by default tumbling windows of 10 ms, the default trigger, sums."""
    given: dict[str, Any] = {"assigner": TumblingWindows(10), "trigger": EventTime(), **parts}
    if not given.keys() & {"accumulation", "apply", "function"}:
        given["accumulation"] = SUM
    made = WindowLogic(**given)
    check_logic(made)
    return made


def step(
    mode: Mode = Mode.STRAIGHT, *, subtask: int = 0, parallelism: int = 1, **parts: Any
) -> Harness:
    """Return a harness for a ``WindowOperator`` of ``logic(**parts)``."""
    made = logic(**parts)
    return OperatorHarness(
        lambda: WindowOperator(made),
        key=lambda event: event[0],
        mode=mode,
        subtask=subtask,
        parallelism=parallelism,
    )


def rows(harness: Harness) -> list[tuple[Any, ...]]:
    """Return key, start of the window, value and firing of each result."""
    return [(w.key, w.window.start, w.value, w.firing) for w in harness.values]


#: The result of ``left`` for a step without state.
NOTHING: Final[tuple[StateSize, object]] = (StateSize(), {})


def left(harness: Harness) -> tuple[StateSize, object]:
    """Return the state size of a step, and its keyed state in a snapshot."""
    snapshot = harness.snapshot()
    assert snapshot is not None
    return harness.size, dict(snapshot.keyed)


def late(harness: Harness) -> list[Event]:
    return [record.value for record in harness.side(Tag[Event](LATE))]


@dataclass(frozen=True)
class OnProcessingTime(WindowAssigner[object]):
    """Windows of 10 ms of processing time."""

    @property
    def domain(self) -> TimeDomain:
        return TimeDomain.PROCESSING

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        return TumblingWindows(10).assign(value, timestamp)


class Everywhere(WindowAssigner[object]):
    """Assigns the global window."""

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        return [GLOBAL_WINDOW]


class Says(Trigger[object]):
    """Returns the same result for each record."""

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
    """Passes the last ``shown`` records to the function, and keeps ``kept`` of them."""

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
