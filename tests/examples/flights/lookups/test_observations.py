"""Observations of the service."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from flights.data import FlightData, write_weather
from flights.lookups.service import Observations, read_observations
from tests.examples.flights.samples import hour

EARLY, LATER = hour("01-01T09:00"), hour("01-01T10:00")


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("01-01T08:59", None),
        ("01-01T09:00", EARLY),
        ("01-01T09:59", EARLY),
        ("01-01T10:00", LATER),
        ("12-31T23:00", LATER),
    ],
)
def test_the_newest_observation_up_to_a_moment_is_found(time: str, expected: object) -> None:
    observed = Observations([LATER, EARLY])

    assert observed.at("EWR", datetime.fromisoformat(f"2013-{time}Z")) == expected


def test_other_airports_have_no_observations() -> None:
    assert Observations([EARLY]).at("JFK", LATER.time_hour) is None


def test_files_are_read_without_invalid_lines_and_impossible_values(
    data: FlightData, tmp_path: Path
) -> None:
    write_weather(data, tmp_path)
    with (tmp_path / "EWR.csv").open("a") as file:
        file.write("EWR,no,row\n")

    observed = read_observations(tmp_path)

    windy = observed.at("EWR", datetime.fromisoformat("2013-02-12T08:00:00Z"))
    assert windy is not None
    assert windy.wind_speed is None
    calm = observed.at("EWR", datetime.fromisoformat("2013-01-01T06:59:00Z"))
    assert calm is not None
    assert calm.time_hour == datetime.fromisoformat("2013-01-01T06:00:00Z")
    assert calm.wind_gust is None
