"""Punctuality of a set of flights, cancelled ones included: an aggregate that several parts of the pipeline use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import aflow as af


class Planned(Protocol):
    """A flight, or a record derived from one."""

    @property
    def delay(self) -> int | None:
        """Minutes; None if cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Punctuality:
    """Number of planned flights, number of cancelled ones, and the mean delay of the others."""

    flights: int
    cancelled: int
    mean: float | None
    """Minutes; None if all were cancelled."""


@dataclass(slots=True)
class PunctualitySums:
    """Accumulator of ``PunctualityAggregate``."""

    flights: int = 0
    cancelled: int = 0
    minutes: int = 0
    """Sum of the delays of the flights that left."""


class PunctualityAggregate(af.Aggregate[Planned, PunctualitySums, Punctuality]):
    """Number of flights, of cancelled ones, and the mean delay of the others."""

    def create(self) -> PunctualitySums:
        """Return the sums of no flight."""
        return PunctualitySums()

    def add(self, acc: PunctualitySums, value: Planned) -> PunctualitySums:
        """Add one flight."""
        acc.flights += 1
        if value.delay is None:
            acc.cancelled += 1
        else:
            acc.minutes += value.delay
        return acc

    def merge(self, a: PunctualitySums, b: PunctualitySums) -> PunctualitySums:
        """Return the sum of both."""
        return PunctualitySums(
            a.flights + b.flights, a.cancelled + b.cancelled, a.minutes + b.minutes
        )

    def result(self, acc: PunctualitySums) -> Punctuality:
        """Return the punctuality."""
        departed = acc.flights - acc.cancelled
        return Punctuality(acc.flights, acc.cancelled, acc.minutes / departed if departed else None)


def punctuality(flights: Iterable[Planned]) -> Punctuality:
    """Return the punctuality of ``flights``."""
    aggregate = PunctualityAggregate()
    return aggregate.result(reduce(aggregate.add, flights, aggregate.create()))


def combined(parts: Iterable[Punctuality]) -> Punctuality:
    """Return the punctuality of the flights of all ``parts``, up to rounding."""
    flights = cancelled = 0
    minutes = 0.0
    for part in parts:
        flights += part.flights
        cancelled += part.cancelled
        minutes += (part.mean or 0.0) * (part.flights - part.cancelled)
    departed = flights - cancelled
    return Punctuality(flights, cancelled, minutes / departed if departed else None)
