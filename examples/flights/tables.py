"""Tables at the end of a replay, read from the files of results."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nlargest
from pathlib import Path
from typing import Final, Generic, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from rich.console import Console
from rich.table import Table

import aflow as af
from flights.aircraft import AircraftDay
from flights.data import FlightData
from flights.delays import AirportHour, CarrierDay
from flights.files import Files
from flights.punctuality import Punctuality, combined
from flights.storms import AroundStorm, Storm
from flights.wind import WINDS, AirportInWind

R = TypeVar("R")
D = TypeVar("D", AirportHour, CarrierDay)

#: Suffix of a file that was written between two checkpoints: its writer, its checkpoint.
_PART: Final = re.compile(r"-\d{5,}-\d{6,}\.jsonl$")

#: Rows of the tables of delays, and of all others.
_DELAY_ROWS: Final = 10
_ROWS: Final = 5

#: Minimum number of flights of a row: an hour with one flight shows a bad flight, not a bad hour.
_MIN_FLIGHTS: Final = 10


def new_york() -> ZoneInfo:
    """Return the time zone of New York. Raises ``SourceError`` if this machine has no time zones."""
    try:
        return ZoneInfo("America/New_York")
    except ZoneInfoNotFoundError as exc:
        raise af.errors.SourceError(
            "this machine has no time zones, and the tables show local times: pip install tzdata"
        ) from exc


def counted(number: float, noun: str) -> str:
    """Return ``1 hour`` or ``1,200 hours``."""
    return f"{number:,g} {noun}{'' if number == 1 else 's'}"


# ------------------------------------------------------------------------------------------------- hours, days, totals


def hours_of(files: Files) -> list[AirportHour]:
    """Return the delays of all hours."""
    return list(_rows(files.results_of("hourly"), AirportHour))


def days_of(files: Files) -> list[CarrierDay]:
    """Return the delays of all days."""
    return list(_rows(files.results_of("daily"), CarrierDay))


def show_worst(
    console: Console, data: FlightData, hours: Sequence[AirportHour], days: Sequence[CarrierDay]
) -> None:
    """Print the hours and the days with the longest mean delays."""
    zone, airports, airlines = new_york(), data.airports(), data.airlines()
    worst_hours = _worst("hours to leave New York", hours)
    worst_days = _worst("days of a carrier", days)
    hour_names = [
        (_local(row.hour, zone), airports.get(row.airport, row.airport)) for row in worst_hours.rows
    ]
    day_names = [
        (f"{row.day:%a %d %b}", airlines.get(row.carrier, row.carrier)) for row in worst_days.rows
    ]
    console.print(worst_hours.table(("hour in New York", "airport"), hour_names))
    console.print(worst_days.table(("day", "carrier"), day_names))


def show_totals(
    console: Console,
    metrics: af.metrics.JobMetrics,
    files: Files,
    max_delay: timedelta,
    *,
    seconds: float,
) -> None:
    """Print the number of flights, the flights that are in no table, and the duration."""
    steps = metrics.steps
    read = steps["flights"].records_out
    written = {
        name: steps[name].records_in
        for name in ("cancelled", "malformed", "late hourly", "late daily")
    }
    wait = counted(max_delay / timedelta(hours=1), "hour")
    for line in (
        f"{counted(read, 'flight')} read in {seconds:.1f} s ({read / seconds:,.0f}/s); "
        f"cancelled: {written['cancelled']:,}; malformed lines: {written['malformed']:,}.",
        f"An hour or a day closes when a flight leaves that was scheduled {wait} after its end.",
        f"Departures too late for their hour: {written['late hourly']:,}; for their day: {written['late daily']:,}. "
        f"The tables omit them; a longer --max-delay waits for them.",
        f"Files: {files.folder}{os.sep}{{{', '.join(_names(files.folder))}}}",
    ):
        console.print(line, soft_wrap=True, markup=False)


def _names(folder: Path) -> list[str]:
    """Return the names of the files of results, with one pattern for all parts of a result."""
    names = (path.name for path in folder.glob("*.jsonl"))
    return sorted({_PART.sub("-*.jsonl", name) for name in names})


@dataclass(frozen=True)  # not slotted: on Python 3.11 a frozen, slotted generic cannot be called
class _Worst(Generic[D]):
    """Rows with the longest mean delays, of those with at least ``minimum`` flights."""

    title: str
    minimum: int
    rows: list[D]

    def table(self, headings: tuple[str, str], names: Iterable[tuple[str, str]]) -> Table:
        title = f"The worst {self.title}, of those with at least {counted(self.minimum, 'flight')}"
        table = _table(title, headings, ("flights", "mean delay", "longest"))
        for row, (time, name) in zip(self.rows, names, strict=True):
            one = row.delays
            table.add_row(time, name, str(one.flights), f"{one.mean:.0f} min", f"{one.longest} min")
        return table


def _worst(title: str, rows: Sequence[D]) -> _Worst[D]:
    minimum = min(_MIN_FLIGHTS, max((row.delays.flights for row in rows), default=0))
    enough = (row for row in rows if row.delays.flights >= minimum)
    longest = sorted(enough, key=lambda row: row.delays.mean, reverse=True)
    return _Worst(title, minimum, longest[:_DELAY_ROWS])


# --------------------------------------------------------------------------------------------- wind, storms, aircraft


def show_weather(console: Console, files: Files, zone: ZoneInfo) -> None:
    """Print the effect of wind and storms, and the longest days of aircraft; times are those of ``zone``."""
    console.print(_winds(list(_rows(files.results_of("by-wind"), AirportInWind))))
    console.print(_storms(list(_rows(files.results_of("around-storms"), AroundStorm)), zone))
    days = _rows(files.results_of("aircraft-days"), AircraftDay)
    console.print(_aircraft(nlargest(_ROWS, days, key=_length), zone))


def _winds(rows: list[AirportInWind]) -> Table:
    airports = sorted({row.airport for row in rows})
    table = _table("Mean delay in wind, and cancelled flights", ["wind"], airports)
    found = {(row.airport, row.wind): row.flights for row in rows}
    for wind in WINDS:
        cells = [found.get((airport, wind)) for airport in airports]
        if any(cells):
            table.add_row(wind, *(_cell(cell) for cell in cells))
    return table


def _storms(rows: list[AroundStorm], zone: ZoneInfo) -> Table:
    table = _table(
        "The worst storms: flights of the six hours before and after they began",
        ["New York", "airport", "first hour"],
        ["before", "after"],
    )
    for row in nlargest(_ROWS, rows, key=_increase):
        table.add_row(
            _local(row.storm.began, zone),
            row.storm.airport,
            _first_hour(row.storm),
            _cell(row.before),
            _cell(row.after),
        )
    if rows:
        before = combined(row.before for row in rows)
        after = combined(row.after for row in rows)
        table.add_section()
        table.add_row(f"all {len(rows)} storms", "", "", _cell(before), _cell(after))
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


def _increase(row: AroundStorm) -> float:
    """Return the increase of the mean delay in minutes."""
    return (row.after.mean or 0) - (row.before.mean or 0)


def _length(day: AircraftDay) -> float:
    return (day.last - day.first).total_seconds()


def _first_hour(storm: Storm) -> str:
    gust = "" if storm.gust is None else f"gusts {storm.gust:.0f} mph"
    rain = f"rain {storm.rain:.2f} in" if storm.rain else ""
    return ", ".join(filter(None, (gust, rain)))


def _cell(flights: Punctuality | None) -> str:
    """Return mean delay and share of cancelled flights, as in ``12 min, 3.4%``."""
    if flights is None or not flights.flights:
        return "no flights"
    mean = "none left" if flights.mean is None else f"{flights.mean:.0f} min"
    return f"{mean}, {flights.cancelled / flights.flights:.1%}"


# -------------------------------------------------------------------------------------------------------------- shared


def _table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in words:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def _local(moment: datetime, zone: ZoneInfo) -> str:
    return f"{moment.astimezone(zone):%a %d %b %H:%M}"


def _rows(paths: Iterable[Path], of: type[R]) -> Iterator[R]:
    decode = msgspec.json.Decoder(of).decode
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                yield decode(line)
