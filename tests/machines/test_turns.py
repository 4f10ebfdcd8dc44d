"""The length of a job's turns on an event loop with a host."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.turns import Turns

LONG = 0.002
SHORT = 0.00025


def test_turns_are_long_while_nothing_else_runs() -> None:
    turns = Turns(LONG)

    for number in range(10):
        turns.passed(0.00001, number * LONG)

    assert turns.turn.seconds == LONG


def test_turns_are_short_from_the_first_pass_with_other_work_until_a_while_after_the_last() -> None:
    turns = Turns(LONG)
    lengths: list[float] = []

    for now, others in ((1.0, 0.001), (1.01, 0.0), (1.015, 0.001), (1.03, 0.0), (1.036, 0.0)):
        turns.passed(others, now)
        lengths.append(turns.turn.seconds)

    assert lengths == [SHORT, SHORT, SHORT, SHORT, LONG]


def test_a_turn_is_a_quarter_of_the_time_that_other_code_took_in_the_pass_before() -> None:
    turns = Turns(LONG)
    lengths: list[float] = []

    for now, others in ((1.0, 0.004), (1.01, 0.1), (1.02, 0.0)):
        turns.passed(others, now)
        lengths.append(turns.turn.seconds)

    assert lengths == [0.001, LONG, SHORT]


def test_a_budget_below_the_short_turn_is_kept() -> None:
    turns = Turns(0.0001)

    turns.passed(1.0, 5.0)

    assert turns.turn.seconds == 0.0001


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_a_turn_is_never_longer_than_the_budget(passes: list[tuple[float, float]]) -> None:
    turns, now = Turns(LONG), 0.0

    for others, later in passes:
        now += later
        turns.passed(others, now)
        assert SHORT <= turns.turn.seconds <= LONG
        if others > SHORT:
            assert turns.turn.seconds <= max(SHORT, others / 4)
