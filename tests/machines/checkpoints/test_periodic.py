"""The schedule of periodic checkpoints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.checkpoints import events
from aflow.machines.checkpoints.events import (
    AlarmFired,
    CoordinatorSettings,
    Declined,
    Discard,
    NotifyAborted,
    NotifyComplete,
    Refuse,
    RemovalsCounted,
    SetAlarm,
    Started,
    TriggerTasks,
)
from tests.machines.checkpoints.clocked_coordinator import (
    FINAL,
    PERIODIC,
    SAVEPOINT,
    ClockedCoordinator,
)

MINUTE = 60_000


def settings(
    *, first_delay: int = 0, min_pause: int = 0, max_concurrent: int = 1
) -> CoordinatorSettings:
    return CoordinatorSettings(
        every=100,
        first_delay=first_delay,
        min_pause=min_pause,
        max_concurrent=max_concurrent,
        timeout=MINUTE,
        tolerable_failures=5,
    )


def test_the_first_one_is_due_after_its_delay() -> None:
    coordinator = ClockedCoordinator(settings(first_delay=30), started=False)

    assert coordinator(Started(), 1000) == [SetAlarm(1030)]
    assert coordinator(AlarmFired(), 1030) == [TriggerTasks(1, PERIODIC, 1030), SetAlarm(1130)]


@given(
    every=st.integers(1, 10**9),
    min_pause=st.integers(0, 10**9),
    random=st.floats(0, 1, exclude_max=True),
)
def test_the_first_delay_is_from_the_pause_to_below_the_interval(
    every: int, min_pause: int, random: float
) -> None:
    delay = events.first_delay(every, min_pause, random)

    assert min_pause <= delay
    assert delay < every or delay == min_pause


@pytest.mark.parametrize(("random", "delay"), [(0.0, 40), (0.5, 70), (0.999, 99)])
def test_the_first_delay_takes_the_whole_range(random: float, delay: int) -> None:
    assert events.first_delay(100, 40, random) == delay


def test_without_an_interval_none_is_taken() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(), started=False)

    assert coordinator(Started(), 0) == []
    assert coordinator(AlarmFired(), 10**9) == []


def test_the_next_one_is_due_an_interval_after_the_last_began() -> None:
    coordinator = ClockedCoordinator(settings())
    coordinator(AlarmFired(), 0)

    assert coordinator.complete(1, at=40) == [NotifyComplete(1)]
    assert coordinator(AlarmFired(), 100) == [TriggerTasks(2, PERIODIC, 100), SetAlarm(200)]


def test_an_alarm_that_fires_early_is_set_again() -> None:
    coordinator = ClockedCoordinator(settings(first_delay=30))

    assert coordinator(AlarmFired(), 29) == [SetAlarm(30)]


def test_an_alarm_that_fires_late_does_not_move_the_schedule() -> None:
    coordinator = ClockedCoordinator(settings())

    assert coordinator(AlarmFired(), 7) == [TriggerTasks(1, PERIODIC, 7), SetAlarm(100)]


def test_beats_that_were_slept_through_are_left_out() -> None:
    coordinator = ClockedCoordinator(settings())

    assert coordinator(AlarmFired(), 350) == [TriggerTasks(1, PERIODIC, 350), SetAlarm(400)]


def test_one_that_is_due_while_another_is_under_way_begins_when_that_has_ended() -> None:
    coordinator = ClockedCoordinator(settings())
    coordinator(AlarmFired(), 0)

    assert coordinator(AlarmFired(), 100) == [SetAlarm(MINUTE)]
    assert coordinator.complete(1, at=130) == [
        NotifyComplete(1),
        TriggerTasks(2, PERIODIC, 130),
        SetAlarm(200),
    ]


def test_one_that_waited_for_more_than_an_interval_is_one() -> None:
    coordinator = ClockedCoordinator(settings())
    coordinator(AlarmFired(), 0)
    coordinator(AlarmFired(), 100)

    assert coordinator.complete(1, at=430) == [
        NotifyComplete(1),
        TriggerTasks(2, PERIODIC, 430),
        SetAlarm(500),
    ]
    assert coordinator.complete(2, at=440) == [NotifyComplete(2), Discard(1)]


def test_one_that_waits_begins_when_the_other_has_failed() -> None:
    coordinator = ClockedCoordinator(settings())
    coordinator(AlarmFired(), 0)
    coordinator(AlarmFired(), 100)

    assert coordinator(Declined("a", 1, "busy"), 110) == [
        NotifyAborted(1, "declined by a: busy"),
        TriggerTasks(2, PERIODIC, 110),
        SetAlarm(200),
    ]


def test_several_may_be_under_way_if_they_are_allowed_to() -> None:
    coordinator = ClockedCoordinator(settings(max_concurrent=2))
    coordinator(AlarmFired(), 0)

    assert coordinator(AlarmFired(), 100) == [TriggerTasks(2, PERIODIC, 100), SetAlarm(200)]
    assert coordinator(AlarmFired(), 200) == [SetAlarm(MINUTE)]
    assert coordinator.machine.pending == (1, 2)


def test_one_that_is_due_within_the_pause_is_put_off_and_the_beat_with_it() -> None:
    coordinator = ClockedCoordinator(settings(min_pause=50))
    coordinator(AlarmFired(), 0)
    coordinator.complete(1, at=80)

    assert coordinator(AlarmFired(), 100) == [SetAlarm(130)]
    assert coordinator(AlarmFired(), 130) == [TriggerTasks(2, PERIODIC, 130), SetAlarm(230)]


def test_one_that_waits_observes_the_pause_too() -> None:
    coordinator = ClockedCoordinator(settings(min_pause=50))
    coordinator(AlarmFired(), 0)
    coordinator(AlarmFired(), 100)

    assert coordinator.complete(1, at=120) == [NotifyComplete(1), SetAlarm(170)]
    assert coordinator(AlarmFired(), 170) == [TriggerTasks(2, PERIODIC, 170), SetAlarm(270)]


def test_the_pause_begins_with_the_end_of_one_that_failed_too() -> None:
    coordinator = ClockedCoordinator(settings(min_pause=50))
    coordinator(AlarmFired(), 0)
    coordinator(Declined("a", 1, "busy"), 90)

    assert coordinator(AlarmFired(), 100) == [SetAlarm(140)]


def test_a_savepoint_counts_among_those_under_way() -> None:
    coordinator = ClockedCoordinator(settings(first_delay=10))
    coordinator.request(1, SAVEPOINT)

    assert coordinator(AlarmFired(), 10) == [SetAlarm(MINUTE)]
    assert coordinator.machine.pending == (1,)


def test_a_savepoint_does_not_make_a_second_one_wait() -> None:
    coordinator = ClockedCoordinator(settings())
    coordinator(AlarmFired(), 0)
    coordinator(AlarmFired(), 100)

    assert coordinator.request(1, SAVEPOINT, at=110) == [TriggerTasks(2, SAVEPOINT, 110)]
    assert coordinator(AlarmFired(), 200) == [SetAlarm(MINUTE)]


def test_a_checkpoint_beyond_the_queue_is_dropped() -> None:
    coordinator = ClockedCoordinator(settings(first_delay=10))
    for request in range(1001):
        coordinator.request(request, PERIODIC)

    assert coordinator(AlarmFired(), 10) == [SetAlarm(110)]
    assert coordinator.request(1001, PERIODIC) == [
        Refuse(1001, "too many requests for checkpoints are waiting")
    ]


def test_while_too_many_are_removed_none_begins() -> None:
    coordinator = ClockedCoordinator(settings())
    coordinator(RemovalsCounted(2))

    assert coordinator(AlarmFired(), 0) == []
    assert coordinator(RemovalsCounted(1), 5) == [TriggerTasks(1, PERIODIC, 5), SetAlarm(100)]


def test_none_is_due_after_the_final_one_was_requested() -> None:
    coordinator = ClockedCoordinator(settings())
    coordinator(AlarmFired(), 0)

    assert coordinator.request(1, FINAL, at=50) == [TriggerTasks(2, FINAL, 50), SetAlarm(MINUTE)]
    coordinator.complete(1, at=60)
    coordinator.complete(2, at=60)
    assert coordinator(AlarmFired(), 1000) == []


def test_a_waiting_one_is_dropped_when_the_final_one_is_requested() -> None:
    coordinator = ClockedCoordinator(settings())
    coordinator(AlarmFired(), 0)
    coordinator(AlarmFired(), 100)
    coordinator.request(1, FINAL, at=110)
    coordinator.complete(2, at=120)

    assert coordinator.machine.pending == ()
    assert coordinator(AlarmFired(), 1000) == []


def test_none_is_due_if_the_final_one_was_requested_before_the_start() -> None:
    coordinator = ClockedCoordinator(settings(), started=False)
    coordinator.request(1, FINAL)

    assert coordinator(Started(), 0) == [TriggerTasks(1, FINAL, 0), SetAlarm(MINUTE)]


def test_a_pause_longer_than_the_rest_of_the_interval_delays_the_schedule() -> None:
    coordinator = ClockedCoordinator(settings(min_pause=70))
    begun: list[int] = []
    for number in range(1, 20):
        while not coordinator.machine.pending:
            coordinator(AlarmFired(), coordinator.now + 1)
        begun.append(coordinator.now)
        coordinator.complete(number, at=coordinator.now + 50)

    assert begun == [1 + 120 * number for number in range(19)]
