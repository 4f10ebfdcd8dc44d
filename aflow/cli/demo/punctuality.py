"""How punctual some flights were, cancelled ones included: an aggregate that several parts of the pipeline use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import aflow as af


class Planned(Protocol):
    """A flight, or something that was made of one."""

    @property
    def delay(self) -> int | None:
        """Minutes; None if it was cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Punctuality:
    """Of ``flights`` planned flights, ``cancelled`` never left; the others left ``mean`` minutes late on average."""

    flights: int
    cancelled: int
    mean: float | None
    """None if none of them left."""


@dataclass(slots=True)
class Planning:
    """What has been seen."""

    flights: int = 0
    cancelled: int = 0
    minutes: int = 0
    """The delays of those that left, added up."""


class Punctualities(af.Aggregate[Planned, Planning, Punctuality]):
    """Number of flights, of cancelled ones, and the mean delay of the others."""

    def create(self) -> Planning:
        """No flight yet."""
        return Planning()

    def add(self, acc: Planning, value: Planned) -> Planning:
        """One flight more."""
        acc.flights += 1
        if value.delay is None:
            acc.cancelled += 1
        else:
            acc.minutes += value.delay
        return acc

    def merge(self, a: Planning, b: Planning) -> Planning:
        """The flights of both."""
        return Planning(a.flights + b.flights, a.cancelled + b.cancelled, a.minutes + b.minutes)

    def result(self, acc: Planning) -> Punctuality:
        """What it comes to."""
        left = acc.flights - acc.cancelled
        return Punctuality(acc.flights, acc.cancelled, acc.minutes / left if left else None)


def punctuality(flights: Iterable[Planned]) -> Punctuality:
    """How punctual ``flights`` were, all at once."""
    aggregate = Punctualities()
    return aggregate.result(reduce(aggregate.add, flights, aggregate.create()))


def together(parts: Iterable[Punctuality]) -> Punctuality:
    """How punctual the flights of all ``parts`` were, up to rounding."""
    flights = cancelled = 0
    minutes = 0.0
    for part in parts:
        flights += part.flights
        cancelled += part.cancelled
        minutes += (part.mean or 0.0) * (part.flights - part.cancelled)
    left = flights - cancelled
    return Punctuality(flights, cancelled, minutes / left if left else None)
