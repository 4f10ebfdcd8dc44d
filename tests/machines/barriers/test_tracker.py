"""Barriers that block nothing. Flink's facts are in tests/conformance."""

from __future__ import annotations

import pytest

from aflow.errors import InternalError
from aflow.machines.barriers.events import (
    Abort,
    AbortReason,
    AlarmFired,
    AllArrived,
    TriggerCheckpoint,
)
from aflow.machines.barriers.tracker import MOST, BarrierTracker
from tests.machines.barriers.shorthand import announced, arrived, barrier, cancelled, ended, tell


def test_the_last_barrier_triggers_and_blocks_nothing() -> None:
    tracker = BarrierTracker(3)

    assert tracker.handle(arrived(0, 1), 5) == []
    assert tracker.handle(arrived(2, 1), 6) == []
    assert tracker.handle(arrived(1, 1), 9) == [TriggerCheckpoint(barrier(1), 5), AllArrived(1, 4)]
    assert tracker.pending_ids == ()


def test_one_channel_triggers_at_once() -> None:
    tracker = BarrierTracker(1)

    assert tracker.handle(arrived(0, 1), 5) == [TriggerCheckpoint(barrier(1), 5), AllArrived(1, 0)]
    assert tracker.handle(arrived(0, 1), 6) == []


def test_an_older_checkpoint_is_still_completed_by_late_barriers() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, arrived(0, 1), arrived(0, 2))
    assert list(tracker.pending_ids) == [1, 2]

    assert tracker.handle(arrived(1, 1), 0) == [TriggerCheckpoint(barrier(1), 0), AllArrived(1, 0)]
    assert list(tracker.pending_ids) == [2]


def test_a_complete_checkpoint_drops_older_ones_silently() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, arrived(0, 1), arrived(0, 2))

    assert tracker.handle(arrived(1, 2), 0) == [TriggerCheckpoint(barrier(2), 0), AllArrived(2, 0)]
    assert tracker.pending_ids == ()
    assert tracker.handle(arrived(1, 1), 0) == []


def test_a_cancellation_aborts_older_ones_first() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, arrived(0, 1), arrived(0, 2))

    assert tracker.handle(cancelled(1, 3), 0) == [
        Abort(1, AbortReason.CANCELLED),
        Abort(2, AbortReason.CANCELLED),
        Abort(3, AbortReason.CANCELLED),
    ]


def test_late_barriers_of_a_cancelled_checkpoint_do_not_start_it_again() -> None:
    tracker = BarrierTracker(3)
    tell(tracker, arrived(0, 1), cancelled(1, 1))

    assert tell(tracker, arrived(2, 1), arrived(2, 1)) == []
    assert tracker.pending_ids == ()


def test_an_end_completes_the_newest_only() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, *(arrived(0, number) for number in (1, 2, 3)))

    assert tracker.handle(ended(1), 8) == [TriggerCheckpoint(barrier(3), 0), AllArrived(3, 8)]
    assert tracker.pending_ids == ()


def test_an_end_that_completes_a_cancelled_checkpoint_only_removes_it() -> None:
    tracker = BarrierTracker(3)
    tell(tracker, cancelled(0, 4), arrived(1, 4))

    assert tracker.handle(ended(2), 0) == []
    assert tracker.pending_ids == ()


def test_the_only_open_channel_triggers_at_once() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, ended(0))

    assert tracker.handle(arrived(1, 3), 4) == [TriggerCheckpoint(barrier(3), 4), AllArrived(3, 0)]


def test_the_only_open_channel_counts_barriers_while_something_is_pending() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, arrived(0, 1), ended(0))

    assert tracker.handle(arrived(1, 3), 4) == [TriggerCheckpoint(barrier(3), 4), AllArrived(3, 0)]
    assert tracker.pending_ids == ()


def test_no_more_than_the_limit_is_pending_and_the_oldest_is_forgotten() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, *(arrived(0, number) for number in range(MOST + 1)))
    assert len(tracker.pending_ids) == MOST

    assert tracker.handle(arrived(1, 0), 0) == []
    assert tracker.handle(arrived(1, 1), 0) == [TriggerCheckpoint(barrier(1), 0), AllArrived(1, 0)]


def test_a_barrier_after_an_end_is_ignored_while_another_channel_is_open() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, ended(0))

    assert tracker.handle(arrived(0, 1), 0) == []
    assert tracker.handle(arrived(1, 1), 3) == [TriggerCheckpoint(barrier(1), 3), AllArrived(1, 0)]


def test_when_all_have_ended_the_first_barrier_triggers_and_the_same_one_elsewhere_is_ignored() -> (
    None
):
    tracker = BarrierTracker(2)
    tell(tracker, ended(0), ended(1))

    assert tracker.handle(arrived(1, 4), 8) == [TriggerCheckpoint(barrier(4), 8), AllArrived(4, 0)]
    assert tracker.handle(arrived(0, 4), 9) == []


def test_a_second_barrier_of_a_pending_checkpoint_on_a_channel_is_a_corrupt_stream() -> None:
    tracker = BarrierTracker(2)
    tell(tracker, arrived(0, 1), arrived(0, 2))

    with pytest.raises(InternalError, match="channel 0 sent the barrier of checkpoint 1 twice"):
        tracker.handle(arrived(0, 1), 0)


def test_announcements_and_alarms_have_no_effect() -> None:
    tracker = BarrierTracker(2)

    assert tell(tracker, announced(0, barrier(1, timeout=5)), AlarmFired()) == []
    assert tracker.latest_id == -1
