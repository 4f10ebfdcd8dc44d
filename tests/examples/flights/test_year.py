"""Days of the whole year: the files of the pipeline against results of pandas, row for row."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas
import pytest

from flights.data import FlightData
from flights.files import Files
from flights.pipeline import LONGEST_DELAY
from flights.wind import NO_WEATHER
from tests.examples.flights.expected import Expected, expected
from tests.examples.flights.expected_weather import (
    WEATHER,
    Cells,
    ExpectedWeather,
    Frame,
    expected_weather,
    read_flights,
    read_weather,
)
from tests.examples.flights.runs import MAX_DELAY, Answers, answers, in_order

pytestmark = pytest.mark.slow

pd: Any = pandas

FILES = ("hourly", "daily", "late-hourly", "late-daily", "cancelled")
OF_WEATHER = ("by-wind", "around-storms", "no-tail", "doubtful")
LARGE = ("in-weather", "aircraft-days")


@pytest.fixture(scope="session")
def by_pandas(some_days: FlightData) -> Expected:
    return expected(some_days.folder / "flights.csv.zip", MAX_DELAY)


@pytest.fixture(scope="session")
def by_pandas_too(some_days: FlightData) -> ExpectedWeather:
    return expected_weather(read_flights(some_days.folder), read_weather(some_days.folder))


@pytest.fixture(scope="session")
def flights_of_days(some_days: FlightData) -> int:
    return len(some_days.flights()) - 1  # without the header


@pytest.fixture(scope="module")
def week(replay_of_days: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Run a week of February 2013 with storms, the one impossible wind, and a flight that is late for its day."""
    files = Files(tmp_path_factory.mktemp("week"))
    files.weather.mkdir()
    within = re.compile("2013-02-1[2-8]T")
    longer = replay_of_days
    for path in (longer.replay, *longer.weather.iterdir()):
        header, *lines = path.read_text().splitlines(keepends=True)
        target = files.folder / path.relative_to(longer.folder)
        target.write_text("".join([header, *filter(within.search, lines)]))
    answers(files.source(), files.folder, weather=files.weather_source())
    return files


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_results_equals_that_of_pandas(
    results: Answers, by_pandas: Expected, file: str
) -> None:
    should_be = getattr(by_pandas, file.replace("-", "_"))

    rows = results.rows(file)

    assert len(rows) == len(should_be)
    assert rows == in_order(should_be)


@pytest.mark.parametrize("file", OF_WEATHER)
def test_a_file_about_weather_and_aircraft_equals_that_of_pandas(
    results: Answers, by_pandas_too: ExpectedWeather, file: str
) -> None:
    should_be = getattr(by_pandas_too, file.replace("-", "_"))

    rows = results.rows(file)

    assert len(rows) == len(should_be)
    assert rows == in_order(should_be)


def test_each_flight_has_the_weather_of_merge_asof(
    results: Answers, by_pandas_too: ExpectedWeather, flights_of_days: int
) -> None:
    found = Counter(map(cells_of_flight, results.each("in-weather")))

    assert found.total() == flights_of_days
    assert_same(found, by_pandas_too.in_weather)


def test_the_days_of_aircraft_are_those_of_a_group_by(
    results: Answers, by_pandas_too: ExpectedWeather
) -> None:
    found = Counter(map(cells_of_day, results.each("aircraft-days")))

    assert found.total() > 20_000
    assert_same(found, by_pandas_too.aircraft_days)


def test_flights_without_weather_are_kept_and_counted(results: Answers) -> None:
    without = [row["scheduled"] for row in results.each("in-weather") if row["weather"] is None]
    counted = [
        row["flights"]["flights"] for row in results.rows("by-wind") if row["wind"] == NO_WEATHER
    ]

    assert len(without) == sum(counted) > 871
    assert sum(at > "2013-12-31T01:00" for at in without) == 871


def test_every_flight_is_a_leg_of_one_aircraft_or_has_no_tail_number(
    results: Answers, flights_of_days: int
) -> None:
    legs = sum(row["legs"] for row in results.each("aircraft-days"))

    assert legs + len(results.rows("no-tail")) == flights_of_days


def test_no_flight_exceeds_the_longest_delay(
    table_of_flights: Frame,
) -> None:
    flights = table_of_flights
    left = flights["at"] + pd.to_timedelta(flights["delay"].fillna(0), unit="min")
    at = flights["at"].loc[left.sort_values(kind="stable").index]

    behind = (at.cummax() - at).max()

    assert behind == timedelta(hours=21, minutes=40)
    assert behind < LONGEST_DELAY


def test_every_flight_is_counted_once_in_each_branch_or_is_late_there_or_cancelled(
    results: Answers, flights_of_days: int
) -> None:
    cancelled = len(results.rows("cancelled"))

    for file in ("hourly", "daily"):
        in_time = sum(row["delays"]["flights"] for row in results.rows(file))
        late = len(results.rows(f"late-{file}"))

        assert late > 0
        assert in_time + late + cancelled == flights_of_days


def test_no_line_is_malformed(results: Answers) -> None:
    assert results.rows("malformed") == []


@pytest.mark.parametrize("parallelism", [2, 7])
def test_the_results_are_the_same_for_any_parallelism(
    week: Files, tmp_path: Path, parallelism: int
) -> None:
    whole = Answers(week.folder)

    divided = answers(
        week.source(), tmp_path, weather=week.weather_source(), parallelism=parallelism
    )

    for file in (*FILES, *OF_WEATHER, *LARGE):
        assert whole.lines(file), file
        assert Counter(divided.lines(file)) == Counter(whole.lines(file)), file


def cells_of_flight(row: dict[str, Any]) -> Cells:
    weather = row.pop("weather")
    of_weather = [weather[name] for name in WEATHER] if weather else [None] * len(WEATHER)
    return (*row.values(), *of_weather)


def cells_of_day(row: dict[str, Any]) -> Cells:
    row["airports"] = " ".join(row["airports"])
    return tuple(row.values())


def assert_same(found: Counter[Cells], expected: list[Cells]) -> None:
    """Report the first differences only: pytest would search hundreds of thousands of rows for all."""
    should_be = Counter(expected)
    missing, extra = should_be - found, found - should_be
    assert (list(missing)[:3], list(extra)[:3]) == ([], [])
