"""Delays by airport and hour, and the worst hour of each day: a window over the results of another window.

All sums are in whole minutes, so they do not depend on the order of addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import aflow as af
from flights.delays import MIDNIGHT, Departure
from flights.flight import to_datetime


@dataclass(frozen=True, slots=True)
class Hour:
    """Flights scheduled to leave ``airport`` in the hour that begins at ``hour``; delays in minutes."""

    airport: str
    hour: datetime
    flights: int
    minutes: int
    """Sum of all delays."""
    longest: int


@dataclass(slots=True)
class HourSums:
    """Accumulator of an hour."""

    flights: int = 0
    minutes: int = 0
    longest: int = -24 * 60
    """No flight leaves a day early."""

    def add(self, departure: Departure) -> HourSums:
        """Add one flight."""
        self.flights += 1
        self.minutes += departure.delay
        self.longest = max(self.longest, departure.delay)
        return self


def airport_hours(departures: af.Stream[Departure]) -> af.Stream[Hour]:
    """Return the hours of all airports, by scheduled departure."""
    return (
        departures.key_by(lambda departure: departure.origin)
        .window(af.Tumbling(timedelta(hours=1)))
        .fold(HourSums, HourSums.add, of=HourSums, name="airport hours")
        .map(_hour)
    )


def worst_hours(hours: af.Stream[Hour]) -> af.Stream[Hour]:
    """Return the hour with the largest sum of delays, by airport and day."""
    return (
        hours.key_by(lambda hour: hour.airport)
        .window(af.Tumbling(timedelta(days=1), offset=MIDNIGHT))
        .reduce(_worse, of=Hour, name="worst hours")
        .map(lambda result: result.value)
    )


def _hour(result: af.Windowed[str, HourSums]) -> Hour:
    sums = result.value
    start = to_datetime(result.window.start)
    return Hour(result.key, start, sums.flights, sums.minutes, sums.longest)


def _worse(one: Hour, other: Hour) -> Hour:
    """Return the worse hour, the earlier one of equals."""
    return min(one, other, key=lambda hour: (-hour.minutes, hour.hour))
