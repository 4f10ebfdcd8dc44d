"""Days of aircraft."""

from __future__ import annotations

from pathlib import Path

from tests.examples.flights.samples import flight, of


def test_the_legs_of_an_aircraft_are_a_day(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        flight("01-01T10:00", 20),
        flight("01-01T14:30", None, origin="LGA"),
        flight("01-01T19:00", -5),
    )

    assert found.rows("aircraft-days") == [
        {
            "tail": "N14228",
            "legs": 3,
            "cancelled": 1,
            "airports": ["EWR", "LGA"],
            "first": "2013-01-01T10:00:00+00:00",
            "last": "2013-01-01T19:00:00+00:00",
            "delay": 15,
        }
    ]


def test_six_hours_are_a_gap_within_a_day_and_a_minute_more_ends_it(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        flight("01-01T10:00", 0, tail="N1"),
        flight("01-01T10:00", 0, tail="N2"),
        flight("01-01T16:00", 0, tail="N1"),
        flight("01-01T16:01", 0, tail="N2"),
    )

    legs = [(row["tail"], row["legs"]) for row in found.rows("aircraft-days")]
    assert sorted(legs) == [("N1", 2), ("N2", 1), ("N2", 1)]


def test_a_leg_that_leaves_a_day_late_belongs_to_its_schedule_and_merges_its_neighbours(
    tmp_path: Path,
) -> None:
    found = of(
        tmp_path,
        flight("01-01T10:00", 0),
        flight("01-01T21:00", 0),
        flight("01-02T13:00", 0, tail="N2"),
        flight("01-01T15:30", 21 * 60 + 40),
    )

    assert [(row["tail"], row["legs"]) for row in found.rows("aircraft-days")] == [
        ("N2", 1),
        ("N14228", 3),
    ]


def test_a_flight_without_a_tail_number_is_in_no_day_and_is_reported(tmp_path: Path) -> None:
    found = of(
        tmp_path, flight("01-01T10:00", None, tail=None), flight("01-01T10:00", None, tail=None)
    )

    assert found.rows("aircraft-days") == []
    assert [row["tailnum"] for row in found.rows("no-tail")] == [None, None]
