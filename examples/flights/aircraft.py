"""Days of aircraft: a session of departures for each tail number.

A working day has no fixed bounds: some begin at five in the morning, some at noon, and some end after midnight. But
aircraft rest at night: departures at most six hours apart are one day, and a longer gap ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import aflow as af
from flights.flight import Flight, to_datetime

#: Longest gap between two departures of a day, inclusive.
GAP: Final = timedelta(hours=6)


@dataclass(
    slots=True
)  # not frozen: construction takes a quarter of the time, and there are 300,000
class AircraftDay:
    """Departures from New York scheduled for one aircraft without a gap longer than ``GAP``."""

    tail: str
    legs: int
    cancelled: int
    """Number of cancelled legs."""
    airports: tuple[str, ...]
    """Origins in alphabetical order."""
    first: datetime
    last: datetime
    """Scheduled departures of the first and the last leg."""
    delay: int
    """Sum of the delays of all legs that were flown, in minutes."""


@dataclass(slots=True)
class Legs:
    """Accumulator of a day."""

    planned: int = 0
    cancelled: int = 0
    delay: int = 0
    airports: set[str] = field(default_factory=set[str])

    def add(self, flight: Flight) -> Legs:
        """Add one leg."""
        self.planned += 1
        if flight.dep_delay is None:
            self.cancelled += 1
        else:
            self.delay += flight.dep_delay
        self.airports.add(flight.origin)
        return self

    def merge(self, other: Legs) -> Legs:
        """Return the sum of both: a delayed flight may merge two days."""
        return Legs(
            self.planned + other.planned,
            self.cancelled + other.cancelled,
            self.delay + other.delay,
            self.airports | other.airports,
        )


NO_TAIL: Final = af.Tag[Flight]("no tail number")


class TailFilter(af.ProcessFunction[Flight, Flight]):
    """Emit flights with a tail number; send the others to ``NO_TAIL``: they would be counted as one aircraft."""

    def process(self, value: Flight, ctx: af.ProcessContext) -> Iterable[Flight] | None:
        """Emit at most one flight."""
        if value.tailnum is not None:
            return (value,)
        ctx.side(NO_TAIL, value)
        return None


def aircraft_days(flights: af.Stream[Flight]) -> af.Stream[AircraftDay]:
    """Return the days of all aircraft. Event time is the scheduled departure, and each flight has a tail number.

    A session ends ``GAP`` after its last departure, and a departure at that very moment still belongs to it. The
    session closes when the watermark is 1 ms before that end, so no flight may have exactly the maximum delay; see
    ``pipeline.LONGEST_DELAY``.
    """
    return (
        flights.key_by(lambda flight: flight.tailnum or "")
        .window(af.Session(GAP))
        .fold(Legs, Legs.add, merge=Legs.merge, of=Legs, name="aircraft days")
        .map(aircraft_day)
    )


def aircraft_day(result: af.Windowed[str, Legs]) -> AircraftDay:
    """Return the day of a session, which starts with the first departure and ends ``GAP`` after the last one."""
    legs = result.value
    return AircraftDay(
        result.key,
        legs.planned,
        legs.cancelled,
        tuple(sorted(legs.airports)),
        first=to_datetime(result.window.start),
        last=to_datetime(result.window.end) - GAP,
        delay=legs.delay,
    )
