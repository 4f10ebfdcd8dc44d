"""Rules that hold for all groups."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aflow.machines.calls.groups import Grouping, GroupSize


class GroupingRules(RuleBasedStateMachine):
    """Groups, compared with a list of waiting calls and their times of arrival."""

    @initialize(size=st.integers(1, 4), delay=st.integers(0, 10))
    def begin(self, size: int, delay: int) -> None:
        self.size, self.delay = size, delay
        self.line: Grouping[object] = Grouping(GroupSize(size, delay))
        self.model: list[tuple[object, int]] = []
        self.now = 1000

    def due(self, now: int, *, company: bool) -> bool:
        if not self.model:
            return False
        waited = now - self.model[0][1]
        return len(self.model) >= self.size or waited >= self.delay or not company

    @rule()
    def come(self) -> None:
        call = object()
        self.line.add(call, self.now)

        self.model.append((call, self.now))

    @rule(company=st.booleans())
    def take(self, company: bool) -> None:
        due, waited = self.due(self.now, company=company), self.model
        group = self.line.take(self.now, company=company)

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

    @rule(after=st.integers(1, 8))
    def wait(self, after: int) -> None:
        self.now += after

    @invariant()
    def there_is_a_group_to_take_once_the_alarm_has_rung(self) -> None:
        if not hasattr(self, "line"):
            return
        earliest = self.line.earliest
        assert (earliest is None) == (not self.model)
        assert earliest is None or self.line.due(max(self.now, earliest), company=True)

    @invariant()
    def as_many_slots_are_woken_as_there_are_groups_and_at_most_one_more(self) -> None:
        if not hasattr(self, "line"):
            return
        for company in (True, False):
            due = self.line.due(self.now, company=company)
            assert (due > 0) == self.due(self.now, company=company)
            assert len(self.model) // self.size <= due <= -(-len(self.model) // self.size)

    @invariant()
    def all_who_came_are_there(self) -> None:
        if hasattr(self, "line"):
            assert len(self.line) == len(self.model)


TestGroupingRules = GroupingRules.TestCase
