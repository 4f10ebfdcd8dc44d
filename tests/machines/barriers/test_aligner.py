"""Barriers that keep their place. Flink's facts are in tests/conformance."""

from __future__ import annotations

import pytest

from aflow.errors import InternalError
from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.events import (
    Abort,
    AbortReason,
    AllArrived,
    Block,
    TriggerCheckpoint,
    Unblock,
)
from tests.machines.barriers.shorthand import announced, arrived, barrier, cancelled, ended, tell


def test_channels_wait_at_their_barrier_until_the_last_one_triggers() -> None:
    aligner = BarrierAligner(3)

    assert aligner.handle(arrived(2, 1), 10) == [Block(2)]
    assert aligner.handle(arrived(0, 1), 15) == [Block(0)]
    assert list(aligner.pending_ids) == [1]
    assert aligner.handle(arrived(1, 1), 30) == [
        Unblock(0),
        Unblock(2),
        TriggerCheckpoint(barrier(1), start_delay=10),
        AllArrived(1, alignment=20),
    ]
    assert list(aligner.pending_ids) == []


def test_one_channel_is_never_blocked_and_needs_no_time_to_align() -> None:
    aligner = BarrierAligner(1)

    assert aligner.handle(arrived(0, 7), 40) == [
        TriggerCheckpoint(barrier(7), 40),
        AllArrived(7, 0),
    ]


def test_clocks_that_disagree_make_no_negative_delay() -> None:
    aligner = BarrierAligner(1)

    assert aligner.handle(arrived(0, barrier(1, at=50)), 40) == [
        TriggerCheckpoint(barrier(1, at=50), 0),
        AllArrived(1, 0),
    ]


def test_a_newer_barrier_subsumes_the_pending_checkpoint_and_blocks_only_its_own_channel() -> None:
    aligner = BarrierAligner(3)
    tell(aligner, arrived(0, 1), arrived(1, 1))

    assert aligner.handle(arrived(2, 2), 0) == [
        Unblock(0),
        Unblock(1),
        Abort(1, AbortReason.SUBSUMED),
        Block(2),
    ]
    assert aligner.pending_ids == (2,)


def test_a_late_barrier_of_a_subsumed_checkpoint_is_ignored() -> None:
    aligner = BarrierAligner(3)
    tell(aligner, arrived(0, 1), arrived(2, 2))

    assert aligner.handle(arrived(1, 1), 0) == []


def test_a_late_barrier_of_an_aborted_checkpoint_is_ignored() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, arrived(0, 1), cancelled(1, 1))

    assert aligner.handle(arrived(1, 1), 0) == []
    assert aligner.pending_ids == ()


def test_a_barrier_after_its_own_cancellation_is_ignored() -> None:
    aligner = BarrierAligner(1)

    assert aligner.handle(cancelled(0, 3), 0) == [Abort(3, AbortReason.CANCELLED)]
    assert aligner.handle(arrived(0, 3), 0) == []
    assert aligner.latest_id == 3


def test_a_cancellation_of_a_newer_checkpoint_drops_the_pending_one_and_is_reported_once() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, arrived(0, 1))

    assert aligner.handle(cancelled(1, 2), 0) == [Unblock(0), Abort(2, AbortReason.CANCELLED)]
    assert tell(aligner, cancelled(0, 1), cancelled(0, 2)) == []
    assert aligner.latest_id == 2


def test_a_cancellation_of_a_complete_checkpoint_is_ignored() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, arrived(0, 1), arrived(1, 1))

    assert aligner.handle(cancelled(0, 1), 0) == []


def test_the_end_of_a_channel_counts_as_its_barrier() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, arrived(0, 1), now=5)

    assert aligner.handle(ended(1), 9) == [
        Unblock(0),
        TriggerCheckpoint(barrier(1), 5),
        AllArrived(1, alignment=4),
    ]


def test_a_channel_that_ended_before_the_checkpoint_is_not_waited_for() -> None:
    aligner = BarrierAligner(3)
    tell(aligner, ended(1), arrived(0, 1))

    assert aligner.handle(arrived(2, 1), 0) == [
        Unblock(0),
        TriggerCheckpoint(barrier(1), 0),
        AllArrived(1, 0),
    ]
    assert aligner.open_channels == 2


def test_a_channel_that_sent_its_barrier_and_ended_counts_once() -> None:
    aligner = BarrierAligner(3)
    tell(aligner, arrived(0, 1))

    assert aligner.handle(ended(0), 0) == []
    assert aligner.handle(arrived(1, 1), 0) == [Block(1)]


def test_an_end_while_nothing_is_pending_is_nothing() -> None:
    aligner = BarrierAligner(2)

    assert tell(aligner, ended(0), ended(1)) == []
    assert aligner.open_channels == 0


def test_a_barrier_after_an_end_is_ignored_while_another_channel_is_open() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, ended(0))

    assert aligner.handle(arrived(0, 1), 0) == []
    assert (aligner.latest_id, aligner.pending_ids) == (-1, ())
    assert aligner.handle(arrived(1, 1), 3) == [TriggerCheckpoint(barrier(1), 3), AllArrived(1, 0)]


def test_when_all_have_ended_the_first_barrier_triggers_and_the_same_one_elsewhere_is_ignored() -> (
    None
):
    aligner = BarrierAligner(2)
    tell(aligner, ended(0), ended(1))

    assert aligner.handle(arrived(1, 4), 8) == [TriggerCheckpoint(barrier(4), 8), AllArrived(4, 0)]
    assert aligner.handle(arrived(0, 4), 9) == []
    assert aligner.handle(arrived(0, 5), 9) == [TriggerCheckpoint(barrier(5), 9), AllArrived(5, 0)]


def test_a_cancelled_checkpoint_is_not_triggered_after_the_ends() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, ended(0), ended(1))

    assert aligner.handle(cancelled(0, 4), 0) == [Abort(4, AbortReason.CANCELLED)]
    assert aligner.handle(arrived(1, 4), 0) == []


def test_a_second_barrier_of_the_pending_checkpoint_on_a_channel_is_a_corrupt_stream() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, arrived(0, 1))

    with pytest.raises(
        InternalError, match="channel 0 sent the barrier of checkpoint 1 twice"
    ) as e:
        aligner.handle(arrived(0, 1), 0)

    assert e.value.events == (arrived(0, 1), arrived(0, 1))


def test_a_channel_ends_once() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, ended(1))

    with pytest.raises(InternalError, match="channel 1 has ended twice"):
        aligner.handle(ended(1), 0)


@pytest.mark.parametrize("channel", [-1, 2])
def test_a_channel_that_does_not_exist_is_refused(channel: int) -> None:
    with pytest.raises(InternalError, match=f"there is no channel {channel} among 2"):
        BarrierAligner(2).handle(arrived(channel, 1), 0)


def test_a_machine_without_channels_is_refused() -> None:
    with pytest.raises(InternalError, match="needs a channel, not 0"):
        BarrierAligner(0)


def test_announcements_have_no_effect_on_aligned_barriers() -> None:
    aligner = BarrierAligner(2)
    tell(aligner, arrived(0, 1))

    assert aligner.handle(announced(1, barrier(2, timeout=5)), 9) == []
    assert aligner.pending_ids == (1,)
