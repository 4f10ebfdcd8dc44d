"""Delays in the hours before and after the beginning of a storm: an interval join of two streams.

The storms are those of the replay. They are joined with the hours of their airport, which are windows of another
branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import aflow as af
from flights.backfill.hours import Hour
from flights.storms import COMPARED, Storm


@dataclass(frozen=True, slots=True)
class Near:
    """An hour near the beginning of ``storm``."""

    storm: Storm
    hour: Hour


@dataclass(frozen=True, slots=True)
class AroundStorm:
    """Flights that left ``airport`` in the six hours before and after ``began``; delays in minutes."""

    airport: str
    began: datetime
    gust: float | None
    rain: float
    flights_before: int
    minutes_before: int
    flights_after: int
    minutes_after: int


@dataclass(slots=True)
class Sides:
    """Accumulator of a storm."""

    flights_before: int = 0
    minutes_before: int = 0
    flights_after: int = 0
    minutes_after: int = 0

    def add(self, near: Near) -> Sides:
        """Add one hour."""
        if near.hour.hour < near.storm.began:
            self.flights_before += near.hour.flights
            self.minutes_before += near.hour.minutes
        else:
            self.flights_after += near.hour.flights
            self.minutes_after += near.hour.minutes
        return self

    def merge(self, other: Sides) -> Sides:
        """Return the sum of both."""
        return Sides(
            self.flights_before + other.flights_before,
            self.minutes_before + other.minutes_before,
            self.flights_after + other.flights_after,
            self.minutes_after + other.minutes_after,
        )


def around_storms(storms: af.Stream[Storm], hours: af.Stream[Hour]) -> af.Stream[AroundStorm]:
    """Return the delays around each storm. A storm without flights in its hours has no result.

    The timestamp of an hour is its last millisecond, so twelve hours are less than ``COMPARED`` away from a storm,
    and six of them end before it. A joined pair has the later of both timestamps, so a session with that gap collects
    all pairs of a storm.
    """
    return (
        storms.key_by(lambda storm: storm.airport)
        .interval_join(
            hours.key_by(lambda hour: hour.airport),
            between=(-COMPARED, COMPARED),
            upper_inclusive=False,
            of=Storm,
            other_of=Hour,
        )
        .inner(Near, name="hours near storms")
        .key_by(lambda near: near.storm, of=Storm)
        .window(af.Session(COMPARED))
        .fold(Sides, Sides.add, merge=Sides.merge, of=Sides, name="around storms")
        .map(_around_storm)
    )


def _around_storm(result: af.Windowed[Storm, Sides]) -> AroundStorm:
    storm, sides = result.key, result.value
    return AroundStorm(
        storm.airport,
        storm.began,
        storm.gust,
        storm.rain,
        sides.flights_before,
        sides.minutes_before,
        sides.flights_after,
        sides.minutes_after,
    )
