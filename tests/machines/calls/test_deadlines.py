"""Deadlines of calls: the earliest, and those that have passed, compared with a plain list."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aflow.machines.calls.deadlines import Deadlines

CALLS = st.sampled_from("abcdef")
MOMENTS = st.integers(-5, 30)


def test_calls_are_due_by_moment_and_then_in_the_order_in_which_they_were_set() -> None:
    deadlines = Deadlines[str]()
    for call, at in (("late", 9), ("second", 5), ("first", 3), ("third", 5)):
        deadlines.set(call, at)

    assert deadlines.due(5) == ["first", "second", "third"]
    assert deadlines.earliest == 9


def test_a_call_is_due_exactly_at_its_moment() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 10)

    assert deadlines.due(9) == []
    assert deadlines.due(10) == ["a"]


def test_what_is_due_is_due_once() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 1)
    deadlines.due(1)

    assert deadlines.due(2) == []
    assert "a" not in deadlines


def test_a_moment_that_is_set_again_replaces_the_former_one() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 1)
    deadlines.set("a", 7)

    assert deadlines.due(6) == []
    assert len(deadlines) == 1
    assert deadlines.due(7) == ["a"]


def test_to_discard_a_moment_that_was_never_set_does_nothing() -> None:
    deadlines = Deadlines[str]()

    deadlines.discard("a")

    assert deadlines.earliest is None


class DeadlineRules(RuleBasedStateMachine):
    """Against a list of calls and moments; a call that is set again keeps its place among those of its moment."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlines = Deadlines[str]()
        self.moments: list[tuple[str, int]] = []

    @rule(call=CALLS, at=MOMENTS)
    def set(self, call: str, at: int) -> None:
        self.deadlines.set(call, at)

        if any(one == call for one, _ in self.moments):
            self.moments = [(one, at if one == call else then) for one, then in self.moments]
        else:
            self.moments.append((call, at))

    @rule(call=CALLS)
    def discard(self, call: str) -> None:
        self.deadlines.discard(call)

        self.moments = [(one, at) for one, at in self.moments if one != call]

    @rule(now=MOMENTS)
    def ring(self, now: int) -> None:
        due = self.deadlines.due(now)

        assert due == [
            call for call, at in sorted(self.moments, key=lambda one: one[1]) if at <= now
        ]
        self.moments = [(call, at) for call, at in self.moments if at > now]

    @invariant()
    def all_are_there_and_the_earliest_is_known(self) -> None:
        assert len(self.deadlines) == len(self.moments)
        assert all((call in self.deadlines) == (call in dict(self.moments)) for call in "abcdef")
        assert self.deadlines.earliest == min((at for _, at in self.moments), default=None)


TestDeadlineRules = DeadlineRules.TestCase
