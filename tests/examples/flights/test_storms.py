"""Beginnings of storms, and compared flights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flights.storms import stormy
from tests.examples.flights.runs import Answers
from tests.examples.flights.samples import flight, hour, of

NONE = {"flights": 0, "cancelled": 0, "mean": None}


def began(found: Answers) -> list[str]:
    return [row["storm"]["began"][5:16] for row in found.rows("around-storms")]


@pytest.mark.parametrize(
    ("gust", "rain", "is_stormy"),
    [
        (None, 0.0, False),
        (38.9, 0.3, False),
        (39.0, 0.0, True),  # gale force
        (None, 0.31, True),  # heavy rain
    ],
)
def test_gales_and_heavy_rain_are_stormy(gust: float | None, rain: float, is_stormy: bool) -> None:
    assert stormy(hour("01-01T10:00", gust=gust, rain=rain)) is is_stormy


def test_flights_before_a_storm_are_compared_with_those_after_it_began(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        flight("01-01T09:00", 3),
        flight("01-01T10:00", 5),
        flight("01-01T11:00", None),
        flight("01-01T12:00", 60),
        hours=[hour("01-01T10:00"), hour("01-01T11:00", gust=45.0, rain=0.1)],
    )

    assert found.rows("around-storms") == [
        {
            "storm": {
                "airport": "EWR",
                "began": "2013-01-01T11:00:00+00:00",
                "gust": 45.0,
                "rain": 0.1,
            },
            "before": {"flights": 2, "cancelled": 0, "mean": 4.0},
            "after": {"flights": 2, "cancelled": 1, "mean": 60.0},
        }
    ]


@pytest.mark.parametrize(
    ("departure", "before", "after"),
    [
        ("01-01T04:59", None, None),
        ("01-01T05:00", 1, 0),
        ("01-01T10:59", 1, 0),
        ("01-01T11:00", 0, 1),
        ("01-01T16:59", 0, 1),
        ("01-01T17:00", None, None),
    ],
)
def test_six_hours_on_either_side_count(
    tmp_path: Path, departure: str, before: int | None, after: int | None
) -> None:
    found = of(tmp_path, flight(departure, 0), hours=[hour("01-01T11:00", gust=45.0)])

    counted = [
        (row["before"]["flights"], row["after"]["flights"]) for row in found.rows("around-storms")
    ]
    assert counted == ([] if before is None else [(before, after)])


def test_flights_at_both_ends_of_the_hours_compared_are_of_one_storm(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        flight("01-01T05:00", 0),
        flight("01-01T16:59", 0),
        hours=[hour("01-01T11:00", gust=45.0)],
    )

    assert began(found) == ["01-01T11:00"]


def test_a_storm_without_flights_before_it_has_no_mean_there(tmp_path: Path) -> None:
    found = of(tmp_path, flight("01-01T12:00", 9), hours=[hour("01-01T11:00", gust=45.0)])

    (row,) = found.rows("around-storms")
    assert row["before"] == NONE


def test_stormy_hours_with_a_lull_of_six_hours_are_one_storm(tmp_path: Path) -> None:
    found = of(tmp_path, *flights_all_day(), hours=stormy_at("01-01T06:00", "01-01T12:00"))

    assert began(found) == ["01-01T06:00"]


def test_a_longer_lull_ends_a_storm(tmp_path: Path) -> None:
    found = of(tmp_path, *flights_all_day(), hours=stormy_at("01-01T06:00", "01-01T13:00"))

    assert began(found) == ["01-01T06:00", "01-01T13:00"]


def test_a_lull_counts_from_the_latest_stormy_hour(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        *flights_all_day(),
        hours=stormy_at("01-01T06:00", "01-01T11:00", "01-01T16:00"),
    )

    assert began(found) == ["01-01T06:00"]


def test_a_storm_is_one_of_its_airport(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        flight("01-01T11:00", 1, origin="JFK"),
        flight("01-01T11:30", 2, origin="LGA"),
        hours=[hour("01-01T10:00", at="JFK", gust=45.0), hour("01-01T11:00", at="LGA", rain=0.5)],
    )

    storms: list[Any] = [
        (row["storm"]["airport"], row["after"]["mean"]) for row in found.rows("around-storms")
    ]
    assert sorted(storms) == [("JFK", 1.0), ("LGA", 2.0)]


def flights_all_day() -> list[Any]:
    return [flight(f"01-01T{at:02}:30", 0) for at in range(5, 20)]


def stormy_at(*times: str) -> list[Any]:
    return [hour(time, gust=45.0) for time in times]
