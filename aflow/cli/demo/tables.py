"""What the demo shows at its end, read back from the files that it has written."""

from __future__ import annotations

import os
import re
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
from aflow.cli.demo.delays import AirportHour, CarrierDay
from aflow.cli.demo.files import Files
from aflow.errors import SourceError
from aflow.runtime.metrics import JobMetrics

R = TypeVar("R", AirportHour, CarrierDay)

#: The end of the name of a file that was written between two checkpoints: its writer, its checkpoint.
_PIECE: Final = re.compile(r"-\d{5,}-\d{6,}\.jsonl$")

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
    hours = _worst("hours to leave New York", _rows(files.results_of("hourly"), AirportHour))
    days = _worst("days of a carrier", _rows(files.results_of("daily"), CarrierDay))
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
    gap = counted(max_delay / timedelta(hours=1), "hour")
    for line in (
        f"{counted(read, 'flight')} read in {seconds:.1f} s ({read / seconds:,.0f}/s); "
        f"cancelled: {written['cancelled']:,}; malformed lines: {written['malformed']:,}.",
        f"An hour or a day is closed once a flight leaves that was scheduled {gap} after its end.",
        f"Departures too late for their hour: {written['late hourly']:,}; for their day: {written['late daily']:,}. "
        f"The tables are without them; a longer --max-delay waits for them.",
        f"Files: {files.folder}{os.sep}{{{', '.join(_names(files.folder))}}}",
    ):
        console.print(line, soft_wrap=True, markup=False)


def counted(number: float, what: str) -> str:
    """``1 hour``, ``1,200 hours``."""
    return f"{number:,g} {what}{'' if number == 1 else 's'}"


def _names(folder: Path) -> list[str]:
    """The files of results; of those in pieces, a pattern for all pieces of one."""
    names = (path.name for path in folder.glob("*.jsonl"))
    return sorted({_PIECE.sub("-*.jsonl", name) for name in names})


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
            title=f"The worst {self.what}, of those with at least {counted(self.least, 'flight')}",
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


def _rows(paths: Iterable[Path], of: type[R]) -> list[R]:
    decode = msgspec.json.Decoder(of).decode
    return [decode(line) for path in paths for line in path.read_bytes().splitlines()]
