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
from tests.machines.checkpoints.coordinated import FINAL, PERIODIC, SAVEPOINT, Told

#: Nothing is scheduled, much may be under way, and failures are tolerated.
ASKED_ONLY = CoordinatorSettings(timeout=1000, max_concurrent=10, tolerable_failures=10)
STRICT = CoordinatorSettings(timeout=1000, max_concurrent=10)


@pytest.mark.parametrize("kind", CheckpointKind)
def test_a_checkpoint_that_is_asked_for_begins_at_once(kind: CheckpointKind) -> None:
    told = Told(ASKED_ONLY, first_id=7)

    assert told.request(1, kind, at=5) == [TriggerTasks(7, kind, 5), SetAlarm(1005)]
    assert told.machine.pending == (7,)


def test_a_request_before_the_start_waits_for_it() -> None:
    told = Told(ASKED_ONLY, started=False)

    assert told.request(1, SAVEPOINT, at=3) == []
    assert told(Started(), 5) == [TriggerTasks(1, SAVEPOINT, 5), SetAlarm(1005)]


def test_a_savepoint_is_not_held_back_and_a_checkpoint_is() -> None:
    told = Told(CoordinatorSettings(max_concurrent=1))
    told.request(1, SAVEPOINT)

    assert told.request(2, PERIODIC) == []
    assert told.request(3, SAVEPOINT) == [TriggerTasks(2, SAVEPOINT, 0)]


def test_it_is_stored_when_the_last_task_has_acknowledged() -> None:
    told = Told(ASKED_ONLY, tasks=["a", "b", "c"])
    told.request(1, SAVEPOINT)

    assert told(Acknowledged("c", 1)) == []
    assert told(Acknowledged("a", 1)) == []
    assert told(Acknowledged("b", 1)) == [StoreCheckpoint(1, SAVEPOINT)]


def test_a_repeated_acknowledgement_does_nothing() -> None:
    told = Told(ASKED_ONLY)
    told.request(1)
    told(Acknowledged("a", 1))

    assert told(Acknowledged("a", 1)) == []
    assert told(Acknowledged("b", 1)) == [StoreCheckpoint(1, PERIODIC)]
    assert told(Acknowledged("b", 1)) == []


def test_once_it_is_stored_all_tasks_and_the_requester_are_notified() -> None:
    told = Told(ASKED_ONLY)
    told.request(4)
    told.acknowledge(1)

    assert told(Stored(1)) == [NotifyComplete(1), Answer(4, 1), CancelAlarm()]
    assert told.machine.pending == ()
    assert told.machine.completed == (1,)


def test_an_acknowledgement_after_the_end_does_nothing() -> None:
    told = Told(ASKED_ONLY)
    told.request(1)
    told(Declined("a", 1, "busy"))

    assert told(Acknowledged("b", 1)) == []


def test_a_declined_checkpoint_is_aborted_at_once() -> None:
    told = Told(ASKED_ONLY)
    told.request(4)

    assert told(Declined("a", 1, "disk full")) == [
        NotifyAborted(1, "declined by a: disk full"),
        Refuse(4, "checkpoint 1 failed: declined by a: disk full"),
        CancelAlarm(),
    ]


def test_a_second_task_that_declines_too_does_nothing() -> None:
    told = Told(CoordinatorSettings(tolerable_failures=1))
    told.request(1)
    told(Declined("a", 1, "disk full"))

    assert told(Declined("b", 1, "disk full")) == []


def test_one_that_takes_too_long_is_aborted_and_names_the_tasks_that_were_missing() -> None:
    told = Told(ASKED_ONLY, tasks=["a", "b", "c", "d", "e", "f"])
    told.request(4, SAVEPOINT)
    told(Acknowledged("b", 1))

    assert told(AlarmFired(), 1000) == [
        NotifyAborted(1, "expired after 1s without a, c, d and 2 more"),
        Refuse(4, "savepoint 1 failed: expired after 1s without a, c, d and 2 more"),
    ]
    assert told.machine.pending == ()


def test_each_one_expires_in_its_own_time() -> None:
    told = Told(ASKED_ONLY)
    told.request(1)
    told.request(2, at=10)

    assert told(AlarmFired(), 1000) == [
        NotifyAborted(1, "expired after 1s without a, b"),
        Refuse(1, "checkpoint 1 failed: expired after 1s without a, b"),
        SetAlarm(1010),
    ]
    assert told.machine.pending == (2,)


def test_one_that_cannot_be_stored_is_aborted() -> None:
    told = Told(ASKED_ONLY)
    told.request(4)
    told.acknowledge(1)

    assert told(NotStored(1, "no space")) == [
        NotifyAborted(1, "could not be stored: no space"),
        Refuse(4, "checkpoint 1 failed: could not be stored: no space"),
        CancelAlarm(),
    ]


def test_the_last_acknowledgement_wins_over_a_deadline_before_its_alarm() -> None:
    told = Told(ASKED_ONLY)
    told.request(1)

    assert told.acknowledge(1, at=2000) == [StoreCheckpoint(1, PERIODIC)]
    assert told(Stored(1)) == [NotifyComplete(1), Answer(1, 1), CancelAlarm()]


def test_one_that_expires_while_it_is_stored_is_removed_when_it_turns_up() -> None:
    told = Told(ASKED_ONLY)
    told.request(1)
    told.acknowledge(1)

    assert told(AlarmFired(), 1000) == [
        NotifyAborted(1, "expired after 1s while it was being stored"),
        Refuse(1, "checkpoint 1 failed: expired after 1s while it was being stored"),
    ]
    assert told(Stored(1)) == [Discard(1)]


def test_one_that_expires_while_it_is_stored_and_could_not_be_is_counted_once() -> None:
    told = Told(CoordinatorSettings(timeout=1000, tolerable_failures=1))
    told.request(1)
    told.acknowledge(1)
    told(AlarmFired(), 1000)

    assert told(NotStored(1, "no space")) == []


# -------------------------------------------------------------------------------------------------- subsumption


def test_a_completed_one_subsumes_older_periodic_ones_and_answers_for_them() -> None:
    told = Told(ASKED_ONLY)
    for request in (1, 2, 3):
        told.request(request)

    assert told.complete(2) == [
        NotifyComplete(2),
        NotifyAborted(1, "subsumed"),
        Answer(1, 2),
        Answer(2, 2),
    ]
    assert told.machine.pending == (3,)


@pytest.mark.parametrize("kind", [SAVEPOINT, FINAL])
def test_a_savepoint_and_the_final_one_are_not_subsumed(kind: CheckpointKind) -> None:
    told = Told(ASKED_ONLY)
    told.request(1, kind)
    told.request(2)
    told.complete(2)

    assert told.machine.pending == (1,)
    assert told.acknowledge(1) == [StoreCheckpoint(1, kind)]


def test_a_completed_savepoint_subsumes_nothing() -> None:
    told = Told(ASKED_ONLY)
    told.request(1)
    told.request(2, SAVEPOINT)

    assert told.complete(2) == [NotifyComplete(2), Answer(2, 2)]
    assert told.complete(1) == [NotifyComplete(1), Answer(1, 1), CancelAlarm()]


def test_subsumed_ones_are_no_failures() -> None:
    told = Told(STRICT)
    told.request(1)
    told.request(2)
    told.complete(2)
    told.request(3)

    assert told.complete(3) == [NotifyComplete(3), Discard(2), Answer(3, 3), CancelAlarm()]


def test_one_that_is_subsumed_while_it_is_stored_is_removed_when_it_turns_up() -> None:
    told = Told(ASKED_ONLY)
    told.request(1)
    told.request(2)
    told.acknowledge(1)
    told.complete(2)

    assert told(Stored(1)) == [Discard(1)]
    assert told.machine.completed == (2,)


# ---------------------------------------------------------------------------------------------------- retention


def test_a_completed_checkpoint_makes_older_ones_superfluous() -> None:
    told = Told(CoordinatorSettings(keep=2), first_id=6, completed=[3, 5])
    told.request(1)

    assert told.complete(6) == [NotifyComplete(6), Discard(3), Answer(1, 6), CancelAlarm()]
    assert told.machine.completed == (5, 6)


def test_savepoints_are_neither_counted_nor_removed() -> None:
    told = Told(CoordinatorSettings(keep=1), first_id=6, completed=[5])
    told.request(1, SAVEPOINT)
    told.request(2, PERIODIC)

    assert told.complete(6) == [
        NotifyComplete(6),
        Answer(1, 6),
        TriggerTasks(7, PERIODIC, 0),
    ]
    assert told.complete(7) == [NotifyComplete(7), Discard(5), Answer(2, 7), CancelAlarm()]


def test_the_final_one_is_kept_like_a_periodic_one() -> None:
    told = Told(CoordinatorSettings(keep=1), first_id=6, completed=[5])
    told.request(1, FINAL)

    assert told.complete(6) == [NotifyComplete(6), Discard(5), Answer(1, 6), CancelAlarm()]


# ----------------------------------------------------------------------------------------------------- failures


def test_the_job_fails_with_the_first_failure_when_none_is_tolerated() -> None:
    told = Told(STRICT)
    told.request(1)
    told.request(2, SAVEPOINT)
    reason = "a checkpoint has failed, and tolerable_failures is 0; checkpoint 1 failed: declined by a: x"

    assert told(Declined("a", 1, "x")) == [
        NotifyAborted(1, "declined by a: x"),
        Refuse(1, "checkpoint 1 failed: declined by a: x"),
        FailJob(reason),
        NotifyAborted(2, reason),
        Refuse(2, reason),
        CancelAlarm(),
    ]


def test_the_job_fails_when_more_fail_in_a_row_than_are_tolerated() -> None:
    told = Told(CoordinatorSettings(every=100, timeout=50, tolerable_failures=1))
    told(AlarmFired(), 0)

    assert told(AlarmFired(), 50) == [
        NotifyAborted(1, "expired after 50ms without a, b"),
        SetAlarm(100),
    ]
    told(AlarmFired(), 100)
    assert told(AlarmFired(), 150) == [
        NotifyAborted(2, "expired after 50ms without a, b"),
        FailJob(
            "2 checkpoints in a row have failed, and tolerable_failures is 1; "
            "checkpoint 2 failed: expired after 50ms without a, b"
        ),
    ]


def test_the_job_fails_once_when_several_expire_together() -> None:
    told = Told(STRICT)
    told.request(1)
    told.request(2)

    done = told(AlarmFired(), 1000)

    assert [type(each) for each in done] == [
        NotifyAborted,
        Refuse,
        FailJob,
        NotifyAborted,
        Refuse,
    ]


def test_a_success_forgives_earlier_failures() -> None:
    told = Told(CoordinatorSettings(tolerable_failures=1))
    for request in (1, 3):
        told.request(request)
        told(Declined("a", request, "x"))
        told.request(request + 1)
        told.complete(request + 1)
    told.request(5)

    assert not any(isinstance(each, FailJob) for each in told(Declined("a", 5, "x")))


def test_a_savepoint_does_not_forgive_failures_of_checkpoints() -> None:
    told = Told(CoordinatorSettings(tolerable_failures=1))
    told.request(1)
    told(Declined("a", 1, "x"))
    told.request(2, SAVEPOINT)
    told.complete(2)
    told.request(3)

    assert FailJob in [type(each) for each in told(Declined("a", 3, "x"))]


def test_a_savepoint_that_fails_is_no_failure_of_the_job() -> None:
    told = Told(STRICT)
    told.request(1, SAVEPOINT)

    assert told(Declined("a", 1, "x")) == [
        NotifyAborted(1, "declined by a: x"),
        Refuse(1, "savepoint 1 failed: declined by a: x"),
        CancelAlarm(),
    ]


def test_a_final_one_that_fails_is_a_failure_of_the_job() -> None:
    told = Told(STRICT)
    told.request(1, FINAL)

    assert FailJob in [type(each) for each in told(Declined("a", 1, "x"))]


# ------------------------------------------------------------------------------------------------------- the end


def test_a_stop_aborts_pending_checkpoints_and_refuses_requests() -> None:
    told = Told(CoordinatorSettings(every=100))
    told(AlarmFired(), 0)
    told.request(1, PERIODIC)
    told.request(2, SAVEPOINT)

    assert told(Stopped("task a failed")) == [
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
    told = Told(CoordinatorSettings(every=100))
    told(AlarmFired(), 0)
    told.acknowledge(1)
    told(Stopped("stopped"))

    assert told(event, 5000) == []


def test_a_request_after_a_stop_is_refused() -> None:
    told = Told(ASKED_ONLY)

    assert told(Stopped("stopped")) == []
    assert told.request(1, SAVEPOINT) == [Refuse(1, "stopped")]


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
    told = Told(ASKED_ONLY)
    told.request(1)

    with pytest.raises(InternalError, match=message) as caught:
        told(event)
    assert caught.value.events == (Started(), Requested(1, PERIODIC), event)
