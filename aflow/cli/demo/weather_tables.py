"""What the demo shows of weather, storms and aircraft, read back from the files that it has written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import nlargest
from pathlib import Path
from typing import Final, TypeVar
from zoneinfo import ZoneInfo

import msgspec
from rich.console import Console
from rich.table import Table

from aflow.cli.demo.aircraft import AircraftDay
from aflow.cli.demo.files import Files
from aflow.cli.demo.in_weather import WINDS, AirportInWind
from aflow.cli.demo.punctuality import Punctuality, together
from aflow.cli.demo.storms import AroundStorm, Storm

R = TypeVar("R")

#: Rows of a table.
_SHOWN: Final = 5


def show_weather(console: Console, files: Files, zone: ZoneInfo) -> None:
    """Print what wind and storms did to the flights, and the longest days of aircraft; times are those of ``zone``."""
    console.print(_winds(list(_rows(files.results_of("by-wind"), AirportInWind))))
    console.print(_storms(list(_rows(files.results_of("around-storms"), AroundStorm)), zone))
    days = _rows(files.results_of("aircraft-days"), AircraftDay)
    console.print(_aircraft(nlargest(_SHOWN, days, key=_length), zone))


def _winds(rows: list[AirportInWind]) -> Table:
    airports = sorted({row.airport for row in rows})
    table = _table("Mean delay in wind, and how many flights were cancelled", ["wind"], airports)
    found = {(row.airport, row.wind): row.flights for row in rows}
    for wind in WINDS:
        cells = [found.get((airport, wind)) for airport in airports]
        if any(cells):
            table.add_row(wind, *(_shown(cell) for cell in cells))
    return table


def _storms(rows: list[AroundStorm], zone: ZoneInfo) -> Table:
    table = _table(
        "The worst storms: flights of the six hours before and after they began",
        ["New York", "airport", "first hour"],
        ["before", "after"],
    )
    for row in nlargest(_SHOWN, rows, key=_worse):
        table.add_row(
            _local(row.storm.began, zone),
            row.storm.airport,
            _first_hour(row.storm),
            _shown(row.before),
            _shown(row.after),
        )
    if rows:
        before, after = (
            together(row.before for row in rows),
            together(row.after for row in rows),
        )
        table.add_section()
        table.add_row(f"all {len(rows)} of them", "", "", _shown(before), _shown(after))
    return table


def _aircraft(days: Iterable[AircraftDay], zone: ZoneInfo) -> Table:
    table = _table(
        "The longest days of aircraft",
        ["tail number", "first departure", "last", "from"],
        ["legs", "sum of delays"],
    )
    for day in days:
        table.add_row(
            day.tail,
            _local(day.first, zone),
            f"{day.last.astimezone(zone):%H:%M}",
            ", ".join(day.airports),
            str(day.legs),
            f"{day.delay} min",
        )
    return table


def _table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in words:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def _worse(row: AroundStorm) -> float:
    """By how many minutes flights left later."""
    return (row.after.mean or 0) - (row.before.mean or 0)


def _length(day: AircraftDay) -> float:
    return (day.last - day.first).total_seconds()


def _first_hour(storm: Storm) -> str:
    gust = "" if storm.gust is None else f"gusts {storm.gust:.0f} mph"
    rain = f"rain {storm.rain:.2f} in" if storm.rain else ""
    return ", ".join(filter(None, (gust, rain)))


def _shown(flights: Punctuality | None) -> str:
    """``12 min, 3.4%`` of delay and cancelled flights."""
    if flights is None or not flights.flights:
        return "no flights"
    mean = "none left" if flights.mean is None else f"{flights.mean:.0f} min"
    return f"{mean}, {flights.cancelled / flights.flights:.1%}"


def _local(moment: datetime, zone: ZoneInfo) -> str:
    return f"{moment.astimezone(zone):%a %d %b %H:%M}"


def _rows(paths: Iterable[Path], of: type[R]) -> Iterator[R]:
    decode = msgspec.json.Decoder(of).decode
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                yield decode(line)
