"""For how long does an aircraft keep coming back to New York? A session of departures for each tail number.

With a pause of so many hours, an aircraft that leaves New York every day or night goes on in one session for weeks: at
any moment hundreds of them are open.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aflow as af
from aflow.cli.demo.flights import Flight, moment

#: The longest pause between two departures of a stretch.
PAUSE: Final = timedelta(hours=36)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The departures that one aircraft was to make from ``first`` to ``last`` without a pause longer than ``PAUSE``."""

    tail: str
    first: datetime
    last: datetime
    legs: int
    cancelled: int
    delay: int
    """Minutes, of all legs that were flown together."""


@dataclass(slots=True)
class Legs:
    """What has been seen of a stretch."""

    planned: int = 0
    cancelled: int = 0
    delay: int = 0

    def add(self, flight: Flight) -> Legs:
        """One leg more."""
        self.planned += 1
        if flight.dep_delay is None:
            self.cancelled += 1
        else:
            self.delay += flight.dep_delay
        return self

    def merge(self, other: Legs) -> Legs:
        """The legs of both: a flight that comes in late may turn two stretches into one."""
        return Legs(
            self.planned + other.planned,
            self.cancelled + other.cancelled,
            self.delay + other.delay,
        )


def stretches(flights: af.Stream[Flight]) -> af.Stream[Stretch]:
    """The stretches of all aircraft; all flights have a tail number."""
    return (
        flights.key_by(lambda flight: flight.tailnum or "")
        .window(af.Session(PAUSE))
        .fold(Legs, Legs.add, merge=Legs.merge, of=Legs, name="stretches of aircraft")
        .map(_stretch)
    )


def _stretch(result: af.Windowed[str, Legs]) -> Stretch:
    legs = result.value
    return Stretch(
        result.key,
        moment(result.window.start),
        moment(result.window.end) - PAUSE,
        legs.planned,
        legs.cancelled,
        legs.delay,
    )
