"""The life of a checkpoint in the coordinator."""

from __future__ import annotations

import pytest

from aflow.errors import InternalError
from aflow.machines.checkpoints.coordinator import Coordinator
from aflow.machines.checkpoints.events import (
    Acknowledged,
    AlarmFired,
    Answer,
    CancelAlarm,
    CoordinatorSettings,
    Declined,
    Discard,
    Event,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    NotStored,
    Refuse,
    Requested,
    SetAlarm,
    Started,
    Stopped,
    StoreCheckpoint,
    Stored,
    TriggerTasks,
)
from aflow.model.elements import CheckpointKind
from tests.machines.checkpoints.clocked_coordinator import (
    FINAL,
    PERIODIC,
    SAVEPOINT,
    ClockedCoordinator,
)

#: Nothing is scheduled, much may be under way, and failures are tolerated.
ASKED_ONLY = CoordinatorSettings(timeout=1000, max_concurrent=10, tolerable_failures=10)
STRICT = CoordinatorSettings(timeout=1000, max_concurrent=10)


@pytest.mark.parametrize("kind", CheckpointKind)
def test_a_requested_checkpoint_begins_at_once(kind: CheckpointKind) -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY, first_id=7)

    assert coordinator.request(1, kind, at=5) == [TriggerTasks(7, kind, 5), SetAlarm(1005)]
    assert coordinator.machine.pending == (7,)


def test_a_request_before_the_start_waits_for_it() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY, started=False)

    assert coordinator.request(1, SAVEPOINT, at=3) == []
    assert coordinator(Started(), 5) == [TriggerTasks(1, SAVEPOINT, 5), SetAlarm(1005)]


def test_a_savepoint_is_not_held_back_and_a_checkpoint_is() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(max_concurrent=1))
    coordinator.request(1, SAVEPOINT)

    assert coordinator.request(2, PERIODIC) == []
    assert coordinator.request(3, SAVEPOINT) == [TriggerTasks(2, SAVEPOINT, 0)]


def test_it_is_stored_when_the_last_task_has_acknowledged() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY, tasks=["a", "b", "c"])
    coordinator.request(1, SAVEPOINT)

    assert coordinator(Acknowledged("c", 1)) == []
    assert coordinator(Acknowledged("a", 1)) == []
    assert coordinator(Acknowledged("b", 1)) == [StoreCheckpoint(1, SAVEPOINT)]


def test_a_repeated_acknowledgement_does_nothing() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1)
    coordinator(Acknowledged("a", 1))

    assert coordinator(Acknowledged("a", 1)) == []
    assert coordinator(Acknowledged("b", 1)) == [StoreCheckpoint(1, PERIODIC)]
    assert coordinator(Acknowledged("b", 1)) == []


def test_once_it_is_stored_all_tasks_and_the_requester_are_notified() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(4)
    coordinator.acknowledge(1)

    assert coordinator(Stored(1)) == [NotifyComplete(1), Answer(4, 1), CancelAlarm()]
    assert coordinator.machine.pending == ()
    assert coordinator.machine.completed == (1,)


def test_an_acknowledgement_after_the_end_does_nothing() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1)
    coordinator(Declined("a", 1, "busy"))

    assert coordinator(Acknowledged("b", 1)) == []


def test_a_declined_checkpoint_is_aborted_at_once() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(4)

    assert coordinator(Declined("a", 1, "disk full")) == [
        NotifyAborted(1, "declined by a: disk full"),
        Refuse(4, "checkpoint 1 failed: declined by a: disk full"),
        CancelAlarm(),
    ]


def test_a_second_task_that_declines_too_does_nothing() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(tolerable_failures=1))
    coordinator.request(1)
    coordinator(Declined("a", 1, "disk full"))

    assert coordinator(Declined("b", 1, "disk full")) == []


def test_one_that_takes_too_long_is_aborted_and_names_the_tasks_that_were_missing() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY, tasks=["a", "b", "c", "d", "e", "f"])
    coordinator.request(4, SAVEPOINT)
    coordinator(Acknowledged("b", 1))

    assert coordinator(AlarmFired(), 1000) == [
        NotifyAborted(1, "expired after 1s without a, c, d and 2 more"),
        Refuse(4, "savepoint 1 failed: expired after 1s without a, c, d and 2 more"),
    ]
    assert coordinator.machine.pending == ()


def test_each_checkpoint_expires_after_its_own_timeout() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1)
    coordinator.request(2, at=10)

    assert coordinator(AlarmFired(), 1000) == [
        NotifyAborted(1, "expired after 1s without a, b"),
        Refuse(1, "checkpoint 1 failed: expired after 1s without a, b"),
        SetAlarm(1010),
    ]
    assert coordinator.machine.pending == (2,)


def test_one_that_cannot_be_stored_is_aborted() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(4)
    coordinator.acknowledge(1)

    assert coordinator(NotStored(1, "no space")) == [
        NotifyAborted(1, "could not be stored: no space"),
        Refuse(4, "checkpoint 1 failed: could not be stored: no space"),
        CancelAlarm(),
    ]


def test_the_last_acknowledgement_wins_over_a_deadline_before_its_alarm() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1)

    assert coordinator.acknowledge(1, at=2000) == [StoreCheckpoint(1, PERIODIC)]
    assert coordinator(Stored(1)) == [NotifyComplete(1), Answer(1, 1), CancelAlarm()]


def test_one_that_expires_while_it_is_stored_is_removed_when_it_turns_up() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1)
    coordinator.acknowledge(1)

    assert coordinator(AlarmFired(), 1000) == [
        NotifyAborted(1, "expired after 1s while it was being stored"),
        Refuse(1, "checkpoint 1 failed: expired after 1s while it was being stored"),
    ]
    assert coordinator(Stored(1)) == [Discard(1)]


def test_one_that_expires_while_it_is_stored_and_could_not_be_is_counted_once() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(timeout=1000, tolerable_failures=1))
    coordinator.request(1)
    coordinator.acknowledge(1)
    coordinator(AlarmFired(), 1000)

    assert coordinator(NotStored(1, "no space")) == []


# -------------------------------------------------------------------------------------------------- subsumption


def test_a_completed_one_subsumes_older_periodic_ones_and_answers_for_them() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    for request in (1, 2, 3):
        coordinator.request(request)

    assert coordinator.complete(2) == [
        NotifyComplete(2),
        NotifyAborted(1, "subsumed"),
        Answer(1, 2),
        Answer(2, 2),
    ]
    assert coordinator.machine.pending == (3,)


@pytest.mark.parametrize("kind", [SAVEPOINT, FINAL])
def test_a_savepoint_and_the_final_one_are_not_subsumed(kind: CheckpointKind) -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1, kind)
    coordinator.request(2)
    coordinator.complete(2)

    assert coordinator.machine.pending == (1,)
    assert coordinator.acknowledge(1) == [StoreCheckpoint(1, kind)]


def test_a_completed_savepoint_subsumes_nothing() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1)
    coordinator.request(2, SAVEPOINT)

    assert coordinator.complete(2) == [NotifyComplete(2), Answer(2, 2)]
    assert coordinator.complete(1) == [NotifyComplete(1), Answer(1, 1), CancelAlarm()]


def test_subsumed_ones_are_no_failures() -> None:
    coordinator = ClockedCoordinator(STRICT)
    coordinator.request(1)
    coordinator.request(2)
    coordinator.complete(2)
    coordinator.request(3)

    assert coordinator.complete(3) == [NotifyComplete(3), Discard(2), Answer(3, 3), CancelAlarm()]


def test_one_that_is_subsumed_while_it_is_stored_is_removed_when_it_turns_up() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1)
    coordinator.request(2)
    coordinator.acknowledge(1)
    coordinator.complete(2)

    assert coordinator(Stored(1)) == [Discard(1)]
    assert coordinator.machine.completed == (2,)


# ---------------------------------------------------------------------------------------------------- retention


def test_a_completed_checkpoint_makes_older_ones_superfluous() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(keep=2), first_id=6, completed=[3, 5])
    coordinator.request(1)

    assert coordinator.complete(6) == [NotifyComplete(6), Discard(3), Answer(1, 6), CancelAlarm()]
    assert coordinator.machine.completed == (5, 6)


def test_savepoints_are_neither_counted_nor_removed() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(keep=1), first_id=6, completed=[5])
    coordinator.request(1, SAVEPOINT)
    coordinator.request(2, PERIODIC)

    assert coordinator.complete(6) == [
        NotifyComplete(6),
        Answer(1, 6),
        TriggerTasks(7, PERIODIC, 0),
    ]
    assert coordinator.complete(7) == [NotifyComplete(7), Discard(5), Answer(2, 7), CancelAlarm()]


def test_the_final_one_is_kept_like_a_periodic_one() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(keep=1), first_id=6, completed=[5])
    coordinator.request(1, FINAL)

    assert coordinator.complete(6) == [NotifyComplete(6), Discard(5), Answer(1, 6), CancelAlarm()]


# ----------------------------------------------------------------------------------------------------- failures


def test_the_job_fails_with_the_first_failure_when_none_is_tolerated() -> None:
    coordinator = ClockedCoordinator(STRICT)
    coordinator.request(1)
    coordinator.request(2, SAVEPOINT)
    reason = "a checkpoint has failed, and tolerable_failures is 0; checkpoint 1 failed: declined by a: x"

    assert coordinator(Declined("a", 1, "x")) == [
        NotifyAborted(1, "declined by a: x"),
        Refuse(1, "checkpoint 1 failed: declined by a: x"),
        FailJob(reason),
        NotifyAborted(2, reason),
        Refuse(2, reason),
        CancelAlarm(),
    ]


def test_the_job_fails_when_more_fail_in_a_row_than_are_tolerated() -> None:
    coordinator = ClockedCoordinator(
        CoordinatorSettings(every=100, timeout=50, tolerable_failures=1)
    )
    coordinator(AlarmFired(), 0)

    assert coordinator(AlarmFired(), 50) == [
        NotifyAborted(1, "expired after 50ms without a, b"),
        SetAlarm(100),
    ]
    coordinator(AlarmFired(), 100)
    assert coordinator(AlarmFired(), 150) == [
        NotifyAborted(2, "expired after 50ms without a, b"),
        FailJob(
            "2 checkpoints in a row have failed, and tolerable_failures is 1; "
            "checkpoint 2 failed: expired after 50ms without a, b"
        ),
    ]


def test_the_job_fails_once_when_several_expire_together() -> None:
    coordinator = ClockedCoordinator(STRICT)
    coordinator.request(1)
    coordinator.request(2)

    done = coordinator(AlarmFired(), 1000)

    assert [type(each) for each in done] == [
        NotifyAborted,
        Refuse,
        FailJob,
        NotifyAborted,
        Refuse,
    ]


def test_a_success_forgives_earlier_failures() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(tolerable_failures=1))
    for request in (1, 3):
        coordinator.request(request)
        coordinator(Declined("a", request, "x"))
        coordinator.request(request + 1)
        coordinator.complete(request + 1)
    coordinator.request(5)

    assert not any(isinstance(each, FailJob) for each in coordinator(Declined("a", 5, "x")))


def test_a_savepoint_does_not_forgive_failures_of_checkpoints() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(tolerable_failures=1))
    coordinator.request(1)
    coordinator(Declined("a", 1, "x"))
    coordinator.request(2, SAVEPOINT)
    coordinator.complete(2)
    coordinator.request(3)

    assert FailJob in [type(each) for each in coordinator(Declined("a", 3, "x"))]


def test_a_savepoint_that_fails_is_no_failure_of_the_job() -> None:
    coordinator = ClockedCoordinator(STRICT)
    coordinator.request(1, SAVEPOINT)

    assert coordinator(Declined("a", 1, "x")) == [
        NotifyAborted(1, "declined by a: x"),
        Refuse(1, "savepoint 1 failed: declined by a: x"),
        CancelAlarm(),
    ]


def test_a_final_one_that_fails_is_a_failure_of_the_job() -> None:
    coordinator = ClockedCoordinator(STRICT)
    coordinator.request(1, FINAL)

    assert FailJob in [type(each) for each in coordinator(Declined("a", 1, "x"))]


# ------------------------------------------------------------------------------------------------------- the end


def test_a_stop_aborts_pending_checkpoints_and_refuses_requests() -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(every=100))
    coordinator(AlarmFired(), 0)
    coordinator.request(1, PERIODIC)
    coordinator.request(2, SAVEPOINT)

    assert coordinator(Stopped("task a failed")) == [
        NotifyAborted(1, "task a failed"),
        NotifyAborted(2, "task a failed"),
        Refuse(2, "task a failed"),
        Refuse(1, "task a failed"),
        CancelAlarm(),
    ]


@pytest.mark.parametrize(
    "event",
    [
        Acknowledged("a", 1),
        Declined("a", 1, "x"),
        Stored(1),
        NotStored(1, "x"),
        AlarmFired(),
        Started(),
        Stopped("again"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_after_a_stop_nothing_happens(event: Event) -> None:
    coordinator = ClockedCoordinator(CoordinatorSettings(every=100))
    coordinator(AlarmFired(), 0)
    coordinator.acknowledge(1)
    coordinator(Stopped("stopped"))

    assert coordinator(event, 5000) == []


def test_a_request_after_a_stop_is_refused() -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)

    assert coordinator(Stopped("stopped")) == []
    assert coordinator.request(1, SAVEPOINT) == [Refuse(1, "stopped")]


# ------------------------------------------------------------------------------------------- impossible events


def test_a_coordinator_needs_tasks() -> None:
    with pytest.raises(InternalError, match="needs at least one task"):
        Coordinator([], ASKED_ONLY)


def test_a_number_is_not_given_twice() -> None:
    with pytest.raises(InternalError, match="begin at 3, but 3 exists"):
        Coordinator(["a"], ASKED_ONLY, first_id=3, completed=[3])


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Acknowledged("z", 1), "'z' is no task"),
        (Declined("z", 1, "x"), "'z' is no task"),
        (Acknowledged("a", 2), "checkpoint 2, which has not begun"),
        (Stored(1), "checkpoint 1 was not to be stored"),
        (NotStored(9, "x"), "checkpoint 9 was not to be stored"),
        (Started(), "started twice"),
    ],
    ids=str,
)
def test_an_impossible_event_is_reported_with_the_recent_ones(event: Event, message: str) -> None:
    coordinator = ClockedCoordinator(ASKED_ONLY)
    coordinator.request(1)

    with pytest.raises(InternalError, match=message) as caught:
        coordinator(event)
    assert caught.value.events == (Started(), Requested(1, PERIODIC), event)
