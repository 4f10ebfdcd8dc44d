"""Sources that wait for each other. Flink's facts are in tests/conformance."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aflow.errors import FlowDefinitionError, InternalError
from aflow.machines.watermarks.source_alignment import AlignmentGroup, SourceAlignment
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP


def test_a_source_beyond_the_maximum_waits_until_that_is_raised() -> None:
    alignment = SourceAlignment()
    assert alignment.may_read

    alignment.on_max_allowed(100)
    alignment.on_watermark(100)
    assert alignment.may_read

    alignment.on_watermark(101)
    assert not alignment.may_read

    alignment.on_max_allowed(101)
    assert alignment.may_read


def test_a_source_without_a_watermark_reports_nothing() -> None:
    assert SourceAlignment().report() is None


def test_no_member_waits_for_an_idle_source() -> None:
    alignment = SourceAlignment()
    alignment.on_watermark(5)
    alignment.on_idle()
    assert alignment.report() == MAX_TIMESTAMP

    alignment.on_active()
    assert alignment.report() == 5


def test_every_call_reports_the_watermark() -> None:
    alignment = SourceAlignment()
    reports = [alignment.report()]
    for watermark in (5, 5, 7):
        alignment.on_watermark(watermark)
        reports.append(alignment.report())

    assert reports == [None, 5, 5, 7]


def group_of(*reports: int | None, drift: int = 10) -> AlignmentGroup:
    """A group with a member for each report; None: it has joined and said nothing."""
    group = AlignmentGroup(drift)
    for member, report in enumerate(reports):
        group.join(member)
        if report is not None:
            group.report(member, report)
    return group


def test_the_slowest_member_and_the_drift_say_how_far_all_may_go() -> None:
    group = group_of(100, 40, 70)

    assert group.max_allowed == 50
    assert group.report(0, 200) is None
    assert group.report(1, 90) == 80
    assert group.report(2, 95) == 100


def test_a_member_without_a_watermark_is_waited_for() -> None:
    group = group_of(100, None)

    assert group.max_allowed == MIN_TIMESTAMP + 10
    assert group.report(1, 95) == 105


def test_a_member_that_joins_later_is_waited_for_too() -> None:
    group = group_of(100)

    assert group.max_allowed == 110
    assert group.join(1) == MIN_TIMESTAMP + 10


def test_members_do_not_wait_for_a_removed_one_and_it_can_be_removed_twice() -> None:
    group = group_of(100, 40)

    assert group.leave(1) == 110
    assert group.leave(1) is None
    assert group.leave(0) == MAX_TIMESTAMP


def test_an_idle_member_is_not_waited_for_until_it_is_active_where_it_was() -> None:
    group = group_of(100, 40)

    assert group.report(1, MAX_TIMESTAMP) == 110
    assert group.report(1, 40) == 50


def test_an_idle_member_that_becomes_active_before_it_has_a_watermark_is_waited_for() -> None:
    group = group_of(100, MAX_TIMESTAMP)

    assert group.max_allowed == 110
    assert group.report(1, None) == MIN_TIMESTAMP + 10


def test_with_only_idle_members_everything_is_allowed() -> None:
    group = group_of(100, 40)
    group.report(0, MAX_TIMESTAMP)

    assert group.report(1, MAX_TIMESTAMP) == MAX_TIMESTAMP


def test_near_the_end_of_time_the_drift_does_not_lead_beyond_it() -> None:
    group = group_of(MAX_TIMESTAMP - 3, MAX_TIMESTAMP - 5)

    assert group.max_allowed == MAX_TIMESTAMP
    assert group.report(1, 7) == 17


def test_a_negative_drift_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="not -1 ms"):
        AlignmentGroup(-1)


def test_only_members_report_and_only_others_join() -> None:
    group = group_of(1)

    with pytest.raises(InternalError, match="member 7 is not in the group"):
        group.report(7, 1)
    with pytest.raises(InternalError, match="member 0 is in the group already"):
        group.join(0)


class Sources(RuleBasedStateMachine):
    """Sources of one group that read when allowed, become idle and active, leave, and join."""

    def __init__(self) -> None:
        super().__init__()
        self.drift = 0
        self.group = AlignmentGroup(0)
        self.sources: dict[int, SourceAlignment] = {}
        #: The last report of each active source; None before its first watermark.
        self.active: dict[int, int | None] = {}
        #: The watermark of each source, idle or not.
        self.watermarks: dict[int, int] = {}
        self.joined = 0

    @initialize(drift=st.integers(0, 30))
    def begin(self, drift: int) -> None:
        self.drift = drift
        self.group = AlignmentGroup(drift)

    @rule()
    def join(self) -> None:
        number = self.joined
        self.joined += 1
        self.sources[number] = SourceAlignment()
        self.sources[number].on_max_allowed(self.group.max_allowed)
        self.active[number] = None
        self._tell(self.group.join(number))

    @precondition(lambda self: self.sources)
    @rule(data=st.data(), step=st.integers(0, 50))
    def read(self, data: st.DataObject, step: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.sources)))
        source = self.sources[number]
        if not source.may_read:
            return
        watermark = self.watermarks.get(number, 0) + step
        self.watermarks[number] = self.active[number] = watermark
        source.on_active()
        source.on_watermark(watermark)
        self._report(number)

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def fall_silent(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.active)))
        del self.active[number]
        self.sources[number].on_idle()
        self._report(number)

    @precondition(lambda self: self.sources)
    @rule(data=st.data())
    def speak_again(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.sources)))
        self.active[number] = self.watermarks.get(number)
        self.sources[number].on_active()
        self._report(number)

    @precondition(lambda self: self.sources)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.sources)))
        del self.sources[number]
        self.active.pop(number, None)
        self.watermarks.pop(number, None)
        self._tell(self.group.leave(number))

    @invariant()
    def somebody_may_always_read(self) -> None:
        waited_for = self.active or self.sources
        assert not waited_for or any(self.sources[number].may_read for number in waited_for)

    @invariant()
    def who_may_read_is_not_further_ahead_than_the_drift(self) -> None:
        spoken = [at for at in self.active.values() if at is not None]
        silent = len(spoken) < len(self.active)
        for number in self.active:
            own = self.active[number]
            if own is not None and self.sources[number].may_read:
                assert not silent
                assert own <= min(spoken) + self.drift

    @invariant()
    def nobody_waits_who_is_within_the_drift(self) -> None:
        slowest = min(
            (MIN_TIMESTAMP if at is None else at for at in self.active.values()),
            default=MAX_TIMESTAMP,
        )
        for number, source in self.sources.items():
            own = self.watermarks.get(number, MIN_TIMESTAMP)
            assert source.may_read or own > slowest + self.drift

    def _report(self, number: int) -> None:
        self._tell(self.group.report(number, self.sources[number].report()))

    def _tell(self, allowed: int | None) -> None:
        if allowed is not None:
            for source in self.sources.values():
                source.on_max_allowed(allowed)


TestSources = Sources.TestCase
