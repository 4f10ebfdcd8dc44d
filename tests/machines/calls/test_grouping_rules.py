"""Whoever comes, goes and gives up: what holds for all groups."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aflow.machines.calls.grouping import Grouping


class GroupingRules(RuleBasedStateMachine):
    """Against a list of who waits, and since when."""

    @initialize(size=st.integers(1, 4), delay=st.integers(0, 10))
    def begin(self, size: int, delay: int) -> None:
        self.size, self.delay = size, delay
        self.line: Grouping[object] = Grouping(size, delay)
        self.model: list[tuple[object, int]] = []
        self.now = 1000

    def due(self, now: int) -> bool:
        if not self.model:
            return False
        waited = now - self.model[0][1]
        full = len(self.model) >= self.size
        return full or waited >= self.delay or not self.line.more_may_come

    @rule()
    def come(self) -> None:
        call = object()
        self.line.add(call, self.now)

        self.model.append((call, self.now))

    @rule()
    def take(self) -> None:
        due, waited = self.due(self.now), self.model
        group = self.line.take(self.now)

        assert (group is not None) == due
        if group is not None:
            assert group == [call for call, _ in waited[: self.size]]
            self.model = waited[len(group) :]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        call, _ = self.model.pop(data.draw(st.integers(0, len(self.model) - 1)))

        assert self.line.discard(call)
        assert not self.line.discard(call)

    @rule(more=st.booleans())
    def say_whether_more_may_come(self, more: bool) -> None:
        self.line.more_may_come = more

    @rule(after=st.integers(1, 8))
    def wait(self, after: int) -> None:
        self.now += after

    @invariant()
    def the_alarm_rings_when_there_is_a_group_and_not_before(self) -> None:
        if not hasattr(self, "line"):
            return
        earliest = self.line.earliest
        assert (earliest is None) == (not self.model)
        assert self.line.is_due(self.now) == self.due(self.now)
        if earliest is not None:
            assert self.line.is_due(max(self.now, earliest))
            assert earliest <= self.now or not self.line.is_due(earliest - 1)

    @invariant()
    def all_who_came_are_there(self) -> None:
        if hasattr(self, "line"):
            assert len(self.line) == len(self.model)


TestGroupingRules = GroupingRules.TestCase
