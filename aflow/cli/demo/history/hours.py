"""How late do flights leave an airport, hour by hour, and which hour of a day was the worst? One window behind another.

Everything is counted in whole minutes: sums of these are the same in whatever order they are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import aflow as af
from aflow.cli.demo.delays import MIDNIGHT, Departure
from aflow.cli.demo.flights import moment


@dataclass(frozen=True, slots=True)
class Hour:
    """The flights that left ``airport`` of those that were to leave in the hour from ``hour`` on; delays in minutes."""

    airport: str
    hour: datetime
    flights: int
    minutes: int
    """All delays together."""
    longest: int


@dataclass(slots=True)
class Tally:
    """What has been seen of an hour."""

    flights: int = 0
    minutes: int = 0
    longest: int = -24 * 60
    """Nobody leaves a day early."""

    def add(self, departure: Departure) -> Tally:
        """One flight more."""
        self.flights += 1
        self.minutes += departure.delay
        self.longest = max(self.longest, departure.delay)
        return self


def airport_hours(departures: af.Stream[Departure]) -> af.Stream[Hour]:
    """The hours of all airports, by scheduled departure."""
    return (
        departures.key_by(lambda departure: departure.origin)
        .window(af.Tumbling(timedelta(hours=1)))
        .fold(Tally, Tally.add, of=Tally, name="airport hours")
        .map(_hour)
    )


def worst_hours(hours: af.Stream[Hour]) -> af.Stream[Hour]:
    """Of each airport's day, the hour with the most minutes of delay."""
    return (
        hours.key_by(lambda hour: hour.airport)
        .window(af.Tumbling(timedelta(days=1), offset=MIDNIGHT))
        .reduce(_worse, of=Hour, name="worst hours")
        .map(lambda result: result.value)
    )


def _hour(result: af.Windowed[str, Tally]) -> Hour:
    tally = result.value
    return Hour(
        result.key, moment(result.window.start), tally.flights, tally.minutes, tally.longest
    )


def _worse(one: Hour, other: Hour) -> Hour:
    """Of equals the earlier one."""
    return min(one, other, key=lambda hour: (-hour.minutes, hour.hour))
