"""Tables of wind, storms and aircraft."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from flights.aircraft import AircraftDay
from flights.files import Files
from flights.punctuality import Punctuality
from flights.storms import AroundStorm, Storm
from flights.tables import new_york, show_weather
from flights.wind import NOT_MEASURED, AirportInWind

WINTER, SUMMER = datetime(2013, 1, 1, 23, tzinfo=UTC), datetime(2013, 7, 1, 23, tzinfo=UTC)
GOOD, BAD = Punctuality(200, 0, -1.4), Punctuality(50, 10, 99.6)
NONE = Punctuality(0, 0, None)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    for name in ("by-wind", "around-storms", "aircraft-days"):
        files.result(name).touch()
    return files


def write(files: Files, name: str, *rows: object) -> None:
    files.result(name).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def shown(files: Files) -> list[list[str]]:
    """Return the cells of all tables."""
    screen = io.StringIO()
    show_weather(Console(file=screen, width=120), files, new_york())
    lines = (line for line in screen.getvalue().splitlines() if line.startswith("│"))
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def around(airport: str, began: datetime, before: Punctuality, after: Punctuality) -> AroundStorm:
    return AroundStorm(Storm(airport, began, 41.4, 0.0), before, after)


def test_tables_without_rows_are_empty(files: Files) -> None:
    assert shown(files) == []


def test_winds_are_shown_from_calm_to_strong_with_a_column_for_each_airport(files: Files) -> None:
    write(
        files,
        "by-wind",
        AirportInWind("JFK", NOT_MEASURED, WINTER, GOOD),
        AirportInWind("JFK", "30 mph and more", WINTER, BAD),
        AirportInWind("EWR", "below 10 mph", WINTER, GOOD),
    )

    assert shown(files) == [
        ["below 10 mph", "-1 min, 0.0%", "no flights"],
        ["30 mph and more", "no flights", "100 min, 20.0%"],
        ["not measured", "no flights", "-1 min, 0.0%"],
    ]


def test_storms_are_shown_in_local_time_the_worst_first_with_a_total(
    files: Files,
) -> None:
    write(
        files,
        "around-storms",
        around("EWR", WINTER, NONE, Punctuality(2, 2, None)),
        around("JFK", SUMMER, Punctuality(100, 0, 2.6), BAD),
    )

    assert shown(files) == [
        ["Mon 01 Jul 19:00", "JFK", "gusts 41 mph", "3 min, 0.0%", "100 min, 20.0%"],
        ["Tue 01 Jan 18:00", "EWR", "gusts 41 mph", "no flights", "none left, 100.0%"],
        ["all 2 storms", "", "", "3 min, 0.0%", "100 min, 23.1%"],
    ]


@pytest.mark.parametrize(
    ("gust", "rain", "text"),
    [
        (41.4, 0.0, "gusts 41 mph"),
        (None, 0.82, "rain 0.82 in"),
        (39.1, 0.31, "gusts 39 mph, rain 0.31 in"),
    ],
)
def test_a_storm_is_described_by_its_first_hour(
    files: Files, gust: float | None, rain: float, text: str
) -> None:
    write(files, "around-storms", AroundStorm(Storm("JFK", SUMMER, gust, rain), GOOD, BAD))

    assert shown(files)[0][2] == text


def test_the_five_longest_days_of_aircraft_are_shown(files: Files) -> None:
    days = [
        AircraftDay(f"N{hour}", 3, 1, ("EWR", "JFK"), SUMMER.replace(hour=hour), SUMMER, 12)
        for hour in range(10, 17)
    ]
    write(files, "aircraft-days", *days)

    assert shown(files) == [
        [f"N{hour}", f"Mon 01 Jul {hour - 4:02}:00", "19:00", "EWR, JFK", "3", "12 min"]
        for hour in range(10, 15)
    ]
