"""How late do flights leave New York, hour by hour and carrier by carrier? The pipeline of ``aflow demo``.

Event time is the scheduled departure, and flights come in when they really leave. So the stream is out of order by as
much as flights are delayed, and one that leaves when its hour is closed (``max_delay``) is *late*: it is in no window,
but in a stream of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta

import aflow as af

#: When a day begins in New York's standard time, after midnight in UTC. In summer these days begin and end at one in
#: the morning by the clocks there. No flight is scheduled between midnight and one, so each is in its calendar day.
MIDNIGHT: Final = timedelta(hours=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A row of the table of flights, as far as it is needed; what does not fit is malformed."""

    time_hour: Annotated[datetime, Meta(tz=True)]
    """Scheduled departure, cut to the hour."""
    minute: Annotated[int, Meta(ge=0, le=59)]
    dep_delay: int | None
    """Minutes between scheduled and actual departure, below zero if it left early; None for a cancelled flight."""
    carrier: Annotated[str, Meta(min_length=2)]
    flight: int
    origin: Annotated[str, Meta(min_length=3, max_length=3)]
    dest: Annotated[str, Meta(min_length=3, max_length=3)]

    @property
    def scheduled(self) -> datetime:
        """The scheduled departure to the minute."""
        return self.time_hour + timedelta(minutes=self.minute)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A flight that never left."""

    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime


@dataclass(frozen=True, slots=True)
class Departure:
    """A flight that left, ``delay`` minutes after its time (or before, if below zero)."""

    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime
    delay: int


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something in the input that is no flight."""

    place: str
    reason: str
    text: str


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


MALFORMED: Final = af.Tag[af.BadRecord]("malformed")
CANCELLED: Final = af.Tag[Cancellation]("cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Where the results go."""

    hourly: af.Sink[AirportHour]
    daily: af.Sink[CarrierDay]
    late_hourly: af.Sink[Departure]
    """Departures that came too late for their hour."""
    late_daily: af.Sink[Departure]
    """Departures that came too late for their day."""
    cancelled: af.Sink[Cancellation]
    malformed: af.Sink[Malformed]


def build(flights: af.Source[Flight], results: Results, *, max_delay: timedelta) -> af.Flow:
    """The pipeline, as a function of its ends. A source with ``dead_letters=MALFORMED`` fills the malformed stream.

    Whatever the parallelism, each sink is written by one subtask, so that a file stays one file.
    """
    flow = af.Flow("flights-of-2013")
    rows = flow.source(flights, name="flights", parallelism=1)
    departures = rows.event_time(
        lambda flight: flight.scheduled, max_delay=max_delay, name="scheduled departure"
    ).process(LeaveOutCancelled(), name="departed")
    hours = (
        departures.key_by(lambda departure: departure.origin)
        .window(af.Tumbling(timedelta(hours=1)))
        .aggregate(Statistics(), name="airport hours")
    )
    days = (
        departures.key_by(lambda departure: departure.carrier)
        .window(af.Tumbling(timedelta(days=1), offset=MIDNIGHT))
        .aggregate(Statistics(), name="carrier days")
    )
    hours.map(airport_hour).rebalance(1).to(results.hourly, name="hourly")
    hours.late.rebalance(1).to(results.late_hourly, name="late hourly")
    days.map(carrier_day).rebalance(1).to(results.daily, name="daily")
    days.late.rebalance(1).to(results.late_daily, name="late daily")
    departures.side(CANCELLED).to(results.cancelled, name="cancelled")
    rows.side(MALFORMED).map(malformed).to(results.malformed, name="malformed")
    return flow


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
    return AirportHour(result.key, _moment(result.window.start), result.value)


def carrier_day(result: af.Windowed[str, Delays]) -> CarrierDay:
    """The result of a window, with its day in New York."""
    return CarrierDay(result.key, (_moment(result.window.start) - MIDNIGHT).date(), result.value)


def malformed(record: af.BadRecord) -> Malformed:
    """A bad record, readable."""
    return Malformed(record.place, record.reason, record.raw.decode("utf-8", "backslashreplace"))


def _moment(timestamp: int) -> datetime:
    return datetime.fromtimestamp(timestamp / 1000, UTC)
