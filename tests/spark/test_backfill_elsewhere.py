"""Backfills that need a process of their own: of a script, and with tasks that Spark runs more than once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.spark.disturbed import speculated

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(in_another_process: Callable[..., str]) -> dict[str, Any]:
    """Output of ``script.py``."""
    told = in_another_process(Path(__file__).with_name("script.py"), timeout=300)
    return cast("dict[str, Any]", json.loads(told.splitlines()[-1]))


def test_a_script_backfills_with_classes_of_its_own_and_again_when_one_has_changed(
    found: dict[str, Any],
) -> None:
    assert [one["best"] for one in found["twice"]] == [["card", 600, 899], ["card", 600, 902]]
    assert [one["live"] for one in found["twice"]] == [[["card", 601, 950]], [["card", 601, 953]]]


def test_workers_run_the_python_of_the_program_though_nothing_is_activated(
    found: dict[str, Any],
) -> None:
    assert found["python"] == sys.executable


def test_a_resource_is_opened_once_in_each_worker_process(found: dict[str, Any]) -> None:
    for one in found["twice"]:
        # Six partitions on two cores; and the live job.
        assert set(one["opened in a worker"]) == {1}
        assert len(one["opened in a worker"]) < 5
        assert one["opened here"] == 1


def test_results_and_state_are_the_same_if_first_attempts_fail_late_or_are_killed(
    found: dict[str, Any],
) -> None:
    states = [f"behind a piece of the state of {step}" for step in ("streaks", "sum")]
    points = ["an async step", "late in the partition", "a worker", *states]
    struck = sorted(f"{one}, attempt {number}" for one in points for number in (0, 1))

    assert found["disturbed"]["points"] == struck
    assert found["disturbed"]["same"]


def test_a_stopped_session_is_reported_in_one_sentence(found: dict[str, Any]) -> None:
    assert found["stopped"].startswith("the Spark session does not answer (")
    assert found["stopped"].endswith("): if it was stopped, start another one")


@pytest.mark.skipif(
    "AFLOW_SPARK_CLUSTER" not in os.environ,
    reason="AFLOW_SPARK_CLUSTER names no master with executors on two hosts, without which Spark does not speculate",
)
def test_results_and_state_are_the_same_if_a_slow_task_runs_twice_at_once(
    in_another_process: Callable[..., str],
) -> None:
    told = json.loads(in_another_process(speculated, timeout=500).splitlines()[-1])

    assert "a slow one, attempt 1" in told["points"]
    assert told["same"]
