"""Barriers that overtake. Flink's facts are in tests/conformance."""

from __future__ import annotations

import pytest

from aflow.errors import InternalError
from aflow.machines.barriers.events import (
    Abort,
    AbortReason,
    AllArrived,
    Capture,
    DiscardCapture,
    EndCapture,
    Trigger,
)
from aflow.machines.barriers.unaligner import BarrierUnaligner
from tests.machines.barriers.told import announced, arrived, barrier, cancelled, ended, tell

ONE = barrier(1, unaligned=True)
TWO = barrier(2, unaligned=True)


def test_the_first_barrier_triggers_and_the_other_channels_are_captured_up_to_theirs() -> None:
    unaligner = BarrierUnaligner(3)

    assert unaligner.handle(arrived(1, ONE), 10) == [Trigger(ONE, 10), Capture(1, (0, 2))]
    assert unaligner.handle(arrived(2, ONE), 14) == [EndCapture(2)]
    assert unaligner.handle(arrived(0, ONE), 17) == [EndCapture(0), AllArrived(1, alignment=7)]
    assert unaligner.pending_ids == ()


def test_one_channel_has_nothing_to_capture() -> None:
    unaligner = BarrierUnaligner(1)

    assert unaligner.handle(arrived(0, ONE), 3) == [Trigger(ONE, 3), AllArrived(1, 0)]


def test_a_barrier_that_came_in_its_place_goes_on_as_one_that_overtakes() -> None:
    unaligner = BarrierUnaligner(1)

    assert unaligner.handle(arrived(0, barrier(1)), 0) == [Trigger(ONE, 0), AllArrived(1, 0)]


def test_ended_channels_are_not_captured() -> None:
    unaligner = BarrierUnaligner(3)
    tell(unaligner, ended(2))

    assert unaligner.handle(arrived(0, ONE), 0) == [Trigger(ONE, 0), Capture(1, (1,))]


def test_the_end_of_a_channel_ends_its_capture() -> None:
    unaligner = BarrierUnaligner(3)
    tell(unaligner, arrived(0, ONE))

    assert unaligner.handle(ended(2), 5) == [EndCapture(2)]
    assert unaligner.handle(ended(0), 5) == []
    assert unaligner.handle(ended(1), 6) == [EndCapture(1), AllArrived(1, 6)]


def test_a_newer_barrier_discards_what_was_captured_before_the_abort_is_reported() -> None:
    unaligner = BarrierUnaligner(2)
    tell(unaligner, arrived(0, ONE))

    assert unaligner.handle(arrived(1, TWO), 0) == [
        DiscardCapture(1),
        Abort(1, AbortReason.SUBSUMED),
        Trigger(TWO, 0),
        Capture(2, (0,)),
    ]


def test_a_cancellation_discards_what_was_captured() -> None:
    unaligner = BarrierUnaligner(2)
    tell(unaligner, arrived(0, ONE))

    assert unaligner.handle(cancelled(1, 1), 0) == [
        DiscardCapture(1),
        Abort(1, AbortReason.CANCELLED),
    ]
    assert tell(unaligner, arrived(1, ONE), cancelled(0, 1)) == []


def test_an_end_that_does_not_count_discards_what_was_captured() -> None:
    unaligner = BarrierUnaligner(2, ends_count=False)
    tell(unaligner, arrived(0, ONE))

    assert unaligner.handle(ended(1), 0) == [
        DiscardCapture(1),
        Abort(1, AbortReason.INPUT_ENDED),
    ]


def test_a_cancellation_of_a_complete_checkpoint_is_ignored() -> None:
    unaligner = BarrierUnaligner(1)
    tell(unaligner, arrived(0, ONE))

    assert unaligner.handle(cancelled(0, 1), 0) == []


def test_behind_the_ends_nothing_is_in_flight_so_the_checkpoint_is_aligned() -> None:
    unaligner = BarrierUnaligner(2)
    tell(unaligner, ended(0), ended(1))

    assert unaligner.handle(arrived(0, ONE), 6) == [Trigger(barrier(1), 6), AllArrived(1, 0)]
    assert unaligner.handle(arrived(1, ONE), 7) == []


def test_a_second_barrier_of_the_pending_checkpoint_on_a_channel_is_a_corrupt_stream() -> None:
    unaligner = BarrierUnaligner(2)
    tell(unaligner, arrived(0, ONE))

    with pytest.raises(InternalError, match="twice"):
        unaligner.handle(arrived(0, ONE), 0)


def test_announcements_are_nothing_to_barriers_that_overtake_by_themselves() -> None:
    unaligner = BarrierUnaligner(2)

    assert unaligner.handle(announced(1, barrier(1, timeout=5)), 9) == []
    assert unaligner.latest_id == -1
