"""The pipeline of the replay, composed of one module for each idea.

Event time is the scheduled departure, and flights arrive in the order of their actual departure. The stream is
therefore out of order by the delays of the flights. The pipeline handles this disorder in two ways, in parallel. Hours
and days (``delays``) wait for ``max_delay``, and some flights are late. Weather (``wind``), days of aircraft
(``aircraft``) and storms (``storms``) wait for every flight, so their results are emitted later and are complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import aflow as af
from flights.aircraft import NO_TAIL, AircraftDay, TailFilter, aircraft_days
from flights.delays import (
    CANCELLED,
    AirportHour,
    Cancellation,
    CancelledFilter,
    CarrierDay,
    Departure,
    airport_hours,
    carrier_days,
)
from flights.flight import MALFORMED, Flight, Malformed, malformed
from flights.storms import AroundStorm, around_storms, storms
from flights.weather import DOUBTFUL, Doubtful, DoubtfulFilter, Observation
from flights.wind import AirportInWind, FlightInWeather, by_wind, in_weather

#: Bound of the disorder of all flights, which is 21 hours and 40 minutes (tests/examples/flights/test_year.py). It is
#: longer, so no flight is late, and no session closes 1 ms before a flight that belongs to it.
LONGEST_DELAY: Final = timedelta(days=1)

#: There are ten flights for each observation. The faster source waits, so joins do not buffer the whole year.
ALIGNMENT: Final = af.watermarks.Alignment("replay", max_drift=timedelta(days=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """Sinks of all results."""

    hourly: af.Sink[AirportHour]
    daily: af.Sink[CarrierDay]
    late_hourly: af.Sink[Departure]
    """Departures that were late for their hour."""
    late_daily: af.Sink[Departure]
    """Departures that were late for their day."""
    cancelled: af.Sink[Cancellation]
    in_weather: af.Sink[FlightInWeather]
    by_wind: af.Sink[AirportInWind]
    aircraft_days: af.Sink[AircraftDay]
    around_storms: af.Sink[AroundStorm]
    no_tail: af.Sink[Flight]
    """Flights without a tail number, which belong to no aircraft."""
    doubtful: af.Sink[Doubtful]
    """Impossible measurements of the weather."""
    malformed: af.Sink[Malformed]


def build(
    flights: af.Source[Flight],
    weather: af.Source[Observation],
    sinks: Sinks,
    *,
    max_delay: timedelta,
) -> af.Flow:
    """Build the flow. Sources with ``dead_letters=MALFORMED`` fill the malformed stream.

    ``flights`` are in the order of departure, ``weather`` is in the order of time in each split. One subtask writes
    each sink, whatever the parallelism, so each file stays one file.
    """
    flow = af.Flow("flights-of-2013")
    rows = flow.source(flights, name="flights", parallelism=1)
    hours = flow.source(weather, name="weather")
    _add_delays(rows, sinks, max_delay)
    _add_weather(rows, hours, sinks)
    bad = rows.side(MALFORMED).union(hours.side(MALFORMED)).map(malformed)
    bad.rebalance(1).to(sinks.malformed, name="malformed")
    return flow


def _add_delays(rows: af.Stream[Flight], sinks: Sinks, max_delay: timedelta) -> None:
    departures = rows.event_time(
        lambda flight: flight.scheduled, max_delay=max_delay, name="scheduled departure"
    ).process(CancelledFilter(), name="departed")
    hours, late_hours = airport_hours(departures)
    days, late_days = carrier_days(departures)
    hours.rebalance(1).to(sinks.hourly, name="hourly")
    late_hours.rebalance(1).to(sinks.late_hourly, name="late hourly")
    days.rebalance(1).to(sinks.daily, name="daily")
    late_days.rebalance(1).to(sinks.late_daily, name="late daily")
    departures.side(CANCELLED).to(sinks.cancelled, name="cancelled")


def _add_weather(rows: af.Stream[Flight], hours: af.Stream[Observation], sinks: Sinks) -> None:
    flights = rows.event_time(
        lambda flight: flight.scheduled,
        max_delay=LONGEST_DELAY,
        align=ALIGNMENT,
        name="every flight",
    )
    weather = hours.event_time(
        lambda hour: hour.time_hour, max_delay=timedelta(0), align=ALIGNMENT, name="hours in order"
    ).process(DoubtfulFilter(), name="plausible")
    flights_by_airport = flights.key_by(lambda flight: flight.origin)
    weather_by_airport = weather.key_by(lambda hour: hour.origin)
    joined = in_weather(flights_by_airport, weather_by_airport)
    around = around_storms(storms(weather_by_airport), flights_by_airport)
    with_tail = flights.process(TailFilter(), name="known aircraft")
    joined.rebalance(1).to(sinks.in_weather, name="in weather")
    by_wind(joined).rebalance(1).to(sinks.by_wind, name="by wind and airport")
    aircraft_days(with_tail).rebalance(1).to(sinks.aircraft_days, name="days of aircraft")
    around.rebalance(1).to(sinks.around_storms, name="around")
    with_tail.side(NO_TAIL).to(sinks.no_tail, name="no tail number")
    weather.side(DOUBTFUL).rebalance(1).to(sinks.doubtful, name="doubtful")
