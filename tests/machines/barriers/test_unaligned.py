"""Barriers that overtake from the start. Flink's facts are in tests/conformance."""

from __future__ import annotations

import pytest

from aflow.errors import InternalError
from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import (
    Abort,
    AbortReason,
    AllArrived,
    Capture,
    DiscardCapture,
    EndCapture,
    TriggerCheckpoint,
)
from tests.machines.barriers.shorthand import arrived, barrier, cancelled, ended, tell

ONE = barrier(1, unaligned=True)
TWO = barrier(2, unaligned=True)


def test_the_first_barrier_triggers_and_the_other_channels_are_captured_up_to_theirs() -> None:
    machine = AlternatingBarriers(3)

    assert machine.handle(arrived(1, ONE), 10) == [TriggerCheckpoint(ONE, 10), Capture(1, (0, 2))]
    assert machine.handle(arrived(2, ONE), 14) == [EndCapture(2)]
    assert machine.handle(arrived(0, ONE), 17) == [EndCapture(0), AllArrived(1, alignment=7)]
    assert machine.pending_ids == ()


def test_one_channel_has_nothing_to_capture() -> None:
    machine = AlternatingBarriers(1)

    assert machine.handle(arrived(0, ONE), 3) == [TriggerCheckpoint(ONE, 3), AllArrived(1, 0)]


def test_ended_channels_are_not_captured() -> None:
    machine = AlternatingBarriers(3)
    tell(machine, ended(2))

    assert machine.handle(arrived(0, ONE), 0) == [TriggerCheckpoint(ONE, 0), Capture(1, (1,))]


def test_the_end_of_a_channel_ends_its_capture() -> None:
    machine = AlternatingBarriers(3)
    tell(machine, arrived(0, ONE))

    assert machine.handle(ended(2), 5) == [EndCapture(2)]
    assert machine.handle(ended(0), 5) == []
    assert machine.handle(ended(1), 6) == [EndCapture(1), AllArrived(1, 6)]


def test_a_newer_barrier_discards_captured_records_before_the_abort_is_reported() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE))

    assert machine.handle(arrived(1, TWO), 0) == [
        DiscardCapture(1),
        Abort(1, AbortReason.SUBSUMED),
        TriggerCheckpoint(TWO, 0),
        Capture(2, (0,)),
    ]


def test_a_cancellation_discards_captured_records() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE))

    assert machine.handle(cancelled(1, 1), 0) == [
        DiscardCapture(1),
        Abort(1, AbortReason.CANCELLED),
    ]
    assert tell(machine, arrived(1, ONE), cancelled(0, 1)) == []


def test_a_cancellation_of_a_complete_checkpoint_is_ignored() -> None:
    machine = AlternatingBarriers(1)
    tell(machine, arrived(0, ONE))

    assert machine.handle(cancelled(0, 1), 0) == []


def test_after_the_ends_nothing_is_in_flight_so_the_checkpoint_is_aligned() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, ended(0), ended(1))

    assert machine.handle(arrived(0, ONE), 6) == [
        TriggerCheckpoint(barrier(1), 6),
        AllArrived(1, 0),
    ]
    assert machine.handle(arrived(1, ONE), 7) == []


def test_a_second_barrier_of_the_pending_checkpoint_on_a_channel_is_a_corrupt_stream() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE))

    with pytest.raises(InternalError, match="twice"):
        machine.handle(arrived(0, ONE), 0)
