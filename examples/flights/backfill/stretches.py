"""Stretches of aircraft: a session of departures for each tail number, with a long gap.

An aircraft that leaves New York every day or night stays in one session for weeks, so hundreds of sessions are open at
any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aflow as af
from flights.flight import Flight, to_datetime

#: Longest gap between two departures of a stretch.
GAP: Final = timedelta(hours=36)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Departures scheduled for one aircraft from ``first`` to ``last`` without a gap longer than ``GAP``."""

    tail: str
    first: datetime
    last: datetime
    legs: int
    cancelled: int
    delay: int
    """Sum of the delays of all legs that were flown, in minutes."""


@dataclass(slots=True)
class Legs:
    """Accumulator of a stretch."""

    planned: int = 0
    cancelled: int = 0
    delay: int = 0

    def add(self, flight: Flight) -> Legs:
        """Add one leg."""
        self.planned += 1
        if flight.dep_delay is None:
            self.cancelled += 1
        else:
            self.delay += flight.dep_delay
        return self

    def merge(self, other: Legs) -> Legs:
        """Return the sum of both: a delayed flight may merge two stretches."""
        return Legs(
            self.planned + other.planned,
            self.cancelled + other.cancelled,
            self.delay + other.delay,
        )


def stretches(flights: af.Stream[Flight]) -> af.Stream[Stretch]:
    """Return the stretches of all aircraft; each flight has a tail number."""
    return (
        flights.key_by(lambda flight: flight.tailnum or "")
        .window(af.Session(GAP))
        .fold(Legs, Legs.add, merge=Legs.merge, of=Legs, name="stretches of aircraft")
        .map(_stretch)
    )


def _stretch(result: af.Windowed[str, Legs]) -> Stretch:
    legs = result.value
    return Stretch(
        result.key,
        to_datetime(result.window.start),
        to_datetime(result.window.end) - GAP,
        legs.planned,
        legs.cancelled,
        legs.delay,
    )
