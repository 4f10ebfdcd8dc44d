"""Results of the pipeline for single flights and invalid lines."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from flights.delays import DelayAggregate, DelaySums, Departure
from flights.files import Files
from tests.examples.flights.runs import Answers, answers, in_order
from tests.examples.flights.samples import flight, of

HEADER = "year,month,day,dep_delay,carrier,flight,tailnum,origin,dest,minute,time_hour"
GOOD = "2013,7,4,12,UA,1545,N14228,EWR,IAH,15,2013-07-04T10:00:00Z"


def of_lines(folder: Path, *lines: str) -> Answers:
    files = Files(folder)
    files.replay.write_text("\n".join((HEADER, *lines, "")))
    return answers(files.source(), folder)


def test_delays_are_counted_by_airport_and_hour(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        flight("01-01T10:00", 0),
        flight("01-01T10:59", 30),
        flight("01-01T10:30", -3, origin="JFK"),
        flight("01-01T11:00", 8),
    )

    assert found.rows("hourly") == in_order(
        [
            hour("EWR", 10, flights=2, mean=15.0, longest=30),
            hour("EWR", 11, flights=1, mean=8.0, longest=8),
            hour("JFK", 10, flights=1, mean=-3.0, longest=-3),
        ]
    )


def test_a_day_of_a_carrier_is_that_of_the_calendar_in_new_york_in_winter_and_in_summer(
    tmp_path: Path,
) -> None:
    found = of(
        tmp_path,
        flight("01-02T04:59", 5),  # 23:59 on January 1st
        flight("01-02T10:00", 7),  # 05:00 on January 2nd
        flight("07-02T03:59", 20),  # 23:59 on July 1st
        flight("07-02T09:00", 30),  # 05:00 on July 2nd
    )

    days = [(row["day"], row["delays"]["longest"]) for row in found.rows("daily")]
    assert days == [("2013-01-01", 5), ("2013-01-02", 7), ("2013-07-01", 20), ("2013-07-02", 30)]


def test_a_departure_after_its_hour_was_closed_is_late_for_the_hour_and_counts_for_the_day(
    tmp_path: Path,
) -> None:
    found = of(tmp_path, flight("01-01T13:00", 0), flight("01-01T10:00", 180))

    assert found.rows("late-hourly") == [
        {
            "carrier": "UA",
            "flight": 7,
            "origin": "EWR",
            "dest": "IAH",
            "scheduled": "2013-01-01T10:00:00+00:00",
            "delay": 180,
        }
    ]
    assert [row["delays"]["flights"] for row in found.rows("hourly")] == [1]
    assert [row["delays"]["flights"] for row in found.rows("daily")] == [2]


def test_a_departure_just_before_its_hour_is_closed_counts(tmp_path: Path) -> None:
    found = of(tmp_path, flight("01-01T12:59", 0), flight("01-01T10:00", 179))

    assert found.rows("late-hourly") == []


def test_a_cancelled_flight_is_in_no_window_but_advances_the_watermark(tmp_path: Path) -> None:
    found = of(tmp_path, flight("01-01T13:00", None), flight("01-01T10:00", 180))

    assert [row["scheduled"] for row in found.rows("cancelled")] == ["2013-01-01T13:00:00+00:00"]
    assert found.rows("hourly") == []
    assert len(found.rows("late-hourly")) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (GOOD.replace(",12,", ",soon,"), "Expected `int | null`, got `str` - at `$.dep_delay`"),
        (GOOD.replace(",EWR", ""), "it has 10 fields, but there are 11 columns"),
        (GOOD.replace("07-04T", "02-30T"), "Invalid RFC3339 encoded datetime - at `$.time_hour`"),
        (GOOD.replace("00Z", "00"), "timezone component - at `$.time_hour`"),
        (GOOD.replace(",15,", ",75,"), "Expected `int` <= 59 - at `$.minute`"),
        (GOOD.replace("EWR", "NA"), "got `null` - at `$.origin`"),
    ],
    ids=["a word", "a missing column", "no date", "no zone", "no minute", "no origin"],
)
def test_an_invalid_line_is_malformed_and_the_others_count(
    tmp_path: Path, line: str, reason: str
) -> None:
    found = of_lines(tmp_path, GOOD, line, GOOD)

    (bad,) = found.rows("malformed")
    assert bad["text"] == line
    assert bad["place"] == f"{tmp_path / 'replay.csv'}, line 3"
    assert reason in bad["reason"]
    assert [row["delays"]["flights"] for row in found.rows("hourly")] == [2]


def test_a_flight_without_delay_in_the_file_is_cancelled(tmp_path: Path) -> None:
    found = of_lines(tmp_path, GOOD.replace(",12,", ",NA,"))

    assert len(found.rows("cancelled")) == 1
    assert found.rows("malformed") == []


def test_statistics_of_two_parts_are_those_of_the_whole() -> None:
    statistics = DelayAggregate()
    parts = [tally(statistics, 5, -3), tally(statistics, 40)]

    merged = statistics.merge(*parts)

    assert statistics.result(merged) == statistics.result(tally(statistics, 5, -3, 40))


def tally(statistics: DelayAggregate, *delays: int) -> DelaySums:
    seen = statistics.create()
    for delay in delays:
        at = datetime(2013, 1, 1, tzinfo=UTC)
        seen = statistics.add(seen, Departure("UA", 7, "EWR", "IAH", at, delay))
    return seen


def hour(airport: str, hour: int, *, flights: int, mean: float, longest: int) -> dict[str, object]:
    return {
        "airport": airport,
        "hour": f"2013-01-01T{hour}:00:00+00:00",
        "delays": {"flights": flights, "mean": mean, "longest": longest},
    }
