"""Expected results about weather, aircraft and storms, computed with pandas: ``merge_asof`` and group-by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from tests.examples.flights.expected import texts

pd: Any = pandas  # without types for the results of indexing
Frame = Any

Row = dict[str, Any]
Cells = tuple[Any, ...]

_FLIGHT = ["carrier", "flight", "origin", "dest", "scheduled", "delay"]
#: Columns of the weather of a flight.
WEATHER = ["time_hour", "wind_speed", "wind_gust", "precip", "visib"]
_SIX_HOURS = pd.Timedelta(hours=6)


@dataclass(frozen=True)
class ExpectedWeather:
    """Expected rows of each file of results, in any order; cells only for the large ones."""

    in_weather: list[Cells]
    by_wind: list[Row]
    aircraft_days: list[Cells]
    around_storms: list[Row]
    no_tail: list[Row]
    doubtful: list[Row]


def expected_weather(flights: Frame, weather: Frame) -> ExpectedWeather:
    """Return the expected results for the tables of ``read_flights`` and ``read_weather``."""
    doubtful = weather[weather["wind_speed"] > 300]
    weather = weather.assign(wind_speed=weather["wind_speed"].where(weather["wind_speed"] <= 300))
    joined = _joined(flights, weather)
    return ExpectedWeather(
        in_weather=_in_weather(joined),
        by_wind=_by_wind(joined),
        aircraft_days=_aircraft_days(flights[flights["tailnum"].notna()]),
        around_storms=_around_storms(_storms(weather), flights),
        no_tail=_no_tail(flights[flights["tailnum"].isna()]),
        doubtful=[
            {"airport": airport, "hour": hour, "column": "wind_speed", "value": value}
            for airport, hour, value in zip(
                doubtful["origin"], doubtful["time_hour"], doubtful["wind_speed"], strict=True
            )
        ],
    )


def read_flights(folder: Path) -> Frame:
    """Read the table of flights, sorted by scheduled departure (``at``)."""
    flights = pd.read_csv(folder / "flights.csv.zip", float_precision="round_trip").rename(
        columns={"dep_delay": "delay"}
    )
    hours = pd.to_datetime(flights["time_hour"], utc=True)
    flights["at"] = hours + pd.to_timedelta(flights["minute"], unit="min")
    flights["scheduled"] = texts(flights["at"])
    return flights.sort_values("at", kind="stable").reset_index(drop=True)


def read_weather(folder: Path) -> Frame:
    """Read the table of weather, sorted by time (``observed``)."""
    weather = pd.read_csv(folder / "weather.csv", float_precision="round_trip")
    weather["observed"] = pd.to_datetime(weather["time_hour"], utc=True)
    weather["time_hour"] = texts(weather["observed"])
    return weather.sort_values("observed", kind="stable").reset_index(drop=True)


def _joined(flights: Frame, weather: Frame) -> Frame:
    return pd.merge_asof(
        flights.drop(columns="time_hour"),
        weather[["origin", *WEATHER, "observed"]],
        left_on="at",
        right_on="observed",
        by="origin",
        tolerance=pd.Timedelta(hours=2),
    )


def _in_weather(joined: Frame) -> list[Cells]:
    """Return the cells of flight and weather; None for all weather if there is none."""
    return _cells(joined[[*_FLIGHT, *WEATHER]])


def _by_wind(joined: Frame) -> list[Row]:
    names = ["below 10 mph", "10 to 20 mph", "20 to 30 mph", "30 mph and more"]
    bins = [0, 10, 20, 30, float("inf")]
    wind = pd.cut(joined["wind_speed"], bins, right=False, labels=names).astype(object)
    wind = wind.where(joined["wind_speed"].notna(), "not measured")
    wind = wind.where(joined["time_hour"].notna(), "no observation")
    return [
        {
            "airport": airport,
            "wind": name,
            "since": "2013-01-01T05:00:00+00:00",
            "flights": _punctuality(group),
        }
        for (airport, name), group in joined.groupby(["origin", wind])
    ]


def _aircraft_days(flights: Frame) -> list[Cells]:
    """Return tail number, legs, cancelled, airports separated by spaces, first, last, and delay."""
    flights = flights.sort_values(["tailnum", "at"], kind="stable")
    pauses = flights.groupby("tailnum")["at"].diff()
    flights["day"] = (pauses.isna() | (pauses > _SIX_HOURS)).cumsum()
    flights["cancelled"] = flights["delay"].isna()
    # The first and the last one of a day are those of its times: the table is sorted by them.
    begins, ends = ~flights.duplicated("day"), ~flights.duplicated("day", keep="last")
    sums = flights.groupby("day").agg(
        legs=("at", "size"), cancelled=("cancelled", "sum"), delay=("delay", "sum")
    )
    days = pd.DataFrame(
        {
            "tail": flights["tailnum"][begins].to_numpy(),
            "legs": sums["legs"].to_numpy(),
            "cancelled": sums["cancelled"].to_numpy(),
            "airports": _airports(flights).to_numpy(),
            "first": flights["scheduled"][begins].to_numpy(),
            "last": flights["scheduled"][ends].to_numpy(),
            "delay": sums["delay"].to_numpy(),
        }
    )
    return _cells(days)


def _airports(flights: Frame) -> Frame:
    """Return the airports of each day, sorted and separated by spaces; most days have one."""
    places = flights[["day", "origin"]].drop_duplicates().sort_values(["day", "origin"])
    airports = places.drop_duplicates("day").set_index("day")["origin"]
    several = places[places.duplicated("day", keep=False)]
    airports.update(several.groupby("day")["origin"].agg(" ".join))
    return airports


def _storms(weather: Frame) -> Frame:
    stormy = weather[(weather["wind_gust"] >= 39) | (weather["precip"] > 0.3)]
    pauses = stormy.groupby("origin")["observed"].diff()
    return stormy[pauses.isna() | (pauses > _SIX_HOURS)]


def _around_storms(storms: Frame, flights: Frame) -> list[Row]:
    columns = ["origin", "observed", "time_hour", "wind_gust", "precip"]
    there = dict(iter(flights.groupby("origin")))
    rows: list[Row] = []
    for airport, observed, began, gust, rain in _cells(storms[columns]):
        since = there[airport]["at"] - observed
        near = there[airport][(since >= -_SIX_HOURS) & (since < _SIX_HOURS)]
        if near.empty:
            continue
        after = near["at"] >= observed
        rows.append(
            {
                "storm": {"airport": airport, "began": began, "gust": gust, "rain": rain},
                "before": _punctuality(near[~after]),
                "after": _punctuality(near[after]),
            }
        )
    return rows


def _no_tail(flights: Frame) -> list[Row]:
    assert flights["delay"].isna().all()
    rows = flights.assign(
        time_hour=texts(flights["at"].dt.floor("h")), dep_delay=None, tailnum=None
    )
    names = ["time_hour", "minute", "dep_delay", "carrier", "flight", "tailnum", "origin", "dest"]
    return [dict(zip(names, cells, strict=True)) for cells in _cells(rows[names])]


def _punctuality(flights: Frame) -> Row:
    left = flights["delay"].dropna()
    return {
        "flights": len(flights),
        "cancelled": len(flights) - len(left),
        "mean": float(left.mean()) if len(left) else None,
    }


def _cells(table: Frame) -> list[Cells]:
    """Return rows of plain values, with None for missing ones."""
    columns = (
        [None if missing else value for value, missing in zip(*pair, strict=True)]
        for pair in ((table[name].tolist(), table[name].isna().tolist()) for name in table)
    )
    return list(zip(*columns, strict=True))
