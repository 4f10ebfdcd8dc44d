"""Weather of each departure, and punctuality in wind: an as-of join, and a window over a year."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aflow as af
from flights.flight import Flight, to_datetime
from flights.punctuality import Punctuality, PunctualityAggregate, PunctualitySums
from flights.weather import Observation

#: Maximum age of the observation that is joined with a departure.
TOLERANCE: Final = timedelta(hours=2)

#: The year 2013 in New York's standard time: windows of 365 days, 11 days and 5 hours after the beginning of 1970.
YEAR: Final = af.Tumbling(timedelta(days=365), offset=timedelta(days=11, hours=5))

#: Bounds between the classes of wind, in miles per hour.
_BOUNDS: Final = (10.0, 20.0, 30.0)
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


@dataclass(
    slots=True
)  # not frozen: construction takes a quarter of the time, and there are 300,000
class FlightInWeather:
    """A flight, and the newest observation at its airport at or before its scheduled departure."""

    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime
    delay: int | None
    """Minutes; None if cancelled."""
    weather: Observation | None
    """None if the newest one is older than ``TOLERANCE``."""


@dataclass(frozen=True, slots=True)
class AirportInWind:
    """Flights scheduled to leave ``airport`` in a class of wind, in the year that begins at ``since``."""

    airport: str
    wind: str
    since: datetime
    flights: Punctuality


def in_weather(
    flights: af.KeyedStream[str, Flight], weather: af.KeyedStream[str, Observation]
) -> af.Stream[FlightInWeather]:
    """Join each flight with its weather, if there is any. Both streams are keyed by airport."""
    return flights.as_of_join(weather, tolerance=TOLERANCE, of=Flight, other_of=Observation).left(
        with_weather, name="flights in weather"
    )


def by_wind(flights: af.Stream[FlightInWeather]) -> af.Stream[AirportInWind]:
    """Return the punctuality of the year by airport and wind."""
    return (
        flights.key_by(lambda flight: (flight.origin, wind(flight.weather)))
        .window(YEAR)
        .aggregate(PunctualityAggregate(), of=PunctualitySums, name="by wind")
        .map(_airport_in_wind)
    )


def wind(weather: Observation | None) -> str:
    """Return the class of wind, one of ``WINDS``."""
    if weather is None:
        return NO_WEATHER
    if weather.wind_speed is None:
        return NOT_MEASURED
    return WINDS[bisect_right(_BOUNDS, weather.wind_speed)]


def with_weather(flight: Flight, weather: Observation | None) -> FlightInWeather:
    """Return the joined record."""
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
    airport, wind_class = result.key
    return AirportInWind(airport, wind_class, to_datetime(result.window.start), result.value)
