"""A pipeline over all of time: one function builds it for history on Spark and for the live job.

Event time is the scheduled departure, and flights arrive in the order of their actual departure. Live, the stream is
out of order, and the pipeline waits for every flight (``LONGEST_DELAY``), since history has no late flights. Its
eight keyed steps have most of the features of a flow: windows over windows, sessions, state and timers, async calls,
and a join.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import aflow as af
from flights.aircraft import TailFilter
from flights.backfill.hours import Hour, airport_hours
from flights.backfill.hours import worst_hours as worst_of
from flights.backfill.silence import Grounded, Silent, grounded_aircraft, silent_aircraft
from flights.backfill.storm_hours import AroundStorm, around_storms
from flights.backfill.stretches import Stretch
from flights.backfill.stretches import stretches as stretches_of
from flights.delays import CancelledFilter
from flights.flight import Flight
from flights.pipeline import ALIGNMENT, LONGEST_DELAY
from flights.storms import Storm
from flights.storms import storms as storms_in
from flights.weather import DoubtfulFilter, Observation


def build(
    flights: af.Source[Flight],
    weather: af.Source[Observation],
    hours: af.Sink[Hour],
    worst_hours: af.Sink[Hour],
    stretches: af.Sink[Stretch],
    silent: af.Sink[Silent],
    grounded: af.Sink[Grounded],
    around: af.Sink[AroundStorm],
    *,
    planes: Path,
) -> af.Flow:
    """Build the flow. Each source and sink has the name of its parameter; ``planes`` is the table of the registry."""
    flow = af.Flow("flights-over-history")
    every = flow.source(flights, name="flights", parallelism=1).event_time(
        lambda flight: flight.scheduled,
        max_delay=LONGEST_DELAY,
        align=ALIGNMENT,
        name="every flight",
    )
    by_hour = airport_hours(every.process(CancelledFilter(), name="departed"))
    by_hour.rebalance(1).to(hours, name="hours")
    worst_of(by_hour).rebalance(1).to(worst_hours, name="worst_hours")

    with_tail = every.process(TailFilter(), name="known aircraft")
    stretches_of(with_tail).rebalance(1).to(stretches, name="stretches")
    absent = silent_aircraft(with_tail, planes)
    absent.rebalance(1).to(silent, name="silent")
    grounded_aircraft(absent).rebalance(1).to(grounded, name="grounded")

    found = _storms(flow.source(weather, name="weather"))
    around_storms(found, by_hour).rebalance(1).to(around, name="around")
    return flow


def _storms(weather: af.Stream[Observation]) -> af.Stream[Storm]:
    in_order = weather.event_time(
        lambda hour: hour.time_hour, max_delay=timedelta(0), align=ALIGNMENT, name="hours in order"
    )
    plausible = in_order.process(DoubtfulFilter(), name="plausible")
    return storms_in(plausible.key_by(lambda hour: hour.origin))
