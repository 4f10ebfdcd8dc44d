"""The replay as a user sees it."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from rich.console import Console

import aflow as af
from flights.data import FlightData
from flights.delays import AirportHour, CarrierDay, Delays
from flights.display import Progress, ProgressDisplay
from flights.files import Files
from flights.replay import Replay, run_replay
from flights.tables import days_of, hours_of, new_york, show_worst
from tests.examples.flights.runs import MAX_DELAY
from tests.examples.flights.terminal import assert_cursor_is_back, until


def replay(output: Path, *, records: int = 2000, max_delay: timedelta = MAX_DELAY) -> int:
    return run_replay(Replay(output=output, records=records, max_delay=max_delay))


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_a_short_replay_ends_with_tables_and_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "made" / "as needed"

    status = replay(folder)

    shown = capsys.readouterr().out
    assert status == 0
    assert "Replaying 2,000 flights in the order of departure" in shown
    assert "The worst hours to leave New York, of those with at least 10 flights" in shown
    assert "The worst days of a carrier, of those with at least 10 flights" in shown
    assert "Newark Liberty Intl" in shown
    assert "Mean delay in wind" in shown
    assert "The worst storms" in shown
    assert "The longest days of aircraft" in shown
    assert "scheduled 2 hours after its end" in shown
    assert re.search(r"2,000 flights read in .*; cancelled: 17; malformed lines: 0\.", shown)
    assert re.search(r"their hour: 24; for their day: 1\.", shown)
    names = [*re.findall(r"[a-z-]+\.jsonl", shown)]
    assert sorted(names) == sorted(path.name for path in folder.glob("*.jsonl"))


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_a_longer_delay_waits_for_every_flight_and_replaces_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replay(tmp_path)
    late = (tmp_path / "late-hourly.jsonl").read_text()

    replay(tmp_path, max_delay=timedelta(days=1))

    assert late
    assert (tmp_path / "late-hourly.jsonl").read_text() == ""
    assert "their hour: 0; for their day: 0." in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_a_single_flight_has_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay(tmp_path, records=1)

    shown = capsys.readouterr().out
    assert "of those with at least 1 flight " in shown
    assert "United Air Lines Inc." in shown


@pytest.mark.usefixtures("data")
def test_the_error_about_a_folder_that_cannot_be_created_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        af.errors.SinkError, match=r"cannot write .*choose another folder with --output"
    ):
        replay(tmp_path / "file" / "below")


def test_tables_show_the_worst_first_in_local_time_with_full_names(
    data: FlightData, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    winter, summer = datetime(2013, 1, 1, 23, tzinfo=UTC), datetime(2013, 7, 1, 23, tzinfo=UTC)
    write(
        files.result("hourly"),
        AirportHour("EWR", winter, Delays(20, 10.0, 44)),
        AirportHour("LGA", winter, Delays(1, 900.0, 900)),  # a bad flight, not a bad hour
        AirportHour("JFK", summer, Delays(10, 99.6, 240)),
    )
    write(files.result("daily"), CarrierDay("B6", date(2013, 7, 1), Delays(1234, 61.4, 300)))

    shown = rows_of(data, files)

    assert shown == [
        ["Mon 01 Jul 19:00", "John F Kennedy Intl", "10", "100 min", "240 min"],
        ["Tue 01 Jan 18:00", "Newark Liberty Intl", "20", "10 min", "44 min"],
        ["Mon 01 Jul", "JetBlue Airways", "1234", "61 min", "300 min"],
    ]


def test_the_error_about_missing_time_zones_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zones = zoneinfo.TZPATH
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()

    try:
        with pytest.raises(af.errors.SourceError, match=r"no time zones.*pip install tzdata"):
            new_york()
    finally:
        zoneinfo.reset_tzpath(to=zones)


def test_a_table_without_rows_is_empty(data: FlightData, tmp_path: Path) -> None:
    files = Files(tmp_path)
    write(files.result("hourly"))
    write(files.result("daily"))

    assert rows_of(data, files) == []


def test_the_line_shows_the_progress_of_the_replay() -> None:
    progress = Progress(flights=45_000, watermark=1_362_402_000_000, windows=1280, late=3)

    assert progress.line(1.5) == (
        " 45,000 flights,  30,000/s, watermark 04 Mar 13:00, 1,280 windows, 3 late"
    )


@pytest.mark.parametrize(("watermark", "shown"), [(None, "not yet"), (2**63 - 1, "at the end")])
def test_a_watermark_that_is_no_date_is_shown_in_words(watermark: int | None, shown: str) -> None:
    progress = Progress(flights=0, watermark=watermark, windows=0, late=0)

    assert f"watermark {shown}," in progress.line(0)


def test_an_interrupt_restores_the_cursor_of_the_terminal() -> None:
    screen = io.StringIO()
    display = ProgressDisplay(Console(file=screen, force_terminal=True))

    with pytest.raises(KeyboardInterrupt), display.shown():
        raise KeyboardInterrupt

    assert_cursor_is_back(screen.getvalue())


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_ctrl_c_on_a_terminal_drains_and_shows_the_tables(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "flights", "replay", "--output", str(tmp_path)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = until(ours, "windows")
        process.send_signal(signal.SIGINT)
        seen += until(ours, None)
        os.close(ours)

    assert process.returncode == 0
    assert "drained: all input that was read is processed" in seen
    assert "The worst hours to leave New York" in seen
    assert_cursor_is_back(seen)


def write(path: Path, *rows: AirportHour | CarrierDay) -> None:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def rows_of(data: FlightData, files: Files) -> list[list[str]]:
    """Return the cells of both tables."""
    screen = io.StringIO()
    show_worst(Console(file=screen, width=120), data, hours_of(files), days_of(files))
    lines = (line for line in screen.getvalue().splitlines() if line.startswith("│"))
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
