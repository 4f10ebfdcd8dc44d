"""A pipeline for all of time: what runs over history on Spark is what runs live, built by one function.

Flights come in when they really leave, and their event time is the scheduled departure: live, the stream is out of
order, and one waits for every flight (``AWAITED``), since in a history none is late. There are eight steps that read by
key, and between them most of what a flow can have: windows behind windows, sessions, state and timers, calls that are
awaited, and a join.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import aflow as af
from aflow.cli.demo.aircraft import LeaveOutUnknown
from aflow.cli.demo.delays import LeaveOutCancelled
from aflow.cli.demo.flights import Flight
from aflow.cli.demo.history.around_storms import AroundStorm, around_storms
from aflow.cli.demo.history.hours import Hour, airport_hours
from aflow.cli.demo.history.hours import worst_hours as worst_of
from aflow.cli.demo.history.silence import Grounded, Silent, grounded_aircraft, silent_aircraft
from aflow.cli.demo.history.stretches import Stretch
from aflow.cli.demo.history.stretches import stretches as stretches_of
from aflow.cli.demo.pipeline import AWAITED, TOGETHER
from aflow.cli.demo.storms import Storm
from aflow.cli.demo.storms import storms as storms_in
from aflow.cli.demo.weather import LeaveOutDoubtful, Observation


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
    """The pipeline, as a function of its ends, each called as its step is; ``planes`` is the table of the registry."""
    flow = af.Flow("flights-over-history")
    every = flow.source(flights, name="flights", parallelism=1).event_time(
        lambda flight: flight.scheduled, max_delay=AWAITED, align=TOGETHER, name="every flight"
    )
    by_hour = airport_hours(every.process(LeaveOutCancelled(), name="departed"))
    by_hour.rebalance(1).to(hours, name="hours")
    worst_of(by_hour).rebalance(1).to(worst_hours, name="worst_hours")

    known = every.process(LeaveOutUnknown(), name="known aircraft")
    stretches_of(known).rebalance(1).to(stretches, name="stretches")
    away = silent_aircraft(known, planes)
    away.rebalance(1).to(silent, name="silent")
    grounded_aircraft(away).rebalance(1).to(grounded, name="grounded")

    found = _storms(flow.source(weather, name="weather"))
    around_storms(found, by_hour).rebalance(1).to(around, name="around")
    return flow


def _storms(weather: af.Stream[Observation]) -> af.Stream[Storm]:
    in_order = weather.event_time(
        lambda hour: hour.time_hour, max_delay=timedelta(0), align=TOGETHER, name="hours in order"
    )
    plausible = in_order.process(LeaveOutDoubtful(), name="plausible")
    return storms_in(plausible.key_by(lambda hour: hour.origin))
