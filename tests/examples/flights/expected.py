"""Expected results of the replay, computed independently of aflow: with pandas, column by column."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas

pd: Any = pandas  # without types for the results of indexing
Frame = Any
Column = Any

Row = dict[str, Any]

_FLIGHT = ["carrier", "flight", "origin", "dest", "scheduled"]


@dataclass(frozen=True)
class Expected:
    """Expected rows of each file of results, in any order."""

    hourly: list[Row]
    daily: list[Row]
    late_hourly: list[Row]
    late_daily: list[Row]
    cancelled: list[Row]


def expected(table: Path, max_delay: timedelta) -> Expected:
    """Return the expected results for the whole table of flights."""
    flights = _in_order_of_departure(pd.read_csv(table, float_precision="round_trip"))
    # Sums over the preceding flights.
    watermark = flights["at"].cummax().shift() - max_delay - pd.Timedelta(milliseconds=1)
    flights["hour"] = flights["at"].dt.floor("h")
    # Days of the calendar in the table itself, independent of any offset from UTC.
    flights["day"] = pd.to_datetime(flights[["year", "month", "day"]])
    day_ends = flights["day"].dt.tz_localize("UTC") + pd.Timedelta(days=1, hours=5)

    departed = flights["dep_delay"].notna()
    late_hourly = departed & _passed(flights["hour"] + pd.Timedelta(hours=1), watermark)
    late_daily = departed & _passed(day_ends, watermark)
    flights["scheduled"] = texts(flights["at"])
    flights["hour"] = texts(flights["hour"])
    flights["day"] = pd.Series(
        np.datetime_as_string(flights["day"].to_numpy(), unit="D"), dtype=object
    )
    return Expected(
        hourly=_delays(flights[departed & ~late_hourly], "origin", "hour", called="airport"),
        daily=_delays(flights[departed & ~late_daily], "carrier", "day", called="carrier"),
        late_hourly=_departures(flights[late_hourly]),
        late_daily=_departures(flights[late_daily]),
        cancelled=_rows(flights.loc[~departed, _FLIGHT]),
    )


def texts(moments: Column) -> Column:
    """Format moments in UTC as in JSON; takes a tenth of the time of ``strftime``."""
    times = moments.dt.tz_localize(None).to_numpy()
    return pd.Series(np.datetime_as_string(times, unit="s"), moments.index, dtype=object) + "+00:00"


def _in_order_of_departure(flights: Frame) -> Frame:
    hours = pd.to_datetime(flights["time_hour"], utc=True)
    flights["at"] = hours + pd.to_timedelta(flights["minute"], unit="min")
    left = flights["at"] + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="min")
    return flights.loc[left.sort_values(kind="stable").index].reset_index(drop=True)


def _passed(ends: Column, watermark: Column) -> Column:
    return ends - pd.Timedelta(milliseconds=1) <= watermark


def _departures(flights: Frame) -> list[Row]:
    rows = flights.assign(delay=flights["dep_delay"].astype(int))
    return _rows(rows[[*_FLIGHT, "delay"]])


def _rows(flights: Frame) -> list[Row]:
    rows: list[Row] = flights.to_dict("records")
    return rows


def _delays(flights: Frame, key: str, window: str, *, called: str) -> list[Row]:
    groups = flights.groupby([key, window])["dep_delay"].agg(["size", "mean", "max"])
    return [
        {
            called: name,
            window: when,
            "delays": {"flights": size, "mean": mean, "longest": int(longest)},
        }
        for (name, when), size, mean, longest in groups.itertuples(name=None)
    ]
