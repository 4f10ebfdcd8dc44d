"""Answers of the flights over history, computed a second time with pandas and without aflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import pandas

pd: Any = pandas  # its annotations do not say what indexing a frame gives
Frame: TypeAlias = Any
Cells: TypeAlias = tuple[Any, ...]

_HOUR = pd.Timedelta(hours=1)
_SIX_HOURS = 6 * _HOUR
_MIDNIGHT = 5 * _HOUR
_WEEK = pd.Timedelta(days=7)
_EPOCH = pd.Timestamp(0, tz="UTC")


def read_flights(folder: Path) -> Frame:
    """The table of flights in the order of departure, with the scheduled one as ``at``."""
    flights = pd.read_csv(folder / "flights.csv.zip")
    flights["time_hour"] = pd.to_datetime(flights["time_hour"], utc=True)
    flights["at"] = flights["time_hour"] + pd.to_timedelta(flights["minute"], unit="min")
    left = flights["at"] + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="min")
    return flights.loc[left.sort_values(kind="stable").index].reset_index(drop=True)


def read_weather(folder: Path) -> Frame:
    """The table of weather by time."""
    weather = pd.read_csv(folder / "weather.csv")
    weather["time_hour"] = pd.to_datetime(weather["time_hour"], utc=True)
    return weather.sort_values("time_hour", kind="stable").reset_index(drop=True)


def expected(folder: Path, flights: Frame, weather: Frame) -> dict[str, list[Cells]]:
    """Expected results of the pipeline, by sink."""
    hours = _hours(flights)
    known = flights[flights["tailnum"].notna()]
    silent = _silent(known, folder / "planes.csv")
    return {
        "hours": _cells(hours),
        "worst_hours": _cells(_worst(hours)),
        "stretches": _cells(_stretches(known)),
        "silent": _cells(silent),
        "grounded": _cells(_grounded(silent)),
        "around": _cells(_around(_storms(weather), hours)),
    }


def _hours(flights: Frame) -> Frame:
    left = flights[flights["dep_delay"].notna()]
    groups = left.groupby(["origin", left["at"].dt.floor("h")])["dep_delay"]
    hours = groups.agg(flights="size", minutes="sum", longest="max").reset_index()
    return hours.astype({"minutes": int, "longest": int})


def _worst(hours: Frame) -> Frame:
    day = (hours["at"] - _MIDNIGHT).dt.floor("D")
    worst_first = hours.assign(day=day).sort_values(["minutes", "at"], ascending=[False, True])
    return worst_first.drop_duplicates(["origin", "day"]).drop(columns="day")


def _stretches(known: Frame) -> Frame:
    known = known.sort_values(["tailnum", "at"], kind="stable")
    pauses = known.groupby("tailnum")["at"].diff()
    known["stretch"] = (pauses.isna() | (pauses > 36 * _HOUR)).cumsum()
    known["cancelled"] = known["dep_delay"].isna()
    stretches = known.groupby("stretch").agg(
        tail=("tailnum", "first"),
        first=("at", "min"),
        last=("at", "max"),
        legs=("at", "size"),
        cancelled=("cancelled", "sum"),
        delay=("dep_delay", "sum"),
    )
    return stretches.astype({"delay": int})


def _silent(known: Frame, planes: Path) -> Frame:
    legs = known.sort_values(["tailnum", "at", "dest"]).drop_duplicates(["tailnum", "at"])
    pause = legs.groupby("tailnum")["at"].shift(-1) - legs["at"]
    silent = legs.loc[pause.isna() | (pause > _WEEK), ["tailnum", "at", "dest"]]
    # Nothing in that table stands for a missing value.
    kinds = pd.read_csv(planes, keep_default_na=False)[
        ["tailnum", "manufacturer", "model", "seats"]
    ]
    silent = silent.merge(kinds, on="tailnum", how="left")
    silent = silent.fillna({"manufacturer": "unknown", "model": "unknown", "seats": 0})
    return silent.astype({"seats": int})


def _grounded(silent: Frame) -> Frame:
    week = _EPOCH + (silent["at"] + _WEEK - _EPOCH) // _WEEK * _WEEK
    groups = silent.groupby(["manufacturer", week])["seats"]
    return groups.agg(aircraft="size", seats="sum").reset_index()


def _storms(weather: Frame) -> Frame:
    stormy = weather[(weather["wind_gust"] >= 39) | (weather["precip"] > 0.3)]
    pauses = stormy.groupby("origin")["time_hour"].diff()
    return stormy[pauses.isna() | (pauses > _SIX_HOURS)]


def _around(storms: Frame, hours: Frame) -> Frame:
    storm = ["origin", "time_hour", "wind_gust", "precip"]
    pairs = storms[storm].merge(hours, on="origin")
    since = pairs["at"] - pairs["time_hour"]
    pairs = pairs[(since >= -_SIX_HOURS) & (since < _SIX_HOURS)]
    for side, chosen in (("before", since < pd.Timedelta(0)), ("after", since >= pd.Timedelta(0))):
        for what in ("flights", "minutes"):
            pairs[f"{what}_{side}"] = pairs[what].where(chosen, 0)
    sides = [f"{what}_{side}" for side in ("before", "after") for what in ("flights", "minutes")]
    return pairs.groupby(storm, dropna=False)[sides].sum().reset_index()


def _cells(table: Frame) -> list[Cells]:
    """Rows of plain values; None for missing ones."""
    columns = (
        [None if missing else value for value, missing in zip(*pair, strict=True)]
        for pair in ((table[name].tolist(), table[name].isna().tolist()) for name in table)
    )
    return list(zip(*columns, strict=True))
