"""What a script defines goes to executors and comes back: records, state and results of its own classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_a_script_backfills_with_classes_of_its_own_and_again_when_one_has_changed(
    in_another_process: Callable[..., str],
) -> None:
    script = Path(__file__).with_name("script.py")
    found: list[dict[str, Any]] = json.loads(in_another_process(script).splitlines()[-1])

    assert [one["best"] for one in found] == [["card", 600, 899], ["card", 600, 902]]
    assert [one["live"] for one in found] == [[["card", 601, 950]], [["card", 601, 953]]]
    for one in found:
        # Six partitions on two cores; and the live job.
        assert set(one["opened in a worker"]) == {1}
        assert len(one["opened in a worker"]) < 5
        assert one["opened here"] == 1
