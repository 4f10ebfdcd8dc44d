"""Tasks that Spark runs again, whatever they had done the first time, leave what one attempt would have left."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from tests.spark.disturbed import retried, speculated


@pytest.mark.slow
def test_what_a_backfill_leaves_is_the_same_when_first_attempts_fail_late_or_are_killed(
    in_another_process: Callable[..., str],
) -> None:
    found = json.loads(in_another_process(retried).splitlines()[-1])

    points = ["an async step", "late in the partition", "between two pieces of state", "a worker"]
    # Each was disturbed. Not always does the attempt behind that come by the same point.
    assert {f"{one}, attempt 0" for one in points} <= set(found["points"])
    assert found["same"]
    assert found["stopped"].startswith("the Spark session does not answer (")


@pytest.mark.slow
@pytest.mark.skipif(
    "AFLOW_SPARK_CLUSTER" not in os.environ,
    reason="AFLOW_SPARK_CLUSTER names no master with executors on two hosts, without which Spark does not speculate",
)
def test_what_a_backfill_leaves_is_the_same_when_a_slow_task_runs_twice_at_once(
    in_another_process: Callable[..., str],
) -> None:
    found = json.loads(in_another_process(speculated, timeout=500).splitlines()[-1])

    assert "a slow one, attempt 1" in found["points"]
    assert found["same"]
