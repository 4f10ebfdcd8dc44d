"""How late do flights leave before a storm, and how late after it has begun? Keyed state, and an interval join.

An hour is *stormy* when gusts reach gale force or rain is heavy. A *storm* begins at an airport with a stormy hour that
has no other one in the six hours before it, and it is compared: the flights that were to leave in the six hours before
that hour began with those of the six hours from then on. Hours without an observation count as calm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aflow as af
from aflow.cli.demo.flights import Flight
from aflow.cli.demo.punctuality import Punctuality, punctuality
from aflow.cli.demo.weather import Observation

#: Miles per hour: Beaufort 8, which is 34 knots.
GALE: Final = 39.0

#: Inches an hour: what the glossary of the American Meteorological Society calls heavy begins above it.
HEAVY_RAIN: Final = 0.3

#: A stormy hour that begins at most so long after the one before belongs to the same storm.
LULL: Final = timedelta(hours=6)

#: How long before and after its beginning flights are compared.
COMPARED: Final = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm as it begins."""

    airport: str
    began: datetime
    gust: float | None
    """Miles per hour, and …"""
    rain: float
    """… inches in its first hour."""


@dataclass(frozen=True, slots=True)
class NearStorm:
    """A flight that was to leave around the beginning of ``storm``."""

    storm: Storm
    after: bool
    """True if it was to leave when the storm had begun, or at that moment."""
    delay: int | None
    """Minutes; None if it was cancelled."""


@dataclass(frozen=True, slots=True)
class AroundStorm:
    """How punctual the flights of a storm's airport were before and after it began."""

    storm: Storm
    before: Punctuality
    after: Punctuality


def stormy(weather: Observation) -> bool:
    """True for an hour of a storm."""
    gust = weather.wind_gust
    return (gust is not None and gust >= GALE) or weather.precip > HEAVY_RAIN


class StormBegins(af.KeyedProcess[str, Observation, Storm]):
    """Tells that a storm begins, at once: from the observations of an airport in the order of time."""

    latest = af.ValueState("latest stormy hour", of=datetime)

    def process(self, value: Observation, ctx: af.Context[str]) -> Iterable[Storm] | None:
        """One storm, or none."""
        if not stormy(value):
            return None
        state = ctx.state(self.latest)
        before = state.get()
        state.set(value.time_hour)
        if before is not None and value.time_hour - before <= LULL:
            return None
        return (Storm(value.origin, value.time_hour, value.wind_gust, value.precip),)


def storms(weather: af.KeyedStream[str, Observation]) -> af.Stream[Storm]:
    """The beginnings of all storms, from the weather by airport."""
    return weather.process(StormBegins(), name="storms")


def around_storms(
    storms: af.Stream[Storm], flights: af.KeyedStream[str, Flight]
) -> af.Stream[AroundStorm]:
    """What each storm did to the flights of its airport, whose event time is the scheduled departure.

    Pairs have the time of the later one: the storm's for a flight before, the flight's for one after. So all pairs of
    a storm are less than ``COMPARED`` apart, and a session with that gap holds them together without knowing where they
    begin. A storm around which no flight was to leave is not in the result.
    """
    near = (
        storms.key_by(lambda storm: storm.airport)
        .interval_join(
            flights, between=(-COMPARED, COMPARED), upper_inclusive=False, of=Storm, other_of=Flight
        )
        .inner(_near, name="flights near storms")
    )
    return (
        near.key_by(lambda pair: pair.storm, of=Storm)
        .window(af.Session(COMPARED))
        .apply(_compare, of=NearStorm, name="around storms")
        .map(lambda result: result.value)
    )


def _near(storm: Storm, flight: Flight) -> NearStorm:
    return NearStorm(storm, flight.scheduled >= storm.began, flight.dep_delay)


def _compare(near: list[NearStorm]) -> AroundStorm:
    return AroundStorm(
        near[0].storm,
        before=punctuality(pair for pair in near if not pair.after),
        after=punctuality(pair for pair in near if pair.after),
    )
