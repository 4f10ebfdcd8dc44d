"""The fast operators of sessions and panes, compared with the general window operator on the same input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.windows import evictors, triggers
from aflow.machines.windows.assigners import SessionWindows, SlidingWindows, WindowAssigner
from aflow.machines.windows.triggers import EventTime
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP, TimeDomain
from aflow.operators.accumulation import Accumulation, folding, reducing
from aflow.operators.base import Operator
from aflow.operators.windows.factory import window_operator
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.operators.windows.sessions import SessionAggregateOperator
from aflow.operators.windows.window_operator import WindowOperator
from tests.operators.backends import BackendHarness as OperatorHarness

Event = tuple[str, int]
StoredRow = tuple[int, str, int, Any, int]
"""End, key, start, value, firing."""


def inserted(so_far: list[int], event: Event) -> list[int]:
    return sorted([*so_far, event[1]])


SUM = folding(int, lambda total, event: total + event[1], lambda a, b: a + b)
SORTED = folding(list[int], inserted, lambda a, b: sorted([*a, *b]))
LARGEST = reducing(max)


class OwnWindows(SlidingWindows):
    """A subclass of an assigner, which may assign other windows."""


@pytest.mark.parametrize(
    ("assigner", "operator"),
    [
        (SessionWindows(5), SessionAggregateOperator),
        (SessionWindows(5, TimeDomain.PROCESSING), WindowOperator),
        (SlidingWindows(10, 5), PaneAggregateOperator),
        (SlidingWindows(5, 5), PaneAggregateOperator),
        (OwnWindows(10, 5), WindowOperator),
    ],
)
def test_windows_of_event_time_that_only_fold_have_a_fast_operator(
    assigner: WindowAssigner[object], operator: type[Operator]
) -> None:
    logic = WindowLogic(assigner=assigner, trigger=EventTime(), accumulation=SUM)

    assert type(window_operator(logic)) is operator


DEFAULT: EventTime[Any] = EventTime()
SUMS = WindowLogic(assigner=SessionWindows(5), trigger=DEFAULT, accumulation=SUM)


@pytest.mark.parametrize(
    "logic",
    [
        replace(SUMS, trigger=EventTime[Any](early=triggers.Count(2))),
        replace(SUMS, trigger=triggers.Purging[Any](DEFAULT)),
        replace(SUMS, evictor=evictors.Count(3)),
        replace(SUMS, accumulation=None, apply=sum, evictor=evictors.Count(3)),
    ],
    ids=["early", "purging", "evictor", "apply with an evictor"],
)
def test_all_other_logic_has_the_general_operator(logic: WindowLogic) -> None:
    assert type(window_operator(logic)) is WindowOperator


Steps = list[list[tuple[str, int]] | int]
"""Inputs: batches of keys with timestamps after the watermark, or advances of the watermark."""

steps = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(-60, 40)), min_size=1, max_size=4),
        st.sampled_from([1, 2, 5, 13, 40, 400]),
    ),
    max_size=30,
)
latenesses = st.sampled_from([0, 4, 25, 100])
accumulations = pytest.mark.parametrize(
    "accumulation", [SUM, SORTED, LARGEST], ids=["sum", "sorted", "largest"]
)


def outcome(what: Steps, operator: Operator) -> tuple[list[list[StoredRow]], list[Event]]:
    """Return the results of each step, those of the watermark by end and key, and the late records."""
    step: OperatorHarness[Event, Any] = OperatorHarness(
        lambda: operator, key=lambda event: event[0]
    )
    now, number, taken = 0, 0, 0
    found: list[list[StoredRow]] = []
    for one in [*what, MAX_TIMESTAMP]:
        if isinstance(one, int):
            now = min(now + one, MAX_TIMESTAMP)
            step.watermark(now)
        else:
            events = [(key, number + index) for index, (key, _) in enumerate(one)]
            number += len(events)
            step.push_batch(events, [now + time for _, time in one])
        rows = [
            (w.window.end, w.key, w.window.start, w.value, w.firing) for w in step.values[taken:]
        ]
        taken += len(rows)
        found.append(sorted(rows) if isinstance(one, int) else rows)
    return found, [record.value for record in step.side(Tag[Event](LATE))]


@accumulations
@given(what=steps, gap=st.integers(1, 30), lateness=latenesses)
@settings(max_examples=200, deadline=None)
def test_sessions_are_those_of_the_general_operator(
    accumulation: Accumulation, what: Steps, gap: int, lateness: int
) -> None:
    general = WindowOperator(
        WindowLogic(
            assigner=SessionWindows(gap),
            trigger=EventTime(),
            lateness=lateness,
            accumulation=accumulation,
        )
    )
    fast = SessionAggregateOperator(gap, accumulation, lateness=lateness)

    assert outcome(what, fast) == outcome(what, general)


@accumulations
@given(what=steps, size=st.integers(1, 30), slide=st.integers(1, 12), lateness=latenesses)
@settings(max_examples=200, deadline=None)
def test_sliding_windows_are_those_of_the_general_operator(
    accumulation: Accumulation, what: Steps, size: int, slide: int, lateness: int
) -> None:
    windows = SlidingWindows(size, slide)
    general = WindowOperator(
        WindowLogic(
            assigner=windows, trigger=EventTime(), lateness=lateness, accumulation=accumulation
        )
    )
    fast = PaneAggregateOperator(windows, accumulation, lateness=lateness)

    assert outcome(what, fast) == outcome(what, general)
