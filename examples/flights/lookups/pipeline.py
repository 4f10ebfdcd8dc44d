"""Pipeline of the lookups: one call for each flight, and a join that checks the answers.

An async step makes a call for each flight, in the order of departure: many at once, completed in any order, with
retries. Its output is still a stream in event time: results are emitted as they complete, but never after a later
watermark. The output is joined with the table of weather as of the departure, and each answer must equal the result
of that join (``wind``, the same rule).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aiohttp

import aflow as af
from flights.flight import MALFORMED, Flight, Malformed, malformed
from flights.lookups.client import BUSY, cause, look_up
from flights.pipeline import ALIGNMENT, LONGEST_DELAY
from flights.weather import DoubtfulFilter, Observation
from flights.wind import TOLERANCE, FlightInWeather, with_weather

#: Timeout of all attempts of one call. The service is never at its capacity for so long.
TIMEOUT: Final = timedelta(seconds=30)

#: Adapt the concurrency to the capacity of the service. Only rejections mean overload: failures and broken
#: connections do not depend on the load.
CAPACITY: Final = af.calls.Adaptive(on=lambda error: cause(error) == BUSY)

#: Observations are hourly, so all flights of one hour at one airport have one answer. Flights arrive at most a day
#: late, so the answers of some days are enough.
CACHE: Final = af.calls.Cache[Flight, Observation | None](
    1000, key=lambda flight: (flight.origin, flight.time_hour)
)

#: Retry after about 20 ms, then 40 ms, up to half a second.
RETRY: Final = af.Retry(
    attempts=20,
    delay=timedelta(milliseconds=20),
    factor=2.0,
    max_delay=timedelta(milliseconds=500),
    jitter=0.5,
    on=aiohttp.ClientError,
)

#: Name of the step that makes the calls.
LOOKUP: Final = "look up the weather"

#: Name of the step that compares answers with the join.
COMPARISON: Final = "compared"

UNANSWERED: Final = af.Tag[af.calls.FailedCall[Flight]]("unanswered")


@dataclass(slots=True)  # not frozen: as FlightInWeather, there is one for each flight
class Compared:
    """The answer of the service and the result of the join for one flight."""

    flight: FlightInWeather
    """Flight with the answer of the service."""
    joined: Observation | None
    """Result of the join."""


MISMATCH: Final = af.Tag[Compared]("mismatch")

#: Answers that are newer than the result of the join. They are mismatches if all weather was read. If the sources
#: were stopped before, the flight was ahead of the weather that was read, and a comparison is not possible.
AHEAD: Final = af.Tag[Compared]("ahead of the weather")


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A flight without an answer."""

    carrier: str
    flight: int
    origin: str
    scheduled: datetime
    error: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """Sinks of all results."""

    in_weather: af.Sink[FlightInWeather]
    """Flights with equal results of service and join: the same rows as those of the replay."""
    mismatches: af.Sink[Compared]
    """Other flights with an answer."""
    unanswered: af.Sink[Unanswered]
    malformed: af.Sink[Malformed]


def build(
    flights: af.Source[Flight],
    weather: af.Source[Observation],
    sinks: Sinks,
    *,
    connect: Callable[[], AbstractAsyncContextManager[aiohttp.ClientSession]],
    retry: af.calls.RetryPolicy = RETRY,
) -> af.Flow:
    """Build the flow. ``connect`` opens a session with the service."""
    flow = af.Flow("flights-look-up-weather")
    rows = flow.source(flights, name="flights", parallelism=1)
    hours = flow.source(weather, name="weather")
    answered = rows.event_time(
        lambda flight: flight.scheduled,
        max_delay=LONGEST_DELAY,
        align=ALIGNMENT,
        name="every flight",
    ).map_async(
        look_up,
        using=af.Resource(connect, name="session"),
        into=with_answer,
        name=LOOKUP,
        capacity=CAPACITY,
        ordered=False,
        timeout=TIMEOUT,
        retry=retry,
        cache=CACHE,
        on_error=af.calls.DeadLetter(UNANSWERED),
    )
    checked = _checked(answered, hours)
    checked.rebalance(1).to(sinks.in_weather, name="in weather")
    others = checked.side(MISMATCH).union(checked.side(AHEAD))
    others.rebalance(1).to(sinks.mismatches, name="mismatches")
    lost = answered.side(UNANSWERED).map(_unanswered)
    lost.rebalance(1).to(sinks.unanswered, name="unanswered")
    bad = rows.side(MALFORMED).union(hours.side(MALFORMED)).map(malformed)
    bad.rebalance(1).to(sinks.malformed, name="malformed")
    return flow


def with_answer(flight: Flight, answer: Observation | None) -> FlightInWeather:
    """Return the flight with the answer of the service, unless the answer is older than ``TOLERANCE``."""
    if answer is not None and flight.scheduled - answer.time_hour > TOLERANCE:
        answer = None
    return with_weather(flight, answer)


def _checked(
    answered: af.Stream[FlightInWeather], hours: af.Stream[Observation]
) -> af.Stream[FlightInWeather]:
    """Return the flights with answers equal to the result of the join; the others are in side outputs."""
    weather = hours.event_time(
        lambda hour: hour.time_hour, max_delay=timedelta(0), align=ALIGNMENT, name="hours in order"
    ).process(DoubtfulFilter(), name="plausible")
    return (
        answered.key_by(lambda flight: flight.origin)
        .as_of_join(
            weather.key_by(lambda hour: hour.origin),
            tolerance=TOLERANCE,
            of=FlightInWeather,
            other_of=Observation,
        )
        .left(Compared, name="flights in weather")
        .process(MismatchFilter(), name=COMPARISON)
    )


class MismatchFilter(af.ProcessFunction[Compared, FlightInWeather]):
    """Emit flights with equal results; send the others to ``AHEAD`` or ``MISMATCH``."""

    def process(self, value: Compared, ctx: af.ProcessContext) -> Iterable[FlightInWeather]:
        """Emit at most one flight."""
        answer, joined = value.flight.weather, value.joined
        if answer == joined:
            return (value.flight,)
        newer = answer is not None and (joined is None or joined.time_hour < answer.time_hour)
        ctx.side(AHEAD if newer else MISMATCH, value)
        return ()


def _unanswered(lost: af.calls.FailedCall[Flight]) -> Unanswered:
    flight = lost.value
    return Unanswered(
        flight.carrier,
        flight.flight,
        flight.origin,
        flight.scheduled,
        f"{lost.error}: {lost.message}",
        lost.attempts,
    )
