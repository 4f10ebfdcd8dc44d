"""What the demo shows at its end, read back from the files that it has written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Generic, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from rich.console import Console
from rich.table import Table

from aflow.cli.demo.data import FlightData
from aflow.cli.demo.files import Files
from aflow.cli.demo.pipeline import AirportHour, CarrierDay
from aflow.errors import SourceError
from aflow.runtime.metrics import JobMetrics

R = TypeVar("R", AirportHour, CarrierDay)

#: Rows of a table.
_SHOWN: Final = 10

#: An hour of one flight is no bad hour, it is a bad flight.
_ENOUGH_FLIGHTS: Final = 10


def new_york() -> ZoneInfo:
    """The clocks there. Raises ``SourceError`` if this machine has no time zones."""
    try:
        return ZoneInfo("America/New_York")
    except ZoneInfoNotFoundError as exc:
        raise SourceError(
            "this machine knows no time zones, and the demo shows times of New York: pip install tzdata"
        ) from exc


def show_worst(console: Console, data: FlightData, files: Files) -> None:
    """Print the worst hours and days of those that stand in the files of results."""
    zone, airports, airlines = new_york(), data.airports(), data.airlines()
    hours = _worst("hours to leave New York", _rows(files.hourly, AirportHour))
    days = _worst("days of a carrier", _rows(files.daily, CarrierDay))
    when_and_where = [
        (f"{row.hour.astimezone(zone):%a %d %b %H:%M}", airports.get(row.airport, row.airport))
        for row in hours.rows
    ]
    when_and_who = [
        (f"{row.day:%a %d %b}", airlines.get(row.carrier, row.carrier)) for row in days.rows
    ]
    console.print(hours.table(("hour in New York", "airport"), when_and_where))
    console.print(days.table(("day", "carrier"), when_and_who))


def show_totals(
    console: Console, metrics: JobMetrics, files: Files, max_delay: timedelta, *, seconds: float
) -> None:
    """Print how many flights there were, what is in no table, and how long it all took."""
    steps = metrics.steps
    read = steps["flights"].records_out
    written = {
        name: steps[name].records_in
        for name in ("cancelled", "malformed", "late hourly", "late daily")
    }
    console.print(
        f"{read:,} flights in {seconds:.1f} s ({read / seconds:,.0f}/s): {written['cancelled']:,} were cancelled, "
        f"{written['malformed']:,} lines were malformed.\n"
        f"An hour is closed once a flight leaves that was scheduled {_hours(max_delay)} after its end: "
        f"{written['late hourly']:,} departures came too late for their hour and {written['late daily']:,} for their "
        f"day. The tables leave them out; a longer --max-delay waits for them.\n"
        f"Files: {files.folder}{os.sep}{{{', '.join(path.name for path in sorted(files.folder.glob('*.jsonl')))}}}",
        soft_wrap=True,
        markup=False,
    )


def _hours(duration: timedelta) -> str:
    hours = duration / timedelta(hours=1)
    return f"{hours:g} hour{'' if hours == 1 else 's'}"


@dataclass(
    frozen=True
)  # not slotted: on Python 3.11 _Worst[R](…) of a frozen, slotted generic raises
class _Worst(Generic[R]):
    """The rows with the longest mean delays, of those with at least ``least`` flights."""

    what: str
    least: int
    rows: list[R]

    def table(self, headings: tuple[str, str], names: Iterable[tuple[str, str]]) -> Table:
        table = Table(
            title=f"The worst {self.what}, of those with {self.least} flights or more",
            title_justify="left",
        )
        for heading in headings:
            table.add_column(heading)
        for heading in ("flights", "mean delay", "longest"):
            table.add_column(heading, justify="right")
        for row, (when, who) in zip(self.rows, names, strict=True):
            one = row.delays
            table.add_row(when, who, str(one.flights), f"{one.mean:.0f} min", f"{one.longest} min")
        return table


def _worst(what: str, rows: Sequence[R]) -> _Worst[R]:
    least = min(_ENOUGH_FLIGHTS, max((row.delays.flights for row in rows), default=0))
    enough = (row for row in rows if row.delays.flights >= least)
    longest = sorted(enough, key=lambda row: row.delays.mean, reverse=True)
    return _Worst(what, least, longest[:_SHOWN])


def _rows(path: Path, of: type[R]) -> list[R]:
    decode = msgspec.json.Decoder(of).decode
    with path.open("rb") as lines:
        return [decode(line) for line in lines]
