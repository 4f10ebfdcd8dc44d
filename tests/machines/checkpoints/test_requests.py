"""The choice of the next checkpoint."""

from __future__ import annotations

import pytest

from aflow.machines.checkpoints.requests import DuringPause, Load, RequestDecider, WantedCheckpoint
from aflow.model.elements import CheckpointKind

SCHEDULED = WantedCheckpoint(CheckpointKind.PERIODIC)
ASKED = WantedCheckpoint(CheckpointKind.PERIODIC, 1)
SAVEPOINT = WantedCheckpoint(CheckpointKind.SAVEPOINT, 2)
FINAL = WantedCheckpoint(CheckpointKind.FINAL, 3)
FREE = Load(running=True)
BUSY = Load(running=True, pending=1)


def decider(
    *wanted: WantedCheckpoint, max_concurrent: int = 1, min_pause: int = 0, max_queued: int = 1000
) -> RequestDecider:
    made = RequestDecider(max_concurrent, min_pause, max_queued=max_queued)
    for each in wanted:
        made.add(each)
    return made


def test_savepoints_precede_requested_checkpoints_and_those_precede_scheduled_ones() -> None:
    made = decider(SCHEDULED, ASKED, SAVEPOINT, FINAL)

    chosen = [made.choose(0, FREE) for _ in range(5)]

    assert chosen == [SAVEPOINT, FINAL, ASKED, SCHEDULED, None]


@pytest.mark.parametrize("wanted", [SCHEDULED, ASKED])
def test_a_periodic_one_waits_while_as_many_as_may_be_are_under_way(
    wanted: WantedCheckpoint,
) -> None:
    made = decider(wanted)

    assert made.choose(0, BUSY) is None
    assert made.choose(0, FREE) == wanted


@pytest.mark.parametrize("wanted", [SAVEPOINT, FINAL])
@pytest.mark.parametrize("load", [BUSY, Load(running=True, pending=9, removals=9)])
def test_a_savepoint_and_the_final_one_are_not_held_back(
    wanted: WantedCheckpoint, load: Load
) -> None:
    made = decider(wanted, min_pause=100)
    made.ended(0)

    assert made.choose(1, load) == wanted


@pytest.mark.parametrize("wanted", [SCHEDULED, ASKED, SAVEPOINT, FINAL])
def test_nothing_begins_while_the_tasks_do_not_run(wanted: WantedCheckpoint) -> None:
    made = decider(wanted)

    assert made.choose(0, Load(running=False)) is None
    assert made.choose(0, FREE) == wanted


def test_a_periodic_one_waits_while_more_are_removed_than_may_be_under_way() -> None:
    made = decider(SCHEDULED, max_concurrent=2)

    assert made.choose(0, Load(running=True, removals=3)) is None
    assert made.choose(0, Load(running=True, removals=2)) == SCHEDULED


def test_a_scheduled_one_within_the_pause_is_dropped() -> None:
    made = decider(SCHEDULED, min_pause=100)
    made.ended(50)

    assert made.choose(149, FREE) == DuringPause(SCHEDULED, 150)
    assert made.queued == ()


def test_a_scheduled_one_at_the_end_of_the_pause_begins() -> None:
    made = decider(SCHEDULED, min_pause=100)
    made.ended(50)

    assert made.choose(150, FREE) == SCHEDULED


def test_a_scheduled_one_that_has_to_wait_anyway_is_not_dropped_for_the_pause() -> None:
    made = decider(SCHEDULED, min_pause=100)
    made.ended(50)

    assert made.choose(60, BUSY) is None
    assert made.queued == (SCHEDULED,)


def test_a_requested_one_does_not_wait_for_the_minimum_pause() -> None:
    made = decider(ASKED, min_pause=100)
    made.ended(50)

    assert made.choose(51, FREE) == ASKED


def test_a_full_queue_gives_up_the_last_in_its_order() -> None:
    made = decider(SCHEDULED, max_queued=1)

    assert made.add(SAVEPOINT) == SCHEDULED
    assert made.add(ASKED) == ASKED
    assert made.queued == (SAVEPOINT,)


def test_scheduled_checkpoints_can_be_dropped_alone() -> None:
    made = decider(SCHEDULED, SAVEPOINT, ASKED)

    made.drop_scheduled()

    assert made.queued == (SAVEPOINT, ASKED)


def test_clearing_returns_the_queue() -> None:
    made = decider(ASKED, SAVEPOINT)

    assert made.clear() == (SAVEPOINT, ASKED)
    assert made.clear() == ()
