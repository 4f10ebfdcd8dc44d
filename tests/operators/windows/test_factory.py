"""The operator of a window step by its definition, and definitions that are refused early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.machines.windows import evictors
from aflow.machines.windows.assigners import (
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.evictors import Element, Evictor, EvictorContext
from aflow.machines.windows.trigger import Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import Count, EventTime, ProcessingTime, Purging
from aflow.model.time import TimeDomain
from aflow.model.windows import TimeWindow
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import Operator
from aflow.operators.windows.factory import check_logic, window_operator
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.operators.windows.sessions import SessionAggregateOperator
from aflow.operators.windows.window_operator import WindowOperator
from aflow.state.backend_choice import InMemory
from aflow.testing import Mode
from tests.operators.backends import BackendHarness as OperatorHarness
from tests.operators.backends import backend
from tests.operators.windows.window_steps import SUM, Event, Says
from tests.stable_ids import stable

TUMBLING = TumblingWindows(10)
SESSIONS = SessionWindows(10)
UNMERGED = Accumulation(SUM.first, SUM.add)


class Function(WindowFunction[Any, Any, Any]):
    def process(self, value: Any, ctx: WindowContext[Any]) -> None:
        return None


def made(**parts: Any) -> WindowLogic:
    given: dict[str, Any] = {"assigner": TUMBLING, "trigger": EventTime(), **parts}
    if not given.keys() & {"accumulation", "apply", "function"}:
        given["accumulation"] = SUM
    return WindowLogic(**given)


@pytest.mark.parametrize(
    "parts",
    [
        {"trigger": Count(2)},
        {"trigger": Purging(EventTime[Any]())},
        {"trigger": EventTime(early=Count(2))},
        {"trigger": EventTime(late=Count(2))},
        {"evictor": evictors.Count(2)},
        {"apply": len, "evictor": evictors.Count(2)},
        {"function": Function()},
        {"accumulation": SUM, "function": Function()},
        {"assigner": GlobalWindows(), "trigger": Count(2)},
        {"assigner": TumblingWindows(10, domain=TimeDomain.PROCESSING)},
        {"assigner": SlidingWindows(10, 5, domain=TimeDomain.PROCESSING)},
        {"assigner": SessionWindows(10, domain=TimeDomain.PROCESSING)},
    ],
    ids=stable,
)
def test_logic_beyond_the_fast_operators_has_the_general_operator(
    parts: dict[str, Any],
) -> None:
    logic = made(**parts)
    check_logic(logic)

    assert isinstance(window_operator(logic), WindowOperator)


@pytest.mark.parametrize("assigner", [TUMBLING, SlidingWindows(10, 5)], ids=str)
def test_windows_on_a_grid_with_one_accumulator_have_a_faster_operator(
    assigner: WindowAssigner[Any],
) -> None:
    assert not isinstance(window_operator(made(assigner=assigner)), WindowOperator)


class NoDomain(GlobalWindows):
    @property
    def domain(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - what is tested
        return "event"


class NoMembers:
    domain = TimeDomain.EVENT

    def assign(self, value: object, timestamp: int) -> list[TimeWindow]:
        return []


class Awaited(Says):
    async def on_element(  # type: ignore[override]
        self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:  # pyright: ignore[reportIncompatibleMethodOverride] - what is tested
        return TriggerResult.FIRE


class AwaitedEvictor(Evictor[Any]):
    async def before(  # type: ignore[override]
        self, elements: Sequence[Element[Any]], window: TimeWindow, ctx: EvictorContext
    ) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - what is tested
        return elements


class FormerEvictor(Evictor[Any]):
    def before(self, elements: Sequence[Element[Any]], window: TimeWindow) -> Any:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - what is tested
        return elements


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"trigger": EventTime}, r"not its class; write EventTime\(…\)"),
        ({"trigger": None}, "of class Trigger, not None"),
        ({"trigger": Awaited(TriggerResult.FIRE)}, "on_element is a coroutine function"),
        ({"evictor": evictors.Count}, r"not its class; write Count\(…\)"),
        ({"evictor": 3}, "of class Evictor, not 3"),
        ({"evictor": AwaitedEvictor()}, "before is a coroutine function"),
        ({"evictor": FormerEvictor()}, r"write before\(self, elements, window, ctx\)"),
        ({"assigner": TumblingWindows}, r"not a class; write TumblingWindows\(…\)"),
        ({"assigner": 10}, "must be a WindowAssigner, not 10"),
        ({"assigner": NoDomain()}, "domain must be a TimeDomain, not 'event'"),
        (
            {"assigner": NoMembers()},
            "NoMembers.merging must be a bool, not None; subclass WindowAssigner",
        ),
        ({"lateness": -1}, "must not be negative, it is -1 ms"),
        ({"of": object}, "object"),
        ({"key_type": object}, "object"),
        ({"accumulation": SUM, "apply": len}, "excludes an accumulation"),
        ({"function": Function}, "not its class"),
        ({"accumulation": None}, "needs an accumulation, a function or apply"),
        (
            {"assigner": SESSIONS, "trigger": Says(TriggerResult.FIRE)},
            "SessionWindows has windows that merge, and Says cannot merge",
        ),
        (
            {"assigner": SESSIONS, "accumulation": UNMERGED},
            "give merge= to fold, or use aggregate",
        ),
    ],
    ids=lambda part: str(part)[:60],
)
def test_logic_that_no_operator_supports_is_refused_with_advice(
    parts: dict[str, Any], says: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=says):
        check_logic(made(**parts))


def test_with_an_evictor_accumulators_need_not_merge_for_records_are_kept() -> None:
    logic = made(assigner=SESSIONS, accumulation=UNMERGED, evictor=evictors.Count(3))

    check_logic(logic)

    assert isinstance(window_operator(logic), WindowOperator)


def test_windows_on_the_clock_may_have_a_trigger_for_the_clock() -> None:
    check_logic(
        made(assigner=TumblingWindows(10, domain=TimeDomain.PROCESSING), trigger=ProcessingTime())
    )


@pytest.mark.parametrize(
    ("assigner", "operator"),
    [
        (TUMBLING, PaneAggregateOperator),
        (SlidingWindows(10, 5), PaneAggregateOperator),
        (SESSIONS, SessionAggregateOperator),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", Mode)
def test_records_kept_in_lists_are_folded_too_in_the_order_of_arrival(
    assigner: WindowAssigner[Any], operator: type[Operator], mode: Mode
) -> None:
    seen: list[list[int]] = []

    def look(values: list[int]) -> int:
        seen.append(list(values))
        values.clear()  # it is the function's own
        return len(seen[-1])

    logic = made(assigner=assigner, apply=look, of=int, lateness=100)
    step: OperatorHarness[int, Any] = OperatorHarness(
        lambda: window_operator(logic), key=lambda _: "key", mode=mode
    )

    step.push_batch([7, 5, 6], [7, 5, 6])
    step.watermark(40)
    step.push(8, 8)

    assert type(window_operator(logic)) is operator
    assert seen[0] == [7, 5, 6]
    assert seen[-1] == [7, 5, 6, 8]
    assert step.values[-1].firing == 2


def refused(*_: object) -> int:
    raise ValueError("no")


@pytest.mark.parametrize(
    "trigger", [EventTime[Any](), EventTime[Any](early=Count(9))], ids=["fast", "general"]
)
@pytest.mark.parametrize(
    "accumulation",
    [
        Accumulation(SUM.first, SUM.add, result=refused, merge=SUM.merge),
        Accumulation(SUM.first, SUM.add, merge=refused, fresh=int),
    ],
    ids=["result", "merge"],
)
@pytest.mark.parametrize(
    ("assigner", "window"),
    [(TUMBLING, "[0, 10)"), (SlidingWindows(10, 5), "[0, 10)"), (SESSIONS, "[6, 16)")],
    ids=str,
)
def test_a_failure_at_the_end_of_a_window_names_step_key_and_window(
    assigner: WindowAssigner[Any], window: str, accumulation: Accumulation, trigger: Trigger[Any]
) -> None:
    logic = made(assigner=assigner, accumulation=accumulation, trigger=trigger, lateness=50)
    # On disk nothing is merged for a window of one pane.
    in_memory = isinstance(assigner, SlidingWindows) and accumulation.result is None
    harness = OperatorHarness[Event, Any](
        lambda: window_operator(logic),
        key=lambda event: event[0],
        backend=InMemory() if in_memory else backend(),
    )
    harness.push(("a", 1), 6)

    with pytest.raises(OperatorError) as info:
        harness.watermark(40)

    message = str(info.value)
    assert "step 'step' failed" in message
    assert "key 'a'" in message
    assert f"in the window {window}: ValueError: no" in message
    assert info.value.key == "a"
