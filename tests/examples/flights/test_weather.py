"""The table of weather: it still has the defects that the application handles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest

import aflow as af
from flights.data import FlightData, write_weather
from flights.files import Files
from flights.weather import FASTEST_WIND
from tests.examples.flights.expected_weather import Frame
from tests.examples.flights.runs import Answers, answers
from tests.examples.flights.samples import hour, of

pd: Any = pandas

HEADER = "origin,year,wind_speed,wind_gust,precip,visib,time_hour"
GOOD = "JFK,2013,12.6,NA,0.01,10,2013-01-01T06:00:00Z"


def sample(folder: Path, *lines: str) -> FlightData:
    (folder / "weather.csv").write_text("\n".join((HEADER, *lines, "")))
    return FlightData(folder)


def of_lines(folder: Path, *lines: str) -> Answers:
    files = Files(folder)
    write_weather(sample(folder, *lines), files.weather)
    return answers(af.IterableSource(()), folder, weather=files.weather_source())


def test_each_airport_has_a_file_with_its_lines_in_the_order_of_the_table(tmp_path: Path) -> None:
    data = sample(tmp_path, "LGA,b", "JFK,z", "LGA,a", "JFK,y")

    written = write_weather(data, tmp_path / "weather")

    assert written == 4
    assert {file.name: file.read_text() for file in (tmp_path / "weather").iterdir()} == {
        "LGA.csv": f"{HEADER}\nLGA,b\nLGA,a\n",
        "JFK.csv": f"{HEADER}\nJFK,z\nJFK,y\n",
    }


def test_files_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "weather"
    write_weather(sample(tmp_path, "LGA,b"), folder)

    write_weather(sample(tmp_path, "JFK,b"), folder)

    assert [file.name for file in folder.iterdir()] == ["JFK.csv"]


def test_a_line_without_an_airport_follows_the_preceding_one(tmp_path: Path) -> None:
    write_weather(sample(tmp_path, "LGA,b", "../JFK,a", "LGA,c"), tmp_path / "weather")

    (file,) = (tmp_path / "weather").iterdir()
    assert file.read_text() == f"{HEADER}\nLGA,b\n../JFK,a\nLGA,c\n"


@pytest.mark.slow
def test_no_line_of_the_table_is_lost(data: FlightData, replay: Files) -> None:
    header, *rest = data.weather()

    files = [path.read_text().splitlines() for path in sorted(replay.weather.iterdir())]

    assert [lines[0] for lines in files] == [header] * 3
    assert [line for lines in files for line in lines[1:]] == rest


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (GOOD.replace("12.6", "strong"), "got `str` - at `$.wind_speed`"),
        (GOOD.replace("12.6", "-1"), ">= 0.0 - at `$.wind_speed`"),
        (GOOD.replace("0.01", "NA"), "got `null` - at `$.precip`"),
        (GOOD.replace("06:00:00Z", "06:00:00"), "timezone component - at `$.time_hour`"),
    ],
    ids=["a word", "below zero", "rain is missing", "no zone"],
)
def test_an_invalid_line_is_malformed_and_the_others_are_read(
    tmp_path: Path, line: str, reason: str
) -> None:
    doubtful = GOOD.replace("12.6", "999")

    found = of_lines(tmp_path, line, doubtful)

    (bad,) = found.rows("malformed")
    assert bad["text"] == line
    assert bad["place"] == f"{tmp_path / 'weather' / 'JFK.csv'}, line 2"
    assert reason in bad["reason"]
    assert len(found.rows("doubtful")) == 1


def test_an_impossible_wind_is_reported(tmp_path: Path) -> None:
    hours = [hour("01-01T06:00", speed=speed) for speed in (None, 20.0, 1048.36)]

    found = of(tmp_path, hours=hours)

    assert found.rows("doubtful") == [
        {
            "airport": "EWR",
            "hour": "2013-01-01T06:00:00+00:00",
            "column": "wind_speed",
            "value": 1048.36,
        }
    ]


def test_the_fastest_wind_ever_measured_is_possible(tmp_path: Path) -> None:
    found = of(tmp_path, hours=[hour("01-01T06:00", speed=FASTEST_WIND)])

    assert found.rows("doubtful") == []


@pytest.mark.slow
class TestRoughEdges:
    """The statements in the docstrings of ``weather`` and ``data`` hold for the installed tables."""

    def test_rows_are_sorted_by_airport_and_by_time_there(self, data: FlightData) -> None:
        table = pd.read_csv(data.folder / "weather.csv", float_precision="round_trip")

        assert len(table) == 26_115
        assert list(table["origin"].unique()) == ["EWR", "JFK", "LGA"]
        assert table.equals(table.sort_values(["origin", "time_hour"]))
        assert not table["time_hour"].is_monotonic_increasing

    def test_local_hours_agree_with_utc_and_one_of_them_occurs_twice(
        self, table_of_weather: Frame
    ) -> None:
        table = table_of_weather
        there = table["observed"].dt.tz_convert("America/New_York").dt
        columns = ["year", "month", "day", "hour"]

        twice = table[table.duplicated(["origin", *columns])]

        assert all((getattr(there, column) == table[column]).all() for column in columns)
        assert not table.duplicated(["origin", "time_hour"]).any()
        assert twice[["origin", *columns]].to_numpy().tolist() == [
            [airport, 2013, 11, 3, 1] for airport in ("EWR", "JFK", "LGA")
        ]

    @pytest.mark.parametrize("months", [(12, 1, 2), (6, 7, 8)], ids=["winter", "summer"])
    def test_it_is_warmest_in_the_afternoon(
        self, table_of_weather: Frame, months: tuple[int, ...]
    ) -> None:
        table = table_of_weather
        season = table[table["month"].isin(months)]

        assert season.groupby("hour")["temp"].mean().idxmax() == 14

    def test_hours_are_missing_within_the_year_and_at_its_end(
        self, table_of_weather: Frame
    ) -> None:
        table = table_of_weather
        pauses = table.groupby("origin")["observed"].diff().dropna() / pd.Timedelta(hours=1)
        missing = (pauses - 1).groupby(table["origin"]).sum()

        assert missing.to_dict() == {"EWR": 27, "JFK": 24, "LGA": 24}
        assert ((pauses > 1).sum(), pauses.max()) == (45, 6)
        for edge, at in (("min", "2013-01-01T06:00Z"), ("max", "2013-12-30T23:00Z")):
            assert set(table.groupby("origin")["observed"].agg(edge)) == {pd.Timestamp(at)}

    def test_values_are_missing(self, table_of_weather: Frame) -> None:
        table = table_of_weather
        missing = table.isna().sum()

        assert missing[missing > 0].to_dict() == {
            "temp": 1,
            "dewp": 1,
            "humid": 1,
            "wind_dir": 460,
            "wind_speed": 4,
            "wind_gust": 20_778,
            "pressure": 2_729,
        }

    def test_no_gust_is_weak_so_a_missing_one_is_none(self, table_of_weather: Frame) -> None:
        table = table_of_weather
        assert round(table["wind_gust"].min()) == 16

    def test_pressure_is_missing_where_it_rains(self, table_of_weather: Frame) -> None:
        table = table_of_weather
        missing = table["pressure"].isna().groupby(table["precip"] > 0).mean().round(2)

        assert missing.to_dict() == {False: 0.07, True: 0.53}

    def test_one_wind_is_impossible(self, table_of_weather: Frame, results: Answers) -> None:
        table = table_of_weather
        impossible = table[table["wind_speed"] > FASTEST_WIND]

        assert impossible[["origin", "time_hour"]].to_numpy().tolist() == [
            ["EWR", "2013-02-12T08:00:00+00:00"]
        ]
        assert table["wind_speed"].drop(impossible.index).max() < 43
        assert [row["value"] for row in results.rows("doubtful")] == [1048.36058]

    def test_winds_are_whole_knots(self, table_of_weather: Frame) -> None:
        table = table_of_weather
        knots = table[["wind_speed", "wind_gust"]].stack() / 1.15078

        assert (knots - knots.round()).abs().max() < 1e-9

    def test_visibility_ends_at_ten_miles(self, table_of_weather: Frame) -> None:
        table = table_of_weather
        assert table["visib"].max() == 10

    def test_flights_without_a_tail_number_were_cancelled(self, table_of_flights: Frame) -> None:
        flights = table_of_flights

        unknown = flights[flights["tailnum"].isna()]

        assert len(unknown) == 2_512
        assert unknown["delay"].isna().all()

    def test_one_tail_number_has_an_unusual_spelling(self, table_of_flights: Frame) -> None:
        tails = table_of_flights["tailnum"].dropna()

        odd = tails[~tails.str.startswith("N")]

        assert odd.tolist() == ["D942DN"] * 4

    def test_some_aircraft_are_scheduled_twice_in_the_same_minute(
        self, table_of_flights: Frame
    ) -> None:
        flights = table_of_flights

        pairs = flights[flights["tailnum"].notna()].groupby(["tailnum", "at"]).size()

        assert pairs[pairs > 1].tolist() == [2] * 31
