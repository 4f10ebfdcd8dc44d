"""How late do flights leave in the hours before a storm, and after it has begun? A join of two streams in time.

Storms are those of ``aflow demo``; they are joined with the hours of their airport, the windows of another branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import aflow as af
from aflow.cli.demo.history.hours import Hour
from aflow.cli.demo.storms import COMPARED, Storm


@dataclass(frozen=True, slots=True)
class Near:
    """An hour around the beginning of ``storm``."""

    storm: Storm
    hour: Hour


@dataclass(frozen=True, slots=True)
class AroundStorm:
    """The flights that left ``airport`` in the six hours before a storm and from ``began`` on; delays in minutes."""

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
    """What has been seen of a storm."""

    flights_before: int = 0
    minutes_before: int = 0
    flights_after: int = 0
    minutes_after: int = 0

    def add(self, near: Near) -> Sides:
        """One hour more."""
        if near.hour.hour < near.storm.began:
            self.flights_before += near.hour.flights
            self.minutes_before += near.hour.minutes
        else:
            self.flights_after += near.hour.flights
            self.minutes_after += near.hour.minutes
        return self

    def merge(self, other: Sides) -> Sides:
        """The hours of both."""
        return Sides(
            self.flights_before + other.flights_before,
            self.minutes_before + other.minutes_before,
            self.flights_after + other.flights_after,
            self.minutes_after + other.minutes_after,
        )


def around_storms(storms: af.Stream[Storm], hours: af.Stream[Hour]) -> af.Stream[AroundStorm]:
    """What each storm did to the flights of its airport; storms without any flight in their hours are not there.

    An hour has the time of its last ms, so twelve of them are less than ``COMPARED`` away: six end before the storm.
    A pair has the time of the later one, so a session with that gap holds all pairs of a storm.
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
