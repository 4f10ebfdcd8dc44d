"""Tasks that Spark runs again, whatever they had done the first time, leave what one attempt would have left."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.spark.disturbed import retried


@pytest.mark.slow
def test_what_a_backfill_leaves_is_the_same_when_first_attempts_fail_late_or_are_killed(
    in_another_process: Callable[..., str],
) -> None:
    found = json.loads(in_another_process(retried).splitlines()[-1])

    points = ["an async step", "late in the partition", "between two pieces of state", "a worker"]
    assert found["points"] == sorted(
        f"{one}, attempt {number}" for one in points for number in (0, 1)
    )
    assert found["same"]
