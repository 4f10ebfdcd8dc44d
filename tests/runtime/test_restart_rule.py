"""Failures that no restart can repair end a job, whatever its restart strategy is."""

from __future__ import annotations

import pytest

from aflow.errors import (
    AflowError,
    CheckpointError,
    FlowDefinitionError,
    RestoreError,
    SinkError,
    StorageTaken,
    UnstorableState,
)
from aflow.machines.restart import Restart
from aflow.runtime.checkpoints.statistics import CheckpointTally
from aflow.runtime.restart_rule import RestartRule
from aflow.runtime.restarts import ExponentialDelay, FixedDelay, NoRestart


def rule(tally: CheckpointTally | None = None) -> RestartRule:
    return RestartRule(ExponentialDelay(), tally or CheckpointTally())


@pytest.mark.parametrize("error", [SinkError, CheckpointError])
def test_other_failures_are_followed_by_a_restart_each_time(error: type[AflowError]) -> None:
    one = rule()

    decisions = [one.on_failure(error("away"), 10_000 * attempt, 0.5) for attempt in range(1, 9)]

    assert all(isinstance(decision, Restart) for decision in decisions)


@pytest.mark.parametrize("error", [FlowDefinitionError, RestoreError, StorageTaken])
def test_errors_that_another_attempt_repeats_are_final(error: type[AflowError]) -> None:
    assert rule().on_failure(error("no"), 0, 0.5) is None


def test_state_that_was_never_stored_is_final_and_the_error_says_why() -> None:
    error = UnstorableState("no type")
    error.initial = True

    assert rule().on_failure(error, 0, 0.5) is None
    assert error.__notes__ == ["The job is not restarted: the value would be in the state again"]


def test_a_value_that_cannot_be_stored_is_final_the_second_time_without_a_checkpoint() -> None:
    tally = CheckpointTally()
    one = rule(tally)

    decisions = [one.on_failure(UnstorableState("value"), 0, 0.5)]
    tally.completed += 1
    decisions.append(one.on_failure(UnstorableState("value"), 10_000, 0.5))
    decisions.append(one.on_failure(SinkError("away"), 20_000, 0.5))
    decisions.append(one.on_failure(UnstorableState("value"), 30_000, 0.5))

    assert [isinstance(decision, Restart) for decision in decisions] == [True, True, True, False]


def test_the_budget_decides_about_a_value_that_cannot_be_stored_too() -> None:
    error = UnstorableState("value")

    assert RestartRule(NoRestart(), CheckpointTally()).on_failure(error, 0, 0.5) is None
    assert not hasattr(error, "__notes__")


def test_the_note_names_the_limit_of_the_strategy() -> None:
    one = RestartRule(FixedDelay(1), CheckpointTally())
    one.on_failure(SinkError("away"), 0, 0.5)
    last = SinkError("away")

    assert one.on_failure(last, 0, 0.5) is None
    assert last.__notes__ == [
        "The job is not restarted: failed 2 times; fixed delay allows 1 restart"
    ]
