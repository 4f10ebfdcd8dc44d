"""Punctuality before and after the beginning of a storm: keyed state, and an interval join.

An hour is *stormy* if gusts reach gale force or rain is heavy. A *storm* begins at an airport with a stormy hour
without another one in the six hours before it. The flights scheduled for the six hours before that moment are
compared with those of the six hours after it. Hours without an observation count as calm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aflow as af
from flights.flight import Flight
from flights.punctuality import Punctuality, punctuality
from flights.weather import Observation

#: Miles per hour: Beaufort 8, 34 knots.
GALE: Final = 39.0

#: Inches in an hour: lower bound of heavy rain in the glossary of the American Meteorological Society.
HEAVY_RAIN: Final = 0.3

#: Longest time between the beginnings of two stormy hours of one storm.
LULL: Final = timedelta(hours=6)

#: Length of the compared intervals before and after the beginning of a storm.
COMPARED: Final = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class Storm:
    """Beginning of a storm."""

    airport: str
    began: datetime
    gust: float | None
    """Miles per hour in the first hour."""
    rain: float
    """Inches in the first hour."""


@dataclass(frozen=True, slots=True)
class NearStorm:
    """A flight scheduled near the beginning of ``storm``."""

    storm: Storm
    after: bool
    """True if scheduled at or after the beginning."""
    delay: int | None
    """Minutes; None if cancelled."""


@dataclass(frozen=True, slots=True)
class AroundStorm:
    """Punctuality at the airport of a storm before and after its beginning."""

    storm: Storm
    before: Punctuality
    after: Punctuality


def stormy(weather: Observation) -> bool:
    """Return True if the hour belongs to a storm."""
    gust = weather.wind_gust
    return (gust is not None and gust >= GALE) or weather.precip > HEAVY_RAIN


class StormDetector(af.KeyedProcess[str, Observation, Storm]):
    """Emit a storm as it begins, from the observations of an airport in the order of time."""

    latest = af.ValueState("latest stormy hour", of=datetime)

    def process(self, value: Observation, ctx: af.Context[str]) -> Iterable[Storm] | None:
        """Emit at most one storm."""
        if not stormy(value):
            return None
        state = ctx.state(self.latest)
        before = state.get()
        state.set(value.time_hour)
        if before is not None and value.time_hour - before <= LULL:
            return None
        return (Storm(value.origin, value.time_hour, value.wind_gust, value.precip),)


def storms(weather: af.KeyedStream[str, Observation]) -> af.Stream[Storm]:
    """Return all storms, from the weather by airport."""
    return weather.process(StormDetector(), name="storms")


def around_storms(
    storms: af.Stream[Storm], flights: af.KeyedStream[str, Flight]
) -> af.Stream[AroundStorm]:
    """Return the punctuality around each storm. Event time of ``flights`` is the scheduled departure.

    A joined pair has the later of both timestamps: that of the storm for a flight before it, that of the flight for
    one after it. All pairs of a storm are therefore less than ``COMPARED`` apart, and a session with this gap
    collects them. A storm without flights nearby has no result.
    """
    near = (
        storms.key_by(lambda storm: storm.airport)
        .interval_join(
            flights, between=(-COMPARED, COMPARED), upper_inclusive=False, of=Storm, other_of=Flight
        )
        .inner(_near_storm, name="flights near storms")
    )
    return (
        near.key_by(lambda pair: pair.storm, of=Storm)
        .window(af.Session(COMPARED))
        .apply(_compare, of=NearStorm, name="around storms")
        .map(lambda result: result.value)
    )


def _near_storm(storm: Storm, flight: Flight) -> NearStorm:
    return NearStorm(storm, flight.scheduled >= storm.began, flight.dep_delay)


def _compare(near: list[NearStorm]) -> AroundStorm:
    return AroundStorm(
        near[0].storm,
        before=punctuality(pair for pair in near if not pair.after),
        after=punctuality(pair for pair in near if pair.after),
    )
