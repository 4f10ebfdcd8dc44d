"""``aflow demo weather`` as a person sees it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

import aflow as af
from aflow.cli.demo.asking.apart import Settings, service_apart
from aflow.cli.demo.asking.command import Asking, ask_all, count_questions, run_asking
from aflow.cli.demo.asking.desk import Capacities
from aflow.cli.demo.asking.faults import Faults, faultless
from aflow.cli.demo.command import prepare
from aflow.cli.demo.data import FlightData
from aflow.cli.demo.files import Files
from tests.demo.running import Answers, answers
from tests.demo.test_command import assert_cursor_is_back, until


def row(table: str, name: str) -> list[str]:
    """The numbers of a row of the table."""
    (line,) = (line for line in table.splitlines() if f"│ {name} " in line)
    return [cell.strip() for cell in line.strip("│").split("│")][1:]


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_short_run_ends_with_right_answers_and_numbers_that_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run_asking(Asking(output=tmp_path, records=2000))

    shown = capsys.readouterr().out
    assert status == 0
    assert "2,000 flights ask for the weather in 124 hours at their airports" in shown
    assert "2,000 answers, mismatches: 0." in shown
    known, shared = (
        int(row(shown, name)[0].replace(",", ""))
        for name in ("  known from an earlier call", "  by a call that was under way")
    )
    assert known + shared == 2000 - 124
    assert row(shown, "  by a call of their own") == ["124", "124"]
    ours, theirs = row(shown, "calls")
    assert ours == theirs
    for failed in ("  too many at once (429)", "  failed (500)", "  broken off"):
        ours, theirs = row(shown, failed)
        assert ours == theirs
    files = Files(tmp_path)
    asked = Answers(tmp_path).rows("in-weather")
    joined = answers(files.source(), tmp_path, weather=files.weather_source()).rows("in-weather")
    assert asked == joined


@pytest.mark.slow
def test_answers_that_are_wrong_are_shown_and_told_by_the_exit_status(
    data: FlightData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, other = Files(tmp_path), tmp_path / "other weather"
    prepare(data, files, 300)
    other.mkdir()
    for path in files.weather.glob("*.csv"):
        without_a_row = path.read_text().splitlines(keepends=True)
        del without_a_row[10]
        (other / path.name).write_text("".join(without_a_row))
    settings = Settings(
        weather=str(other), faults=faultless(), capacities=Capacities(phase=100, each=(100,))
    )

    with service_apart(settings) as service:
        status = ask_all(Console(), files, Asking(output=tmp_path, records=300), service)

    shown = capsys.readouterr().out
    assert status == 1
    wrong = Answers(tmp_path).rows("mismatches")
    assert wrong
    assert f"mismatches: {len(wrong)}." in shown


@pytest.mark.slow
def test_a_service_that_ends_in_the_middle_ends_the_run_with_the_reason(
    data: FlightData, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    prepare(data, files, 20_000)
    slow = Faults(seed=1, median_s=0.05)
    settings = Settings(
        weather=str(files.weather), faults=slow, capacities=Capacities(phase=100, each=(2,))
    )

    with service_apart(settings) as service:
        threading.Timer(0.5, os.kill, (service.process, signal.SIGKILL)).start()
        with pytest.raises(af.SourceError, match="has ended before the flights"):
            ask_all(Console(), files, Asking(output=tmp_path), service)


def test_questions_are_hours_at_airports(tmp_path: Path) -> None:
    replay = tmp_path / "replay.csv"
    replay.write_text("origin,time_hour\nJFK,10\nJFK,10\nJFK,11\nEWR,10\n")

    assert count_questions(replay) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_ctrl_c_on_a_terminal_drains_and_ends_the_service_too(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "aflow", "demo", "weather", "--output", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0
    ) as process:
        os.close(theirs)
        seen = until(ours, "under way")
        children = children_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        seen += until(ours, None)
        os.close(ours)

    assert process.returncode == 0
    assert "drained: everything that was read is processed" in seen
    assert re.search(r"mismatches: 0\.", seen)
    assert_cursor_is_back(seen)
    assert len(children) == 1
    assert not Path(f"/proc/{children[0]}").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_second_ctrl_c_stops_at_once_and_ends_the_service_too(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "aflow", "demo", "weather", "--output", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0
    ) as process:
        os.close(theirs)
        seen = until(ours, "under way")
        children = children_of(process.pid)
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
        seen += until(ours, None)
        os.close(ours)

    assert process.returncode in {0, 130}  # 0 if it had drained before the second one came
    assert_cursor_is_back(seen)
    assert not Path(f"/proc/{children[0]}").exists()


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in listed.split()]
