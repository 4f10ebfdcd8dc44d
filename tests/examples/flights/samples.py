"""Sample flights and hours of weather, and the results of the pipeline for them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import aflow as af
from flights.flight import Flight
from flights.weather import Observation
from tests.examples.flights.runs import Answers, answers


def of(folder: Path, *flights: Flight, hours: Iterable[Observation] = ()) -> Answers:
    """Return the results for ``flights`` in the order of departure and ``hours`` in the order of time."""
    return answers(af.IterableSource(flights), folder, weather=af.IterableSource(list(hours)))


def flight(
    time: str,
    delay: int | None,
    *,
    origin: str = "EWR",
    carrier: str = "UA",
    tail: str | None = "N14228",
) -> Flight:
    """Return a flight of 2013; ``time`` is the scheduled departure in UTC, as in ``07-04T10:15``."""
    scheduled = datetime.fromisoformat(f"2013-{time}Z")
    return Flight(
        time_hour=scheduled.replace(minute=0),
        minute=scheduled.minute,
        dep_delay=delay,
        carrier=carrier,
        flight=7,
        tailnum=tail,
        origin=origin,
        dest="IAH",
    )


def hour(
    time: str,
    *,
    at: str = "EWR",
    speed: float | None = 5.0,
    gust: float | None = None,
    rain: float = 0.0,
) -> Observation:
    """Return the weather of the hour of 2013 that begins at ``time`` (UTC), calm by default."""
    return Observation(
        origin=at,
        time_hour=datetime.fromisoformat(f"2013-{time}Z"),
        wind_speed=speed,
        wind_gust=gust,
        precip=rain,
        visib=10.0,
    )
