"""How late do flights leave, hour by hour at an airport, and day by day with a carrier? Two windows over one stream.

One waits for late departures as long as the user says, and no longer: a flight that leaves when its hour is closed is
*late*. It is in no window of that kind, but in a stream of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

import aflow as af
from aflow.cli.demo.flights import Flight, moment

#: When a day begins in New York's standard time, after midnight in UTC. In summer these days begin and end at one in
#: the morning by the clocks there. No flight is scheduled between midnight and one, so each is in its calendar day.
MIDNIGHT: Final = timedelta(hours=5)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A flight that never left."""

    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime


@dataclass(slots=True)  # not frozen: to make one takes a quarter of the time, and these are 300,000
class Departure:
    """A flight that left, ``delay`` minutes after its time (or before, if below zero)."""

    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime
    delay: int


@dataclass(frozen=True, slots=True)
class Delays:
    """Of some flights, in minutes."""

    flights: int
    mean: float
    longest: int


@dataclass(frozen=True, slots=True)
class AirportHour:
    """The delays of the flights that were to leave ``airport`` in the hour from ``hour`` on."""

    airport: str
    hour: datetime
    delays: Delays


@dataclass(frozen=True, slots=True)
class CarrierDay:
    """The delays of the flights of ``carrier`` that were to leave New York on ``day``."""

    carrier: str
    day: date
    delays: Delays


CANCELLED: Final = af.Tag[Cancellation]("cancelled")


def airport_hours(
    departures: af.Stream[Departure],
) -> tuple[af.Stream[AirportHour], af.Stream[Departure]]:
    """Delays by airport and hour, and what came too late for its hour."""
    hours = (
        departures.key_by(lambda departure: departure.origin)
        .window(af.Tumbling(timedelta(hours=1)))
        .aggregate(Statistics(), of=Tally, name="airport hours")
    )
    return hours.map(airport_hour), hours.late


def carrier_days(
    departures: af.Stream[Departure],
) -> tuple[af.Stream[CarrierDay], af.Stream[Departure]]:
    """Delays by carrier and day, and what came too late for its day."""
    days = (
        departures.key_by(lambda departure: departure.carrier)
        .window(af.Tumbling(timedelta(days=1), offset=MIDNIGHT))
        .aggregate(Statistics(), of=Tally, name="carrier days")
    )
    return days.map(carrier_day), days.late


class LeaveOutCancelled(af.ProcessFunction[Flight, Departure]):
    """Sends cancelled flights to ``CANCELLED``, and the others on as departures."""

    def process(self, value: Flight, ctx: af.ProcessContext) -> Iterable[Departure] | None:
        """One departure, or none."""
        what = (value.carrier, value.flight, value.origin, value.dest, value.scheduled)
        if value.dep_delay is None:
            ctx.side(CANCELLED, Cancellation(*what))
            return None
        return (Departure(*what, value.dep_delay),)


@dataclass(slots=True)
class Tally:
    """What has been seen of a window, in minutes."""

    flights: int = 0
    minutes: int = 0
    longest: int = -24 * 60
    """Nobody leaves a day early."""


class Statistics(af.Aggregate[Departure, Tally, Delays]):
    """Number, mean and maximum of the delays."""

    def create(self) -> Tally:
        """No flight yet."""
        return Tally()

    def add(self, acc: Tally, value: Departure) -> Tally:
        """One flight more."""
        acc.flights += 1
        acc.minutes += value.delay
        if value.delay > acc.longest:
            acc.longest = value.delay
        return acc

    def merge(self, a: Tally, b: Tally) -> Tally:
        """The flights of both."""
        return Tally(a.flights + b.flights, a.minutes + b.minutes, max(a.longest, b.longest))

    def result(self, acc: Tally) -> Delays:
        """What it comes to; a window has at least one flight."""
        return Delays(acc.flights, acc.minutes / acc.flights, acc.longest)


def airport_hour(result: af.Windowed[str, Delays]) -> AirportHour:
    """The result of a window, with the moment when it began."""
    return AirportHour(result.key, moment(result.window.start), result.value)


def carrier_day(result: af.Windowed[str, Delays]) -> CarrierDay:
    """The result of a window, with its day in New York."""
    return CarrierDay(result.key, (moment(result.window.start) - MIDNIGHT).date(), result.value)
