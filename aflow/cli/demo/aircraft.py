"""What does an aircraft's day in New York look like? A session of departures for each tail number.

A day of work has no fixed limits: some begin at five in the morning, some at noon, and some end after midnight. But
aircraft rest at night: departures with at most six hours between them are one day, and a longer pause ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import aflow as af
from aflow.cli.demo.flights import Flight, moment

#: The longest pause in a day. One of exactly that length is a pause, and one of a minute more is a night.
PAUSE: Final = timedelta(hours=6)


@dataclass(slots=True)  # not frozen: to make one takes a quarter of the time, and these are 300,000
class AircraftDay:
    """The departures from New York that one aircraft was to make without a longer pause than ``PAUSE``."""

    tail: str
    legs: int
    cancelled: int
    """Legs that were not flown."""
    airports: tuple[str, ...]
    """Where it was to leave from, in alphabetical order."""
    first: datetime
    last: datetime
    """Scheduled departures of the first and of the last leg."""
    delay: int
    """Minutes, of all legs that were flown together."""


@dataclass(slots=True)
class Legs:
    """What has been seen of a day."""

    planned: int = 0
    cancelled: int = 0
    delay: int = 0
    airports: set[str] = field(default_factory=set[str])

    def add(self, flight: Flight) -> Legs:
        """One leg more."""
        self.planned += 1
        if flight.dep_delay is None:
            self.cancelled += 1
        else:
            self.delay += flight.dep_delay
        self.airports.add(flight.origin)
        return self

    def merge(self, other: Legs) -> Legs:
        """The legs of both: a flight that comes in late may turn two days into one."""
        return Legs(
            self.planned + other.planned,
            self.cancelled + other.cancelled,
            self.delay + other.delay,
            self.airports | other.airports,
        )


NO_TAIL: Final = af.Tag[Flight]("no tail number")


class LeaveOutUnknown(af.ProcessFunction[Flight, Flight]):
    """Sends flights without a tail number to ``NO_TAIL``, and the others on: they are not one huge aircraft."""

    def process(self, value: Flight, ctx: af.ProcessContext) -> Iterable[Flight] | None:
        """The flight, or none."""
        if value.tailnum is not None:
            return (value,)
        ctx.side(NO_TAIL, value)
        return None


def aircraft_days(flights: af.Stream[Flight]) -> af.Stream[AircraftDay]:
    """The days of all aircraft. Event time of ``flights`` is their scheduled departure, and all have a tail number.

    A session goes on until ``PAUSE`` after its last departure, and a leg at that very moment touches it; unless it is
    over, which it is when the watermark is a ms before its end. So no flight may come in as late as ``max_delay``
    allows, to the ms; see ``pipeline.AWAITED``.
    """
    return (
        flights.key_by(lambda flight: flight.tailnum or "")
        .window(af.Session(PAUSE))
        .fold(Legs, Legs.add, merge=Legs.merge, of=Legs, name="aircraft days")
        .map(aircraft_day)
    )


def aircraft_day(result: af.Windowed[str, Legs]) -> AircraftDay:
    """What a session comes to: it starts with the first departure, and ends ``PAUSE`` after the last one."""
    legs = result.value
    return AircraftDay(
        result.key,
        legs.planned,
        legs.cancelled,
        tuple(sorted(legs.airports)),
        first=moment(result.window.start),
        last=moment(result.window.end) - PAUSE,
        delay=legs.delay,
    )
