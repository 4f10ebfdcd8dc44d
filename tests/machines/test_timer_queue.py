"""Timers of one domain, and the one alarm they share."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aflow.machines.timer_changes import Changes
from aflow.machines.timer_queue import Timer, TimerQueue


def queue_of(*timers: tuple[int, str, str]) -> TimerQueue[str, str]:
    queue: TimerQueue[str, str] = TimerQueue()
    for timer in timers:
        assert queue.register(*timer)
    return queue


def test_timers_are_due_in_time_order_and_then_in_order_of_registration() -> None:
    queue = queue_of((5, "z", ""), (3, "b", ""), (5, "a", ""), (3, "a", ""), (6, "a", ""))

    assert list(queue.due(5)) == [
        Timer(3, "b", ""),
        Timer(3, "a", ""),
        Timer(5, "z", ""),
        Timer(5, "a", ""),
    ]
    assert list(queue.entries()) == [Timer(6, "a", "")]


def test_the_same_timer_registered_again_is_no_second_one() -> None:
    queue = queue_of((5, "a", "w"))

    assert not queue.register(5, "a", "w")
    assert list(queue.due(5)) == [Timer(5, "a", "w")]


def test_time_key_and_namespace_identify_a_timer() -> None:
    queue = queue_of((5, "a", "v"), (5, "a", "w"), (5, "b", "v"), (6, "a", "v"))

    assert len(queue) == 4
    assert queue.delete(5, "a", "w")
    assert len(list(queue.due(9))) == 3


def test_a_timer_can_be_registered_again_once_it_has_fired() -> None:
    queue = queue_of((5, "a", ""))
    list(queue.due(5))

    assert queue.register(5, "a", "")
    assert list(queue.due(5)) == [Timer(5, "a", "")]


def test_a_deleted_timer_does_not_fire() -> None:
    queue = queue_of((5, "a", ""), (6, "a", ""))

    assert queue.delete(5, "a", "")
    assert not queue.delete(5, "a", "")
    assert queue.earliest == 6
    assert list(queue.due(9)) == [Timer(6, "a", "")]


def test_a_timer_registered_again_after_being_deleted_fires_once_and_last() -> None:
    queue = queue_of((5, "a", ""), (5, "b", ""))
    queue.delete(5, "a", "")
    queue.register(5, "a", "")

    assert list(queue.due(5)) == [Timer(5, "b", ""), Timer(5, "a", "")]


def test_a_timer_registered_while_firing_fires_in_the_same_pass_if_due() -> None:
    queue = queue_of((1, "a", ""), (3, "a", ""))

    fired: list[int] = []
    for timer in queue.due(3):
        fired.append(timer.time)
        if timer.time == 1:
            queue.register(2, "a", "")
            queue.register(0, "a", "")
            queue.register(4, "a", "")

    assert fired == [1, 0, 2, 3]
    assert queue.earliest == 4


def test_a_timer_deleted_while_firing_does_not_fire() -> None:
    queue = queue_of((1, "a", ""), (2, "a", ""), (3, "a", ""))

    fired: list[int] = []
    for timer in queue.due(9):
        fired.append(timer.time)
        queue.delete(2, "a", "")

    assert fired == [1, 3]


def test_a_pass_continues_when_deletions_rebuild_the_heap() -> None:
    queue = queue_of((1, "a", ""), *((2, str(key), "") for key in range(1_000)), (4, "a", ""))

    fired: list[int] = []
    for timer in queue.due(9):
        fired.append(timer.time)
        if timer.time == 1:
            for key in range(1_000):
                queue.delete(2, str(key), "")
            queue.register(3, "a", "")

    assert fired == [1, 3, 4]


def test_a_timer_registered_again_while_its_time_fires_is_last() -> None:
    queue = queue_of((1, "a", ""), (1, "b", ""), (1, "c", ""))

    fired: list[str] = []
    for timer in queue.due(1):
        fired.append(timer.key)
        if timer.key == "a":
            queue.delete(1, "b", "")
            queue.register(1, "b", "")

    assert fired == ["a", "c", "b"]


def test_an_earlier_timer_registered_during_a_pass_is_next() -> None:
    queue = queue_of((3, "a", ""), (3, "b", ""), (3, "c", ""))

    fired: list[tuple[int, str]] = []
    for timer in queue.due(9):
        fired.append((timer.time, timer.key))
        if timer == (3, "a", ""):
            queue.register(2, "x", "")
            queue.register(2, "y", "")
            queue.register(4, "z", "")

    assert fired == [(3, "a"), (2, "x"), (2, "y"), (3, "b"), (3, "c"), (4, "z")]


def test_a_time_without_timers_can_have_others() -> None:
    queue = queue_of((3, "a", ""), (3, "b", ""))

    fired: list[str] = []
    for timer in queue.due(3):
        fired.append(timer.key)
        if timer.key == "b":
            assert queue.earliest is None
            queue.register(3, "c", "")
            assert queue.earliest == 3

    assert fired == ["a", "b", "c"]


def test_an_interrupted_pass_leaves_the_remaining_timers_of_its_time() -> None:
    queue = queue_of((3, "a", ""), (3, "b", ""), (3, "c", ""))

    for timer in queue.due(3):
        if timer.key == "b":
            break

    assert (len(queue), queue.earliest) == (1, 3)
    assert queue.register(3, "a", "")
    assert [timer.key for timer in queue.due(3)] == ["c", "a"]


@pytest.mark.parametrize("others", [0, 1, 2])
def test_an_unhashable_key_is_refused_with_any_other_timers(others: int) -> None:
    queue: TimerQueue[Any, None] = TimerQueue()
    for key in range(others):
        queue.register(5, key, None)

    with pytest.raises(TypeError, match="unhashable"):
        queue.register(5, [], None)
    with pytest.raises(TypeError, match="unhashable"):
        queue.delete(5, [], None)
    assert len(queue) == others


def test_timers_that_were_not_taken_remain() -> None:
    queue = queue_of((1, "a", ""), (2, "a", ""))

    assert next(queue.due(9)) == Timer(1, "a", "")

    assert list(queue.entries()) == [Timer(2, "a", "")]
    assert list(queue.due(9)) == [Timer(2, "a", "")]


def test_registering_the_entries_restores_the_queue_and_its_order() -> None:
    queue = queue_of((2, "b", ""), (2, "a", ""), (1, "c", ""))

    restored = queue_of(*queue.entries())

    assert list(restored.due(9)) == list(queue.due(9))


def test_a_copy_does_not_change_with_the_queue() -> None:
    queue = queue_of((1, "c", ""), (2, "b", ""), (2, "a", ""))
    before = list(queue.entries())

    copied = queue.copied()
    queue.delete(2, "b", "")
    queue.register(1, "d", "")
    queue.register(3, "e", "")

    assert list(copied) == before
    assert list(copied) == before


def test_keys_need_no_order() -> None:
    queue: TimerQueue[object, None] = TimerQueue()
    queue.register(1, "text", None)
    queue.register(1, 5, None)
    queue.register(1, None, None)

    assert [timer.key for timer in queue.due(1)] == ["text", 5, None]


def test_deleted_timers_hold_no_memory() -> None:
    class Key:
        """Counted by the garbage collector."""

    queue: TimerQueue[Key, None] = TimerQueue()
    queue.register(0, Key(), None)
    for time in range(1, 10_000):
        key = Key()
        queue.register(time, key, None)
        queue.delete(time, key, None)

    assert len(queue) == 1
    assert sum(isinstance(each, Key) for each in gc.get_objects()) < 100


def test_changes_are_recorded_after_they_were_requested() -> None:
    queue = queue_of((1, "a", ""))

    assert queue.take_changes() is None
    assert queue.take_changes() is not None


def test_a_timer_added_and_removed_between_two_captures_is_not_reported() -> None:
    queue = queue_of((1, "a", ""))
    queue.take_changes()

    queue.register(2, "b", "")
    list(queue.due(2))
    queue.register(1, "a", "")

    assert queue.take_changes() == Changes([], [])


def test_a_timer_is_deleted_before_its_handler_is_called() -> None:
    queue = queue_of((1, "a", ""), (1, "b", ""), (2, "a", ""))
    queue.take_changes()

    taken = [queue.take_changes() for _ in queue.due(2)]

    assert taken == [
        Changes([], [Timer(1, "a", "")]),
        Changes([], [Timer(1, "b", "")]),
        Changes([], [Timer(2, "a", "")]),
    ]


times = st.integers(-3, 6)
keys = st.sampled_from("ab")
namespaces = st.sampled_from(["v", "w"])


class TimerQueueRules(RuleBasedStateMachine):
    """Against a list in order of registration, sorted by time when timers are due."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: TimerQueue[str, str] = TimerQueue()
        self.model: list[tuple[int, str, str]] = []
        #: The timers when changes were taken last.
        self.taken: set[tuple[int, str, str]] | None = None

    @rule(time=times, key=keys, namespace=namespaces)
    def register(self, time: int, key: str, namespace: str) -> None:
        timer = (time, key, namespace)
        is_new = timer not in self.model

        assert self.queue.register(*timer) is is_new
        if is_new:
            self.model.append(timer)

    @rule(time=times, key=keys, namespace=namespaces)
    def delete(self, time: int, key: str, namespace: str) -> None:
        timer = (time, key, namespace)
        is_there = timer in self.model

        assert self.queue.delete(*timer) is is_there
        if is_there:
            self.model.remove(timer)

    @rule(now=times)
    def fire(self, now: int) -> None:
        due = sorted((t for t in self.model if t[0] <= now), key=lambda timer: timer[0])
        self.model = [t for t in self.model if t[0] > now]

        assert list(self.queue.due(now)) == due

    @rule(
        now=times,
        acts=st.lists(
            st.tuples(st.sampled_from(["register", "delete", "nothing"]), times, keys, namespaces),
            max_size=6,
        ),
    )
    def fire_and_act(self, now: int, acts: list[tuple[str, int, str, str]]) -> None:
        """Perform one of ``acts`` in the handler of each timer."""
        left = iter(acts)
        for timer in self.queue.due(now):
            due = [t for t in self.model if t[0] <= now]
            assert timer == min(due, key=lambda t: t[0])
            self.model.remove(timer)
            what, time, key, namespace = next(left, ("nothing", 0, "", ""))
            if what == "register":
                self.register(time, key, namespace)
            elif what == "delete":
                self.delete(time, key, namespace)
        assert not [t for t in self.model if t[0] <= now]

    @rule(count=st.integers(30, 200))
    def churn(self, count: int) -> None:
        """Enough deletions to have the heap made anew."""
        for time in range(count):
            self.queue.register(time, "churn", "")
        for time in range(count):
            self.queue.delete(time, "churn", "")

    @rule()
    def restore(self) -> None:
        self.queue = queue_of(*self.queue.entries())
        self.taken = None

    @rule()
    def take_changes(self) -> None:
        changes = self.queue.take_changes()
        there = set(self.model)

        assert (changes is None) == (self.taken is None)
        if changes is not None and self.taken is not None:
            assert sorted(changes.added) == sorted(there - self.taken)
            assert sorted(changes.removed) == sorted(self.taken - there)
        self.taken = there

    @invariant()
    def the_live_timers_are_the_same(self) -> None:
        assert sorted(self.queue.entries()) == sorted(self.model)
        assert len(self.queue) == len(self.model)
        assert self.queue.earliest == min((t[0] for t in self.model), default=None)


TestTimerQueueRules = TimerQueueRules.TestCase
