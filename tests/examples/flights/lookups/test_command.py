"""The lookups as a user sees them."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

import aflow as af
from flights.data import FlightData
from flights.files import Files
from flights.lookups.capacity import Capacities
from flights.lookups.command import LookupOptions, count_questions, look_up_all, run_lookups
from flights.lookups.faults import Faults, faultless
from flights.lookups.service_process import Settings, service_process
from flights.replay import prepare
from tests.examples.flights.runs import Answers, answers
from tests.examples.flights.terminal import assert_cursor_is_back, until


def row(table: str, name: str) -> list[str]:
    """Return the numbers of a row of the table."""
    (line,) = (line for line in table.splitlines() if f"│ {name} " in line)
    return [cell.strip() for cell in line.strip("│").split("│")][1:]


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_a_short_run_ends_with_right_answers_and_numbers_that_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run_lookups(LookupOptions(output=tmp_path, records=2000))

    shown = capsys.readouterr().out
    assert status == 0
    assert "2,000 flights look up the weather of 124 hours at their airports" in shown
    assert "2,000 answers, mismatches: 0." in shown
    known, shared = (
        int(row(shown, name)[0].replace(",", ""))
        for name in ("  from the cache", "  from a call in flight")
    )
    assert known + shared == 2000 - 124
    assert row(shown, "  from a call of their own") == ["124", "124"]
    ours, theirs = row(shown, "calls")
    assert ours == theirs
    for failed in ("  rejected (429)", "  failed (500)", "  broken off"):
        ours, theirs = row(shown, failed)
        assert ours == theirs
    files = Files(tmp_path)
    asked = Answers(tmp_path).rows("in-weather")
    joined = answers(files.source(), tmp_path, weather=files.weather_source()).rows("in-weather")
    assert asked == joined


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_wrong_answers_are_shown_and_set_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, other = Files(tmp_path), tmp_path / "other weather"
    prepare(FlightData.installed(), files, 300)
    other.mkdir()
    for path in files.weather.glob("*.csv"):
        without_a_row = path.read_text().splitlines(keepends=True)
        del without_a_row[10]
        (other / path.name).write_text("".join(without_a_row))
    settings = Settings(
        weather=str(other), faults=faultless(), capacities=Capacities(phase=100, each=(100,))
    )

    with service_process(settings) as service:
        status = look_up_all(Console(), files, LookupOptions(output=tmp_path, records=300), service)

    shown = capsys.readouterr().out
    assert status == 1
    wrong = Answers(tmp_path).rows("mismatches")
    assert wrong
    assert f"mismatches: {len(wrong)}." in shown


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_the_end_of_the_service_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    files = Files(tmp_path)
    prepare(FlightData.installed(), files, 20_000)
    slow = Faults(seed=1, median_s=0.05)
    settings = Settings(
        weather=str(files.weather), faults=slow, capacities=Capacities(phase=100, each=(2,))
    )

    def kill_amid_the_questions() -> None:
        while service.counts().answered < 5:
            time.sleep(0.05)
        os.kill(service.process, signal.SIGKILL)

    with service_process(settings) as service:
        threading.Thread(target=kill_amid_the_questions).start()
        with pytest.raises(af.errors.SourceError, match="ended before the pipeline"):
            look_up_all(Console(), files, LookupOptions(output=tmp_path), service)


def test_questions_are_hours_at_airports(tmp_path: Path) -> None:
    replay = tmp_path / "replay.csv"
    replay.write_text("origin,time_hour\nJFK,10\nJFK,10\nJFK,11\nEWR,10\n")

    assert count_questions(replay) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_ctrl_c_on_a_terminal_drains_and_ends_the_service_too(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "flights", "weather", "--output", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0
    ) as process:
        os.close(theirs)
        seen = until(ours, "in flight")
        children = children_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        seen += until(ours, None)
        os.close(ours)

    assert process.returncode == 0
    assert "drained: all input that was read is processed" in seen
    assert re.search(r"mismatches: 0\.", seen)
    assert_cursor_is_back(seen)
    assert len(children) == 1
    assert not Path(f"/proc/{children[0]}").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_a_second_ctrl_c_stops_at_once_and_ends_the_service_too(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "flights", "weather", "--output", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0
    ) as process:
        os.close(theirs)
        seen = until(ours, "in flight")
        children = children_of(process.pid)
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
        seen += until(ours, None)
        os.close(ours)

    assert process.returncode in {0, 130}  # 0 if it had drained before the second signal
    assert_cursor_is_back(seen)
    assert not Path(f"/proc/{children[0]}").exists()


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in listed.split()]
