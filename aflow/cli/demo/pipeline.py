"""What happens when flights leave New York: the pipeline of ``aflow demo``, put together from one file an idea.

Event time is the scheduled departure, and flights come in when they really leave. So the stream is out of order by as
much as flights are delayed. There are two answers to that here, side by side. For hours and days (``delays``) one waits
as long as the user says, and some flights come too late. For the weather (``in_weather``), the days of aircraft
(``aircraft``) and storms (``storms``) one waits for every flight, and the results are later, but complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import aflow as af
from aflow.cli.demo.aircraft import NO_TAIL, AircraftDay, LeaveOutUnknown, aircraft_days
from aflow.cli.demo.delays import (
    CANCELLED,
    AirportHour,
    Cancellation,
    CarrierDay,
    Departure,
    LeaveOutCancelled,
    airport_hours,
    carrier_days,
)
from aflow.cli.demo.flights import MALFORMED, Flight, Malformed, malformed
from aflow.cli.demo.in_weather import AirportInWind, FlightInWeather, by_wind, in_weather
from aflow.cli.demo.storms import AroundStorm, around_storms, storms
from aflow.cli.demo.weather import DOUBTFUL, Doubtful, LeaveOutDoubtful, Observation

#: No flight comes in after one that was to leave more than 21 hours and 40 minutes later (the test of the year says
#: so). Longer than that: then nothing is late, and no session is over a ms before the flight that touches it comes in.
AWAITED: Final = timedelta(days=1)

#: There are ten rows about flights for one about the weather. The weather waits: joins need not keep the whole year.
TOGETHER: Final = af.Alignment("replay", max_drift=timedelta(days=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Where the results go."""

    hourly: af.Sink[AirportHour]
    daily: af.Sink[CarrierDay]
    late_hourly: af.Sink[Departure]
    """Departures that came too late for their hour."""
    late_daily: af.Sink[Departure]
    """Departures that came too late for their day."""
    cancelled: af.Sink[Cancellation]
    in_weather: af.Sink[FlightInWeather]
    by_wind: af.Sink[AirportInWind]
    aircraft_days: af.Sink[AircraftDay]
    around_storms: af.Sink[AroundStorm]
    no_tail: af.Sink[Flight]
    """Flights without a tail number, which are in no aircraft's day."""
    doubtful: af.Sink[Doubtful]
    """Measurements of the weather that cannot be."""
    malformed: af.Sink[Malformed]


def build(
    flights: af.Source[Flight],
    weather: af.Source[Observation],
    results: Results,
    *,
    max_delay: timedelta,
) -> af.Flow:
    """The pipeline, as a function of its ends. Sources with ``dead_letters=MALFORMED`` fill the malformed stream.

    ``flights`` come in the order in which they left, ``weather`` in the order of time in each split. Whatever the
    parallelism, each sink is written by one subtask, so that a file stays one file.
    """
    flow = af.Flow("flights-of-2013")
    rows = flow.source(flights, name="flights", parallelism=1)
    hours = flow.source(weather, name="weather")
    _delays(rows, results, max_delay)
    _weather(rows, hours, results)
    bad = rows.side(MALFORMED).union(hours.side(MALFORMED)).map(malformed)
    bad.rebalance(1).to(results.malformed, name="malformed")
    return flow


def _delays(rows: af.Stream[Flight], results: Results, max_delay: timedelta) -> None:
    departures = rows.event_time(
        lambda flight: flight.scheduled, max_delay=max_delay, name="scheduled departure"
    ).process(LeaveOutCancelled(), name="departed")
    hours, late_hours = airport_hours(departures)
    days, late_days = carrier_days(departures)
    hours.rebalance(1).to(results.hourly, name="hourly")
    late_hours.rebalance(1).to(results.late_hourly, name="late hourly")
    days.rebalance(1).to(results.daily, name="daily")
    late_days.rebalance(1).to(results.late_daily, name="late daily")
    departures.side(CANCELLED).to(results.cancelled, name="cancelled")


def _weather(rows: af.Stream[Flight], hours: af.Stream[Observation], results: Results) -> None:
    flights = rows.event_time(
        lambda flight: flight.scheduled, max_delay=AWAITED, align=TOGETHER, name="every flight"
    )
    weather = hours.event_time(
        lambda hour: hour.time_hour, max_delay=timedelta(0), align=TOGETHER, name="hours in order"
    ).process(LeaveOutDoubtful(), name="plausible")
    flights_there = flights.key_by(lambda flight: flight.origin)
    weather_there = weather.key_by(lambda hour: hour.origin)
    joined = in_weather(flights_there, weather_there)
    around = around_storms(storms(weather_there), flights_there)
    known = flights.process(LeaveOutUnknown(), name="known aircraft")
    joined.rebalance(1).to(results.in_weather, name="in weather")
    by_wind(joined).rebalance(1).to(results.by_wind, name="by wind and airport")
    aircraft_days(known).rebalance(1).to(results.aircraft_days, name="days of aircraft")
    around.rebalance(1).to(results.around_storms, name="around")
    known.side(NO_TAIL).to(results.no_tail, name="no tail number")
    weather.side(DOUBTFUL).rebalance(1).to(results.doubtful, name="doubtful")
