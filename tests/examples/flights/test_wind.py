"""Weather of flights, and punctuality in wind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flights.wind import NO_WEATHER, NOT_MEASURED, wind
from tests.examples.flights.samples import flight, hour, of

EARLY = "2013-01-01T09:00:00+00:00"
LATER = "2013-01-01T10:00:00+00:00"


def hours_of(rows: list[dict[str, Any]]) -> list[str | None]:
    return [row["weather"] and row["weather"]["time_hour"] for row in rows]


def test_a_flight_is_joined_with_the_newest_weather_up_to_its_departure(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        flight("01-01T10:59", 5),
        hours=[hour("01-01T09:00"), hour("01-01T10:00", speed=20.0), hour("01-01T11:00")],
    )

    assert found.rows("in-weather") == [
        {
            "carrier": "UA",
            "flight": 7,
            "origin": "EWR",
            "dest": "IAH",
            "scheduled": "2013-01-01T10:59:00+00:00",
            "delay": 5,
            "weather": {
                "origin": "EWR",
                "time_hour": LATER,
                "wind_speed": 20.0,
                "wind_gust": None,
                "precip": 0.0,
                "visib": 10.0,
            },
        }
    ]


@pytest.mark.parametrize(
    ("departure", "hour_found"),
    [
        ("01-01T10:00", LATER),  # at the moment itself
        ("01-01T09:59", EARLY),
        ("01-01T12:00", LATER),  # exactly two hours old
        ("01-01T12:01", None),
        ("01-01T08:59", None),
    ],
)
def test_weather_is_valid_from_its_hour_for_two_hours(
    tmp_path: Path, departure: str, hour_found: str | None
) -> None:
    found = of(tmp_path, flight(departure, 0), hours=[hour("01-01T09:00"), hour("01-01T10:00")])

    assert hours_of(found.rows("in-weather")) == [hour_found]


def test_the_weather_of_another_airport_does_not_count(tmp_path: Path) -> None:
    found = of(
        tmp_path, flight("01-01T10:00", 0, origin="JFK"), hours=[hour("01-01T10:00", at="LGA")]
    )

    assert hours_of(found.rows("in-weather")) == [None]


def test_a_delayed_flight_is_joined_with_the_weather_of_its_schedule(
    tmp_path: Path,
) -> None:
    found = of(
        tmp_path,
        flight("01-02T08:00", 0),
        flight("01-01T10:30", 21 * 60 + 40),
        hours=[hour("01-01T10:00"), hour("01-02T08:00")],
    )

    assert hours_of(found.rows("in-weather")) == ["2013-01-02T08:00:00+00:00", LATER]


@pytest.mark.parametrize(
    ("speed", "called"),
    [
        (0.0, "below 10 mph"),
        (9.9, "below 10 mph"),
        (10.0, "10 to 20 mph"),
        (29.9, "20 to 30 mph"),
        (30.0, "30 mph and more"),
        (None, NOT_MEASURED),
    ],
)
def test_winds_have_names(speed: float | None, called: str) -> None:
    assert wind(hour("01-01T10:00", speed=speed)) == called


def test_flights_are_counted_by_airport_and_wind(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        flight("01-01T10:00", 10),
        flight("01-01T10:10", None),
        flight("01-01T10:20", 25),
        flight("01-01T10:30", None, origin="JFK"),
        hours=[hour("01-01T10:00", speed=12.0)],
    )

    assert found.rows("by-wind") == [
        in_wind("EWR", "10 to 20 mph", flights=3, cancelled=1, mean=17.5),
        in_wind("JFK", NO_WEATHER, flights=1, cancelled=1, mean=None),
    ]


def test_an_impossible_wind_counts_as_not_measured(tmp_path: Path) -> None:
    found = of(
        tmp_path, flight("01-01T10:00", 10), hours=[hour("01-01T10:00", speed=1048.36, gust=30.0)]
    )

    (row,) = found.rows("in-weather")
    assert (row["weather"]["wind_speed"], row["weather"]["wind_gust"]) == (None, 30.0)
    assert [row["wind"] for row in found.rows("by-wind")] == [NOT_MEASURED]


def in_wind(airport: str, called: str, **flights: float | None) -> dict[str, object]:
    return {
        "airport": airport,
        "wind": called,
        "since": "2013-01-01T05:00:00+00:00",
        "flights": flights,
    }
