"""Staggered tumbling windows: one shift for each subtask, which its keys keep in restores at any parallelism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from aflow.errors import RestoreError
from aflow.machines.windows.assigners import TumblingWindows
from aflow.machines.windows.stagger import WindowStagger
from aflow.machines.windows.triggers import EventTime, ProcessingTime
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, key_group, subtask_of
from aflow.model.time import MAX_TIMESTAMP, TimeDomain
from aflow.model.windows import Windowed
from aflow.operators.base import Operator, OperatorContext
from aflow.operators.windows.factory import window_operator
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.operators.windows.window_operator import WindowOperator
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import Mode
from tests.operators.backends import BackendHarness as OperatorHarness
from tests.operators.windows.window_steps import SUM, Event, late, logic

Harness = OperatorHarness[Event, Windowed[str, int]]

NATURAL: Final = TumblingWindows(100, stagger=WindowStagger.NATURAL)

#: Keys of the first and of the second of two subtasks.
FIRST, SECOND = (
    next(
        name
        for name in map(str, range(1000))
        if subtask_of(key_group(name), DEFAULT_KEY_GROUPS, 2) == subtask
    )
    for subtask in (0, 1)
)


def _fast(made: WindowLogic) -> Operator:
    assert isinstance(made.assigner, TumblingWindows)
    return PaneAggregateOperator(made.assigner, SUM, lateness=made.lateness)


#: The operator for sums, and the general one.
OPERATORS: Final[dict[str, Callable[[WindowLogic], Operator]]] = {
    "fast": _fast,
    "general": WindowOperator,
}

every_operator = pytest.mark.parametrize("of", OPERATORS)
every_way = pytest.mark.parametrize("mode", Mode)


def step(of: str, mode: Mode = Mode.STRAIGHT, *, start: int = 0, **more: Any) -> Harness:
    places = {name: more.pop(name) for name in ("subtask", "parallelism") if name in more}
    made = logic(**{"assigner": NATURAL, **more})
    return OperatorHarness(
        lambda: OPERATORS[of](made),
        key=lambda event: event[0],
        mode=mode,
        start=start,
        **places,
    )


def bounds(harness: Harness) -> list[tuple[str, int, int, int]]:
    return [(w.key, w.window.start, w.window.end, w.value) for w in harness.values]


def snapshot(harness: Harness) -> OperatorSnapshot:
    taken = harness.snapshot()
    assert taken is not None
    return taken


def test_the_fast_operator_is_chosen_for_staggered_windows_too() -> None:
    assert type(window_operator(logic(assigner=NATURAL))) is PaneAggregateOperator


@every_operator
@every_way
def test_windows_start_at_the_clock_time_of_the_first_record(of: str, mode: Mode) -> None:
    windows = step(of, mode, start=1_030)

    windows.push(("a", 1), 30)
    windows.advance_processing_time(1_077)
    windows.push(("a", 2), 129)
    windows.push(("a", 4), 130)
    windows.watermark(MAX_TIMESTAMP)

    assert bounds(windows) == [("a", 30, 130, 3), ("a", 130, 230, 4)]


@every_operator
@every_way
def test_a_batch_over_several_windows_is_assigned_to_staggered_ones(of: str, mode: Mode) -> None:
    windows = step(of, mode, start=30)

    windows.push_batch([("a", 1), ("a", 2), ("a", 4)], [29, 30, 130])
    windows.watermark(MAX_TIMESTAMP)

    assert bounds(windows) == [("a", -70, 30, 1), ("a", 30, 130, 2), ("a", 130, 230, 4)]


@every_operator
def test_the_stagger_is_added_to_the_offset(of: str) -> None:
    windows = step(of, start=30, assigner=replace(NATURAL, offset=80))

    windows.push(("a", 1), 50)
    windows.watermark(MAX_TIMESTAMP)

    assert bounds(windows) == [("a", 10, 110, 1)]


@every_operator
def test_a_random_stagger_is_drawn_from_the_random_source_of_the_job(of: str) -> None:
    drawn = 0.25

    class Chances(PaneAggregateOperator):
        def open(self, context: OperatorContext) -> None:
            super().open(replace(context, random=lambda: drawn))

    class GeneralChances(WindowOperator):
        def open(self, context: OperatorContext) -> None:
            super().open(replace(context, random=lambda: drawn))

    assigner = TumblingWindows(100, stagger=WindowStagger.RANDOM)
    windows: Harness = OperatorHarness(
        (lambda: Chances(assigner, SUM))
        if of == "fast"
        else (lambda: GeneralChances(logic(assigner=assigner))),
        key=lambda event: event[0],
    )
    windows.push(("a", 1), 30)
    drawn = 0.75
    windows.restart()
    windows.push(("a", 2), 31)
    windows.watermark(MAX_TIMESTAMP)

    assert bounds(windows) == [("a", 25, 125, 3)]


@every_operator
def test_a_record_before_the_watermark_is_late_for_its_staggered_window(of: str) -> None:
    windows = step(of, start=30)
    windows.push(("a", 1), 150)
    windows.watermark(129)

    windows.push(("a", 2), 129)
    windows.push(("a", 4), 130)
    windows.watermark(MAX_TIMESTAMP)

    assert late(windows) == [("a", 2)]
    assert bounds(windows) == [("a", 130, 230, 5)]


@every_operator
def test_keys_of_two_subtasks_keep_their_windows_when_one_subtask_continues(of: str) -> None:
    first = step(of, start=30, subtask=0, parallelism=2)
    second = step(of, start=70, subtask=1, parallelism=2)
    first.push((FIRST, 1), 100)
    second.push((SECOND, 1), 100)

    both = step(of, start=1_055)
    both.restore(snapshot(first), snapshot(second))
    both.push((FIRST, 2), 120)
    both.push((SECOND, 2), 160)
    both.push_batch([(FIRST, 4), (SECOND, 4)], [200, 200])
    both.watermark(MAX_TIMESTAMP)

    assert sorted(bounds(both)) == sorted(
        [
            (FIRST, 30, 130, 3),
            (FIRST, 130, 230, 4),
            (SECOND, 70, 170, 3),
            (SECOND, 170, 270, 4),
        ]
    )


@every_operator
def test_keys_keep_their_windows_when_one_of_two_watermarks_was_ahead(of: str) -> None:
    first = step(of, start=30, subtask=0, parallelism=2)
    second = step(of, start=70, subtask=1, parallelism=2)
    first.push((FIRST, 1), 100)
    second.push((SECOND, 1), 100)
    first.watermark(110)
    second.watermark(90)

    both = step(of, start=1_055)
    both.restore(snapshot(first), snapshot(second))
    both.push((FIRST, 2), 120)
    both.push((SECOND, 2), 160)
    both.watermark(MAX_TIMESTAMP)

    assert sorted(bounds(both)) == sorted([(FIRST, 30, 130, 3), (SECOND, 70, 170, 3)])


@every_operator
def test_keys_keep_their_windows_when_two_subtasks_become_one_and_two_again(of: str) -> None:
    first = step(of, start=30, subtask=0, parallelism=2)
    second = step(of, start=70, subtask=1, parallelism=2)
    first.push((FIRST, 1), 100)
    second.push((SECOND, 1), 100)
    both = step(of, start=1_055)
    both.restore(snapshot(first), snapshot(second))

    again = step(of, start=1_044, subtask=1, parallelism=2)
    again.restore(snapshot(both))
    again.push((SECOND, 2), 160)
    again.watermark(MAX_TIMESTAMP)

    assert bounds(again) == [(SECOND, 70, 170, 3)]


@every_operator
def test_a_subtask_without_records_draws_its_stagger_after_a_restore(of: str) -> None:
    idle = step(of, start=30)
    idle.watermark(5)

    restored = step(of, start=1_060)
    restored.restore(snapshot(idle))
    restored.push(("a", 1), 60)
    restored.watermark(MAX_TIMESTAMP)

    assert bounds(restored) == [("a", 60, 160, 1)]


@every_operator
def test_windows_are_aligned_without_a_clock(of: str) -> None:
    """A backfill has no clock."""

    class History(PaneAggregateOperator):
        def open(self, context: OperatorContext) -> None:
            super().open(replace(context, clocked=False))

    class GeneralHistory(WindowOperator):
        def open(self, context: OperatorContext) -> None:
            super().open(replace(context, clocked=False))

    windows: Harness = OperatorHarness(
        (lambda: History(NATURAL, SUM))
        if of == "fast"
        else (lambda: GeneralHistory(logic(assigner=NATURAL))),
        key=lambda event: event[0],
        start=30,
    )
    windows.push(("a", 1), 30)
    live = step(of, start=1_060)
    live.restore(snapshot(windows))
    live.push(("a", 2), 99)
    live.push(("a", 4), 100)
    live.watermark(MAX_TIMESTAMP)

    assert bounds(live) == [("a", 0, 100, 3), ("a", 100, 200, 4)]


@pytest.mark.parametrize("stored", [b"\xc1", b"\x01"])
def test_a_stagger_that_cannot_be_read_is_reported(stored: bytes) -> None:
    windows = step("general")
    windows.push(("a", 1), 60)
    taken = snapshot(windows)

    with pytest.raises(RestoreError, match=r"'step' cannot read the stagger"):
        step("general").restore(replace(taken, operator={**taken.operator, "@staggers": (stored,)}))


def test_staggered_windows_of_processing_time_fire_by_the_clock() -> None:
    windows = step(
        "general",
        start=1_030,
        assigner=replace(NATURAL, domain=TimeDomain.PROCESSING),
        trigger=ProcessingTime(),
    )
    windows.push(("a", 1))
    windows.advance_processing_time(1_120)
    windows.push(("a", 2))
    before = bounds(windows)
    windows.advance_processing_time(1_130)

    assert before == []
    assert bounds(windows) == [("a", 1_030, 1_130, 3)]


def test_triggers_of_event_time_get_staggered_windows() -> None:
    seen: list[int] = []

    class Sees(EventTime[Event]):
        def on_element(self, value: Any, timestamp: Any, window: Any, ctx: Any) -> Any:
            seen.append(window.start)
            return super().on_element(value, timestamp, window, ctx)

    windows = step("general", start=30, trigger=Sees())
    windows.push(("a", 1), 30)

    assert seen == [30]
