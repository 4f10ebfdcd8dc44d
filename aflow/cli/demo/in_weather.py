"""In what weather was each flight to leave, and how punctual are flights in wind? An as-of join, and a window."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aflow as af
from aflow.cli.demo.flights import Flight, moment
from aflow.cli.demo.punctuality import Planning, Punctualities, Punctuality
from aflow.cli.demo.weather import Observation

#: An observation that is older than that says nothing about a departure any more.
TOLERANCE: Final = timedelta(hours=2)

#: The year 2013 in New York's standard time, as a window: 365 days whose beginnings lie 11 days and 5 hours off 1970's.
YEAR: Final = af.Tumbling(timedelta(days=365), offset=timedelta(days=11, hours=5))

#: Where a class of wind ends and the next begins, in miles per hour.
_LIMITS: Final = (10.0, 20.0, 30.0)
NOT_MEASURED: Final = "not measured"
NO_WEATHER: Final = "no observation"

#: All classes, the calmest first.
WINDS: Final = (
    "below 10 mph",
    "10 to 20 mph",
    "20 to 30 mph",
    "30 mph and more",
    NOT_MEASURED,
    NO_WEATHER,
)


@dataclass(slots=True)  # not frozen: to make one takes a quarter of the time, and these are 300,000
class FlightInWeather:
    """A flight, and the newest observation at its airport up to its scheduled departure."""

    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime
    delay: int | None
    """Minutes; None if it was cancelled."""
    weather: Observation | None
    """None if the newest one is older than ``TOLERANCE``."""


@dataclass(frozen=True, slots=True)
class AirportInWind:
    """The flights that were to leave ``airport`` in a class of wind, in the year that begins at ``since``."""

    airport: str
    wind: str
    since: datetime
    flights: Punctuality


def in_weather(
    flights: af.KeyedStream[str, Flight], weather: af.KeyedStream[str, Observation]
) -> af.Stream[FlightInWeather]:
    """Each flight once, with its weather if there is some: both by airport, flights by their scheduled departure."""
    return flights.as_of_join(weather, tolerance=TOLERANCE, of=Flight, other_of=Observation).left(
        _together, name="flights in weather"
    )


def by_wind(flights: af.Stream[FlightInWeather]) -> af.Stream[AirportInWind]:
    """How punctual the flights of the year were, by airport and wind."""
    return (
        flights.key_by(lambda flight: (flight.origin, wind(flight.weather)))
        .window(YEAR)
        .aggregate(Punctualities(), of=Planning, name="by wind")
        .map(_airport_in_wind)
    )


def wind(weather: Observation | None) -> str:
    """The class of wind, one of ``WINDS``."""
    if weather is None:
        return NO_WEATHER
    if weather.wind_speed is None:
        return NOT_MEASURED
    return WINDS[bisect_right(_LIMITS, weather.wind_speed)]


def _together(flight: Flight, weather: Observation | None) -> FlightInWeather:
    return FlightInWeather(
        flight.carrier,
        flight.flight,
        flight.origin,
        flight.dest,
        flight.scheduled,
        flight.dep_delay,
        weather,
    )


def _airport_in_wind(result: af.Windowed[tuple[str, str], Punctuality]) -> AirportInWind:
    airport, called = result.key
    return AirportInWind(airport, called, moment(result.window.start), result.value)
