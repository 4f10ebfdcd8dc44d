"""Timers in groups, by time and window: identity, order, timers of whole windows, and changes during a pass."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aflow.machines.timer_changes import Changes
from aflow.machines.timer_queue import Timer
from aflow.machines.windows.window_timers import DueWindow, WindowTimers
from aflow.model.windows import TimeWindow

EARLY = TimeWindow(0, 10)
LATER = TimeWindow(10, 20)


def due(timers: WindowTimers[str], now: int) -> list[DueWindow]:
    return list(timers.due(now))


def test_the_keys_of_a_window_with_timers_for_one_time_are_due_together() -> None:
    timers = WindowTimers[str]()
    timers.set(9, EARLY, "a")
    timers.set(9, EARLY, "b")
    timers.set(9, LATER, "a")

    assert timers.earliest == 9
    assert due(timers, 9) == [(9, EARLY, ["a", "b"]), (9, LATER, ["a"])]
    assert len(timers) == 0
    assert timers.earliest is None


def test_setting_a_timer_again_sets_no_second_one() -> None:
    timers = WindowTimers[str]()

    first, second = timers.set(9, EARLY, "a"), timers.set(9, EARLY, "a")

    assert (first, second, len(timers)) == (True, False, 1)


def test_groups_are_due_in_the_order_of_time() -> None:
    timers = WindowTimers[str]()
    timers.set(30, EARLY, "a")
    timers.set(10, LATER, "a")
    timers.set(20, EARLY, "a")

    assert [time for time, *_ in due(timers, 25)] == [10, 20]
    assert timers.earliest == 30


def test_a_deleted_timer_is_not_due() -> None:
    timers = WindowTimers[str]()
    timers.set(9, EARLY, "a")
    timers.set(9, EARLY, "b")
    timers.set(8, EARLY, "a")

    deleted = [
        timers.delete(9, EARLY, "a"),
        timers.delete(9, EARLY, "a"),
        timers.delete(8, EARLY, "a"),
    ]

    assert deleted == [True, False, True]
    assert timers.earliest == 9
    assert due(timers, 9) == [(9, EARLY, ["b"])]


def test_the_timer_of_a_whole_window_covers_those_of_its_keys() -> None:
    timers = WindowTimers[str]()
    timers.set(9, EARLY, "a")
    timers.set(9, EARLY, "b")
    timers.set_for_all_keys(9, EARLY)

    again = timers.set(9, EARLY, "c"), timers.delete(9, EARLY, "a")

    assert (again, len(timers)) == ((False, False), 1)
    assert due(timers, 9) == [(9, EARLY, None)]
    assert len(timers) == 0


def test_a_timer_that_is_set_while_others_are_due_is_due_in_the_same_pass() -> None:
    timers = WindowTimers[str]()
    timers.set(5, EARLY, "a")
    seen: list[DueWindow] = []

    for each in timers.due(10):
        seen.append(each)
        if each.time < 7:
            timers.set(each.time + 1, EARLY, "a")

    assert [each.time for each in seen] == [5, 6, 7]


def test_a_timer_that_is_deleted_while_others_are_due_is_not_due() -> None:
    timers = WindowTimers[str]()
    timers.set(5, EARLY, "a")
    timers.set(6, EARLY, "a")
    seen: list[int] = []

    for each in timers.due(10):
        seen.append(each.time)
        timers.delete(6, EARLY, "a")

    assert seen == [5]


def test_added_and_deleted_timers_do_not_grow_the_heap() -> None:
    timers = WindowTimers[int]()
    timers.set(10**6, EARLY, 0)

    for at in range(1000):
        timers.set(at, EARLY, 1)
        timers.delete(at, EARLY, 1)

    assert len(timers._heap) < 100  # pyright: ignore[reportPrivateUsage] - what is not there is seen nowhere else
    assert timers.earliest == 10**6


def test_only_the_timers_of_keys_are_listed_for_a_snapshot() -> None:
    timers = WindowTimers[str]()
    timers.set(9, EARLY, "a")
    timers.set_for_all_keys(19, LATER)

    assert list(timers.copied()) == [(9, "a", EARLY)]


def test_timers_of_keys_are_replaced_by_one_of_the_whole_window() -> None:
    timers = WindowTimers[str]()
    timers.set(9, EARLY, "a")
    timers.take_changes()

    timers.set(9, EARLY, "b")
    timers.set_for_all_keys(9, EARLY)

    assert timers.take_changes() == Changes([], [Timer(9, "a", EARLY)])


class AsASet(RuleBasedStateMachine):
    """A reference that searches a set of timers of keys."""

    TIMES = st.integers(0, 20)
    WINDOWS = st.sampled_from([EARLY, LATER])
    KEYS = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.timers = WindowTimers[str]()
        self.model: set[tuple[int, TimeWindow, str]] = set()
        #: The timers when changes were last taken.
        self.taken: set[tuple[int, TimeWindow, str]] | None = None

    @rule(time=TIMES, window=WINDOWS, key=KEYS)
    def set_one(self, time: int, window: TimeWindow, key: str) -> None:
        assert self.timers.set(time, window, key) is ((time, window, key) not in self.model)
        self.model.add((time, window, key))

    @rule(time=TIMES, window=WINDOWS, key=KEYS)
    def delete_one(self, time: int, window: TimeWindow, key: str) -> None:
        assert self.timers.delete(time, window, key) is ((time, window, key) in self.model)
        self.model.discard((time, window, key))

    @rule(now=TIMES)
    def take_due(self, now: int) -> None:
        taken = [
            (time, window, key) for time, window, keys in self.timers.due(now) for key in keys or ()
        ]
        assert [time for time, *_ in taken] == sorted(time for time, *_ in taken)
        assert sorted(taken, key=str) == sorted(
            (timer for timer in self.model if timer[0] <= now), key=str
        )
        self.model = {timer for timer in self.model if timer[0] > now}

    @rule()
    def take_changes(self) -> None:
        changes = self.timers.take_changes()
        assert (changes is None) == (self.taken is None)
        if changes is not None and self.taken is not None:
            added = {(time, window, key) for time, key, window in changes.added}
            removed = {(time, window, key) for time, key, window in changes.removed}
            assert added == self.model - self.taken
            assert removed == self.taken - self.model
        self.taken = set(self.model)

    @invariant()
    def as_many_and_the_same_first(self) -> None:
        assert len(self.timers) == len(self.model)
        assert self.timers.earliest == min((time for time, *_ in self.model), default=None)
        assert {(at, window, key) for at, key, window in self.timers.copied()} == self.model


TestAsASet = AsASet.TestCase
TestAsASet.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
