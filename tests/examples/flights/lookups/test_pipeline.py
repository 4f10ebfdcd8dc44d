"""Lookups of the weather, compared with a join."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

import aiohttp
import pytest

import aflow as af
from flights.flight import Flight, Malformed
from flights.lookups.capacity import Capacities
from flights.lookups.client import CountedRetry, session
from flights.lookups.faults import Faults, faultless
from flights.lookups.pipeline import (
    RETRY,
    Compared,
    Sinks,
    Unanswered,
    build,
    with_answer,
)
from flights.lookups.service import Counts, Observations, WeatherService, served
from flights.weather import Observation
from flights.wind import FlightInWeather
from tests.examples.flights.samples import flight, hour

EIGHT, NINE, TEN = (hour(f"01-01T{time}:00", speed=float(time)) for time in ("08", "09", "10"))
EARLY, LATER = flight("01-01T09:10", 5), flight("01-01T10:15", 0)
MORE = [
    flight(f"01-01T10:{minute}", 0, origin=at) for minute in range(16, 40) for at in ("EWR", "JFK")
]

#: As the application's own, without long pauses.
QUICKLY = af.Retry(attempts=20, delay=timedelta(milliseconds=1), on=aiohttp.ClientError)


@dataclass
class Found:
    """Results of a run."""

    in_weather: af.CollectSink[FlightInWeather] = field(default_factory=af.CollectSink)
    mismatches: af.CollectSink[Compared] = field(default_factory=af.CollectSink)
    unanswered: af.CollectSink[Unanswered] = field(default_factory=af.CollectSink)
    malformed: af.CollectSink[Malformed] = field(default_factory=af.CollectSink)
    counts: Counts = field(default_factory=Counts)

    def sinks(self) -> Sinks:
        return Sinks(
            in_weather=self.in_weather,
            mismatches=self.mismatches,
            unanswered=self.unanswered,
            malformed=self.malformed,
        )


def asked(
    flights: Iterable[Flight],
    *,
    joined: list[Observation],
    served_weather: list[Observation] | None = None,
    faults: Faults | None = None,
    capacity: int = 100,
    retry: af.calls.RetryPolicy = QUICKLY,
) -> Found:
    """Run ``flights`` with the weather ``joined``; the service has ``served_weather`` (None: the same)."""
    found = Found()

    async def run() -> None:
        service = WeatherService(
            Observations(joined if served_weather is None else served_weather),
            faults=faults or faultless(),
            capacities=Capacities(phase=1000, each=(capacity,)),
        )
        async with served(service.application()) as port:
            url = f"http://127.0.0.1:{port}"
            flow = build(
                af.IterableSource(list(flights)),
                af.IterableSource(joined),
                found.sinks(),
                connect=lambda: session(url),
                retry=retry,
            )
            await flow.run()
        found.counts = service.counts

    asyncio.run(run())
    return found


def weathers(found: Found) -> dict[Flight | str, Observation | None]:
    return {f"{row.scheduled:%H:%M}": row.weather for row in found.in_weather.values}


def test_flights_have_the_weather_of_their_departure() -> None:
    found = asked([EARLY, LATER], joined=[NINE, TEN])

    assert weathers(found) == {"09:10": NINE, "10:15": TEN}
    assert found.mismatches.values == []


def test_faults_change_no_answer() -> None:
    faults = Faults(seed=3, failed=0.3, dropped=0.2, median_s=0.001)
    retry = CountedRetry(QUICKLY)

    found = asked([EARLY, *MORE], joined=[NINE, TEN], faults=faults, capacity=4, retry=retry)

    assert len(found.in_weather.values) == 1 + len(MORE)
    assert found.mismatches.values == []
    assert found.unanswered.values == []
    counts = found.counts
    assert counts.failed + counts.dropped > 0
    assert retry.causes.total() == counts.refused + counts.failed + counts.dropped


@pytest.mark.parametrize(
    ("joined", "served_weather"),
    [(TEN, NINE), (NINE, TEN)],
    ids=["older", "newer: ahead of the join"],
)
def test_an_answer_that_differs_from_the_join_is_a_mismatch(
    joined: Observation, served_weather: Observation
) -> None:
    found = asked([EARLY, LATER], joined=[NINE, joined], served_weather=[NINE, served_weather])

    assert weathers(found) == {"09:10": NINE}
    (mismatch,) = found.mismatches.values
    assert (mismatch.flight.weather, mismatch.joined) == (served_weather, joined)


def test_a_flight_without_an_answer_is_reported_with_the_reason() -> None:
    two = af.Retry(attempts=2, delay=timedelta(milliseconds=1), on=aiohttp.ClientError)
    broken = Faults(seed=1, failed=1.0, dropped=0.0, slow=0.0, median_s=0.0)

    found = asked([EARLY], joined=[NINE], faults=broken, retry=two)

    assert found.in_weather.values == []
    (lost,) = found.unanswered.values
    assert (lost.scheduled, lost.attempts) == (EARLY.scheduled, 2)
    assert lost.error.startswith("ClientResponseError: 500")


def test_service_and_join_treat_impossible_values_alike() -> None:
    found = asked(
        [EARLY],
        joined=[hour("01-01T09:00", speed=1048.0)],
        served_weather=[hour("01-01T09:00", speed=None)],
    )

    assert [row.weather for row in found.in_weather.values] == [hour("01-01T09:00", speed=None)]


@pytest.mark.parametrize(
    ("departure", "weather"),
    [("01-01T10:00", EIGHT), ("01-01T10:01", None)],
    ids=["exactly two hours old", "older"],
)
def test_an_answer_that_is_too_old_is_not_used(departure: str, weather: Observation | None) -> None:
    assert with_answer(flight(departure, 0), EIGHT).weather == weather
    assert asked([flight(departure, 0)], joined=[EIGHT]).mismatches.values == []


def test_delays_of_retries_grow() -> None:
    busy = aiohttp.ServerDisconnectedError()
    pauses = [
        RETRY.again(af.calls.Attempt(number=number, error=busy), 0.5) for number in (1, 2, 3, 9)
    ]

    assert pauses == [timedelta(milliseconds=ms) for ms in (20, 40, 80, 500)]
