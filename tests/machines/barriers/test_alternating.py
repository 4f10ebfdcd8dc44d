"""Barriers that keep their place until they are too old. Flink's facts are in tests/conformance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import (
    Abort,
    AbortReason,
    AlarmFired,
    AllArrived,
    Block,
    CancelAlarm,
    Capture,
    DiscardCapture,
    EndCapture,
    Overtake,
    SetAlarm,
    TriggerCheckpoint,
    Unblock,
)
from aflow.model.elements import CheckpointKind
from tests.machines.barriers.shorthand import announced, arrived, barrier, cancelled, ended, tell

ONE = barrier(1, at=100, timeout=50)
ONE_UNALIGNED = replace(ONE, unaligned=True)
TWO = barrier(2, at=300, timeout=50)


def test_barriers_that_are_in_time_are_aligned() -> None:
    machine = AlternatingBarriers(2)

    assert machine.handle(arrived(0, ONE), 110) == [Block(0), SetAlarm(150)]
    assert machine.handle(arrived(1, ONE), 149) == [
        CancelAlarm(),
        Unblock(0),
        TriggerCheckpoint(ONE, 10),
        AllArrived(1, 39),
    ]


def test_the_alarm_turns_the_checkpoint_and_announced_barriers_overtake() -> None:
    machine = AlternatingBarriers(4)
    tell(machine, arrived(0, ONE), announced(2, ONE), ended(3), now=110)

    assert machine.handle(AlarmFired(), 150) == [
        Unblock(0),
        TriggerCheckpoint(ONE_UNALIGNED, 10),
        Capture(1, (1, 2)),
        Overtake((2,)),
    ]
    assert machine.handle(arrived(2, ONE_UNALIGNED), 150) == [EndCapture(2)]
    assert machine.handle(announced(1, ONE), 155) == [Overtake((1,))]
    assert machine.handle(arrived(1, ONE_UNALIGNED), 155) == [EndCapture(1), AllArrived(1, 45)]


def test_an_announcement_is_the_first_word_of_a_checkpoint() -> None:
    machine = AlternatingBarriers(2)

    assert machine.handle(announced(0, ONE), 105) == [SetAlarm(150)]
    assert machine.pending_ids == (1,)
    assert machine.handle(arrived(0, ONE), 120) == [Block(0)]
    assert machine.handle(arrived(1, ONE), 130) == [
        CancelAlarm(),
        Unblock(0),
        TriggerCheckpoint(ONE, 5),
        AllArrived(1, 25),
    ]


def test_a_checkpoint_with_announcements_only_turns_too() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, announced(1, ONE), now=105)

    assert machine.handle(AlarmFired(), 150) == [
        TriggerCheckpoint(ONE_UNALIGNED, 5),
        Capture(1, (0, 1)),
        Overtake((1,)),
    ]


def test_an_announcement_after_the_timeout_turns_at_once() -> None:
    machine = AlternatingBarriers(2)

    assert machine.handle(announced(0, ONE), 160) == [
        TriggerCheckpoint(ONE_UNALIGNED, 60),
        Capture(1, (0, 1)),
        Overtake((0,)),
    ]


def test_a_barrier_after_the_timeout_turns_and_blocks_nothing_for_long() -> None:
    machine = AlternatingBarriers(2)

    assert machine.handle(arrived(0, ONE), 150) == [
        Block(0),
        Unblock(0),
        TriggerCheckpoint(ONE_UNALIGNED, 50),
        Capture(1, (1,)),
    ]


def test_an_end_after_the_timeout_turns_though_the_alarm_has_not_rung() -> None:
    machine = AlternatingBarriers(3)
    tell(machine, arrived(0, ONE), now=110)

    assert machine.handle(ended(1), 151) == [
        CancelAlarm(),
        Unblock(0),
        TriggerCheckpoint(ONE_UNALIGNED, 10),
        Capture(1, (2,)),
    ]
    assert machine.handle(AlarmFired(), 152) == []
    assert machine.handle(ended(2), 153) == [EndCapture(2), AllArrived(1, 43)]


def test_the_last_barrier_completes_aligned_however_late_it_is() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE), now=110)

    assert machine.handle(arrived(1, ONE), 500) == [
        CancelAlarm(),
        Unblock(0),
        TriggerCheckpoint(ONE, 10),
        AllArrived(1, 390),
    ]


def test_an_alarm_that_fires_early_is_set_again() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE), now=110)

    assert machine.handle(AlarmFired(), 149) == [SetAlarm(150)]


@pytest.mark.parametrize("kind", [CheckpointKind.SAVEPOINT, CheckpointKind.FINAL])
def test_savepoints_are_aligned_whatever_their_timeout(kind: CheckpointKind) -> None:
    machine = AlternatingBarriers(2)
    savepoint = barrier(1, at=100, timeout=50, kind=kind)

    assert tell(machine, announced(0, savepoint), arrived(0, savepoint), now=500) == [Block(0)]
    assert machine.handle(AlarmFired(), 600) == []
    assert machine.handle(arrived(1, savepoint), 700) == [
        Unblock(0),
        TriggerCheckpoint(savepoint, 400),
        AllArrived(1, 200),
    ]


def test_a_barrier_without_timeout_never_turns() -> None:
    machine = AlternatingBarriers(2)

    assert machine.handle(arrived(0, barrier(1)), 10_000) == [Block(0)]


def test_a_barrier_that_has_overtaken_already_turns_at_once() -> None:
    machine = AlternatingBarriers(3)
    tell(machine, arrived(0, ONE), announced(2, ONE), now=110)

    assert machine.handle(arrived(1, ONE_UNALIGNED), 120) == [
        CancelAlarm(),
        Unblock(0),
        TriggerCheckpoint(ONE_UNALIGNED, 10),
        Capture(1, (2,)),
        Overtake((2,)),
    ]


def test_a_last_barrier_that_has_overtaken_makes_the_checkpoint_unaligned() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE), now=110)

    assert machine.handle(arrived(1, ONE_UNALIGNED), 120) == [
        CancelAlarm(),
        Unblock(0),
        TriggerCheckpoint(ONE_UNALIGNED, 10),
        AllArrived(1, 10),
    ]


def test_the_next_checkpoint_begins_aligned_again() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE), arrived(1, ONE_UNALIGNED), now=200)

    assert machine.handle(arrived(0, TWO), 310) == [Block(0), SetAlarm(350)]


def test_a_newer_barrier_undoes_an_aligned_checkpoint() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE), now=110)

    assert machine.handle(arrived(1, TWO), 310) == [
        Unblock(0),
        CancelAlarm(),
        Abort(1, AbortReason.SUBSUMED),
        Block(1),
        SetAlarm(350),
    ]


def test_the_announcement_of_a_newer_barrier_undoes_a_turned_checkpoint() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE), now=160)

    assert machine.handle(announced(1, TWO), 310) == [
        DiscardCapture(1),
        Abort(1, AbortReason.SUBSUMED),
        SetAlarm(350),
    ]
    assert machine.handle(arrived(1, ONE), 311) == []


def test_after_a_cancellation_no_alarm_is_set_and_nothing_is_blocked() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, arrived(0, ONE), now=110)

    assert machine.handle(cancelled(1, 1), 120) == [
        Unblock(0),
        CancelAlarm(),
        Abort(1, AbortReason.CANCELLED),
    ]
    assert tell(machine, AlarmFired(), announced(0, ONE), arrived(1, ONE), now=160) == []


def test_an_announced_barrier_after_the_last_end_triggers_at_the_end() -> None:
    machine = AlternatingBarriers(1)
    tell(machine, announced(0, ONE), now=110)

    assert machine.handle(ended(0), 120) == [
        CancelAlarm(),
        TriggerCheckpoint(ONE, 10),
        AllArrived(1, 0),
    ]
    assert machine.handle(arrived(0, ONE), 121) == []


def test_a_barrier_after_an_end_is_not_expected_and_does_not_overtake() -> None:
    machine = AlternatingBarriers(2)
    tell(machine, announced(0, ONE), ended(0), now=110)

    assert machine.handle(AlarmFired(), 150) == [
        TriggerCheckpoint(ONE_UNALIGNED, 10),
        Capture(1, (1,)),
    ]
    assert machine.handle(arrived(0, ONE), 151) == []
    assert machine.handle(arrived(1, ONE), 152) == [EndCapture(1), AllArrived(1, 42)]


def test_when_all_have_ended_the_first_barrier_triggers_and_the_same_one_elsewhere_is_ignored() -> (
    None
):
    machine = AlternatingBarriers(2)
    tell(machine, ended(0), ended(1))

    assert machine.handle(arrived(1, ONE_UNALIGNED), 500) == [
        TriggerCheckpoint(ONE, 400),
        AllArrived(1, 0),
    ]
    assert tell(machine, announced(0, ONE), arrived(0, ONE), now=501) == []
