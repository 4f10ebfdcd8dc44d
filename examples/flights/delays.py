"""Delays by airport and hour, and by carrier and day: two windows over one stream.

Both wait ``max_delay`` for late departures. A flight that leaves after its window has closed is *late*:
it is in no window, but in a stream of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

import aflow as af
from flights.flight import Flight, to_datetime

#: Beginning of a day in New York's standard time, after midnight in UTC. In summer these days begin at 1 a.m. local
#: time. No flight is scheduled between midnight and 1 a.m., so each flight is in its calendar day.
MIDNIGHT: Final = timedelta(hours=5)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A cancelled flight."""

    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime


@dataclass(
    slots=True
)  # not frozen: construction takes a quarter of the time, and there are 300,000
class Departure:
    """A flight that left ``delay`` minutes after its scheduled time, or before it if negative."""

    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime
    delay: int


@dataclass(frozen=True, slots=True)
class Delays:
    """Number of flights, and their mean and longest delay in minutes."""

    flights: int
    mean: float
    longest: int


@dataclass(frozen=True, slots=True)
class AirportHour:
    """Delays of the flights scheduled to leave ``airport`` in the hour that begins at ``hour``."""

    airport: str
    hour: datetime
    delays: Delays


@dataclass(frozen=True, slots=True)
class CarrierDay:
    """Delays of the flights of ``carrier`` scheduled to leave New York on ``day``."""

    carrier: str
    day: date
    delays: Delays


CANCELLED: Final = af.Tag[Cancellation]("cancelled")


def airport_hours(
    departures: af.Stream[Departure],
) -> tuple[af.Stream[AirportHour], af.Stream[Departure]]:
    """Return the delays by airport and hour, and the departures that were late for their hour."""
    hours = (
        departures.key_by(lambda departure: departure.origin)
        .window(af.Tumbling(timedelta(hours=1)))
        .aggregate(DelayAggregate(), of=DelaySums, name="airport hours")
    )
    return hours.map(airport_hour), hours.late


def carrier_days(
    departures: af.Stream[Departure],
) -> tuple[af.Stream[CarrierDay], af.Stream[Departure]]:
    """Return the delays by carrier and day, and the departures that were late for their day."""
    days = (
        departures.key_by(lambda departure: departure.carrier)
        .window(af.Tumbling(timedelta(days=1), offset=MIDNIGHT))
        .aggregate(DelayAggregate(), of=DelaySums, name="carrier days")
    )
    return days.map(carrier_day), days.late


class CancelledFilter(af.ProcessFunction[Flight, Departure]):
    """Emit departures; send cancelled flights to ``CANCELLED``."""

    def process(self, value: Flight, ctx: af.ProcessContext) -> Iterable[Departure] | None:
        """Emit at most one departure."""
        fields = (value.carrier, value.flight, value.origin, value.dest, value.scheduled)
        if value.dep_delay is None:
            ctx.side(CANCELLED, Cancellation(*fields))
            return None
        return (Departure(*fields, value.dep_delay),)


@dataclass(slots=True)
class DelaySums:
    """Accumulator of ``DelayAggregate``, in minutes."""

    flights: int = 0
    minutes: int = 0
    longest: int = -24 * 60
    """No flight leaves a day early."""


class DelayAggregate(af.Aggregate[Departure, DelaySums, Delays]):
    """Number, mean and maximum of the delays."""

    def create(self) -> DelaySums:
        """Return the sums of no flight."""
        return DelaySums()

    def add(self, acc: DelaySums, value: Departure) -> DelaySums:
        """Add one flight."""
        acc.flights += 1
        acc.minutes += value.delay
        if value.delay > acc.longest:
            acc.longest = value.delay
        return acc

    def merge(self, a: DelaySums, b: DelaySums) -> DelaySums:
        """Return the sum of both."""
        return DelaySums(a.flights + b.flights, a.minutes + b.minutes, max(a.longest, b.longest))

    def result(self, acc: DelaySums) -> Delays:
        """Return the delays; a window has at least one flight."""
        return Delays(acc.flights, acc.minutes / acc.flights, acc.longest)


def airport_hour(result: af.Windowed[str, Delays]) -> AirportHour:
    """Return the result of a window with the beginning of its hour."""
    return AirportHour(result.key, to_datetime(result.window.start), result.value)


def carrier_day(result: af.Windowed[str, Delays]) -> CarrierDay:
    """Return the result of a window with its day in New York."""
    start = to_datetime(result.window.start)
    return CarrierDay(result.key, (start - MIDNIGHT).date(), result.value)
