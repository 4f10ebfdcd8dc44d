"""Each flight asks a service for its weather; a join of streams says what the answer should have been.

The flights, in the order in which they left, go through a step that makes a call for each: many at once, in whatever
order they are answered, again and again where the answer was none. What comes out is still a stream in event time:
results leave as they complete, but never past a watermark. So it can be joined with the table of weather as of the
moments of departure, and each answer must be what the join has found (``in_weather``, the same rule).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aiohttp

import aflow as af
from aflow.cli.demo.asking.client import BUSY, ask, cause
from aflow.cli.demo.flights import MALFORMED, Flight, Malformed, malformed
from aflow.cli.demo.in_weather import TOLERANCE, FlightInWeather
from aflow.cli.demo.pipeline import AWAITED, TOGETHER
from aflow.cli.demo.weather import LeaveOutDoubtful, Observation

#: For one flight, all attempts together. The service is never as busy as that for so long.
PATIENCE: Final = timedelta(seconds=30)

#: As many as the service can take, which is for the step to find out. Only what is refused says that it is too much:
#: what fails or breaks off does so whatever the load.
AT_ONCE: Final = af.Adaptive(on=lambda error: cause(error) == BUSY)

#: Observations are of hours, so all flights that are to leave an airport within an hour have one answer. Flights come
#: in at most a day late: what is kept of some days is enough.
KEPT: Final = af.Cache[Flight, Observation | None](
    1000, key=lambda flight: (flight.origin, flight.time_hour)
)

#: A service that is busy is asked again after 20 ms or so, then 40 ms, up to half a second.
RETRY: Final = af.Retry(
    attempts=20,
    delay=timedelta(milliseconds=20),
    factor=2.0,
    max_delay=timedelta(milliseconds=500),
    jitter=0.5,
    on=aiohttp.ClientError,
)

#: The name of the step that calls.
ASK: Final = "ask the service"

#: The name of the step that looks whether both agree.
COMPARED: Final = "compared"

UNANSWERED: Final = af.Tag[af.FailedCall[Flight]]("unanswered")


@dataclass(slots=True)  # not frozen: as FlightInWeather, there is one for each flight
class Compared:
    """What the service and the join say about a flight."""

    flight: FlightInWeather
    """With the answer of the service."""
    joined: Observation | None
    """What the join has found."""


MISMATCH: Final = af.Tag[Compared]("mismatch")

#: Where the service knows of newer weather than the join. If all weather was read, that is a mismatch as any other. If
#: the sources were stopped before, the flight was ahead of the weather that was read, and nothing can be said.
AHEAD: Final = af.Tag[Compared]("ahead of the weather")


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A flight for which no attempt was answered."""

    carrier: str
    flight: int
    origin: str
    scheduled: datetime
    error: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Where the results go."""

    in_weather: af.Sink[FlightInWeather]
    """Flights for which both agree: the same rows as those of ``aflow demo``."""
    mismatches: af.Sink[Compared]
    """The other flights with an answer."""
    unanswered: af.Sink[Unanswered]
    malformed: af.Sink[Malformed]


def build(
    flights: af.Source[Flight],
    weather: af.Source[Observation],
    ends: Ends,
    *,
    connect: Callable[[], AbstractAsyncContextManager[aiohttp.ClientSession]],
    retry: af.RetryPolicy = RETRY,
) -> af.Flow:
    """The pipeline, as a function of its ends; ``connect`` gives a session with the service."""
    flow = af.Flow("flights-ask-for-weather")
    rows = flow.source(flights, name="flights", parallelism=1)
    hours = flow.source(weather, name="weather")
    answered = rows.event_time(
        lambda flight: flight.scheduled, max_delay=AWAITED, align=TOGETHER, name="every flight"
    ).map_async(
        ask,
        using=af.Resource(connect, name="session"),
        into=in_answer,
        name=ASK,
        capacity=AT_ONCE,
        ordered=False,
        timeout=PATIENCE,
        retry=retry,
        cache=KEPT,
        on_error=af.DeadLetter(UNANSWERED),
    )
    checked = _checked(answered, hours)
    checked.rebalance(1).to(ends.in_weather, name="in weather")
    others = checked.side(MISMATCH).union(checked.side(AHEAD))
    others.rebalance(1).to(ends.mismatches, name="mismatches")
    lost = answered.side(UNANSWERED).map(_unanswered)
    lost.rebalance(1).to(ends.unanswered, name="unanswered")
    bad = rows.side(MALFORMED).union(hours.side(MALFORMED)).map(malformed)
    bad.rebalance(1).to(ends.malformed, name="malformed")
    return flow


def in_answer(flight: Flight, answer: Observation | None) -> FlightInWeather:
    """The flight in the weather that the service has told, if that is not too old for its departure."""
    if answer is not None and flight.scheduled - answer.time_hour > TOLERANCE:
        answer = None
    return FlightInWeather(
        flight.carrier,
        flight.flight,
        flight.origin,
        flight.dest,
        flight.scheduled,
        flight.dep_delay,
        answer,
    )


def _checked(
    answered: af.Stream[FlightInWeather], hours: af.Stream[Observation]
) -> af.Stream[FlightInWeather]:
    """Flights whose answer is that of the join; the others are beside it."""
    weather = hours.event_time(
        lambda hour: hour.time_hour, max_delay=timedelta(0), align=TOGETHER, name="hours in order"
    ).process(LeaveOutDoubtful(), name="plausible")
    return (
        answered.key_by(lambda flight: flight.origin)
        .as_of_join(
            weather.key_by(lambda hour: hour.origin),
            tolerance=TOLERANCE,
            of=FlightInWeather,
            other_of=Observation,
        )
        .left(Compared, name="flights in weather")
        .process(LeaveOutMismatches(), name=COMPARED)
    )


class LeaveOutMismatches(af.ProcessFunction[Compared, FlightInWeather]):
    """Sends what does not agree to ``AHEAD`` or ``MISMATCH``."""

    def process(self, value: Compared, ctx: af.ProcessContext) -> Iterable[FlightInWeather]:
        """The flight, if service and join agree."""
        told, joined = value.flight.weather, value.joined
        if told == joined:
            return (value.flight,)
        newer = told is not None and (joined is None or joined.time_hour < told.time_hour)
        ctx.side(AHEAD if newer else MISMATCH, value)
        return ()


def _unanswered(lost: af.FailedCall[Flight]) -> Unanswered:
    flight = lost.value
    return Unanswered(
        flight.carrier,
        flight.flight,
        flight.origin,
        flight.scheduled,
        f"{lost.error}: {lost.message}",
        lost.attempts,
    )
