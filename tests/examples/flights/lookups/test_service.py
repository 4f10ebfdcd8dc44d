"""The weather service over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
import msgspec
import pytest

from aflow.testing.virtual_time import hold, virtual_time
from flights.lookups.capacity import Capacities
from flights.lookups.faults import Faults, faultless
from flights.lookups.service import Counts, Observations, WeatherService, served
from flights.weather import Observation
from tests.examples.flights.samples import hour

HOUR = hour("01-01T10:00", speed=12.0, rain=0.25)
CAPACITY = Capacities(phase=1000, each=(10,))


@asynccontextmanager
async def asked(
    faults: Faults, capacities: Capacities = CAPACITY
) -> AsyncGenerator[tuple[aiohttp.ClientSession, WeatherService]]:
    service = WeatherService(Observations([HOUR]), faults=faults, capacities=capacities)
    async with (
        served(service.application()) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session, service


async def status(session: aiohttp.ClientSession, **question: str) -> int:
    async with session.get("/weather", params=question) as answer:
        return answer.status


async def at(session: aiohttp.ClientSession, time: str) -> Observation | None:
    async with session.get("/weather", params={"origin": "EWR", "at": time}) as answer:
        return msgspec.json.decode(await answer.read(), type=Observation | None)


@pytest.mark.asyncio
async def test_the_response_is_the_newest_observation() -> None:
    async with asked(faultless()) as (session, _):
        assert await at(session, "2013-01-01T10:15:00Z") == HOUR
        assert await at(session, "2013-01-01T09:59:00Z") is None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "question",
    [
        {"origin": "EWR"},
        {"at": "2013-01-01T10:15:00Z"},
        {"origin": "EWR", "at": "ten"},
        {"origin": "EWR", "at": "2013-01-01T10:15:00"},
    ],
    ids=["no moment", "no airport", "no date", "no offset from UTC"],
)
async def test_the_response_to_an_invalid_query_shows_a_valid_one(question: dict[str, str]) -> None:
    async with (
        asked(faultless()) as (session, service),
        session.get("/weather", params=question) as answer,
    ):
        assert answer.status == HTTPStatus.BAD_REQUEST
        assert "10:" in await answer.text()
        assert service.counts.asked == 0


@pytest.mark.asyncio
async def test_a_failure_has_status_500() -> None:
    async with asked(Faults(seed=1, failed=1.0, dropped=0.0, median_s=0.0)) as (session, service):
        assert (
            await status(session, origin="EWR", at="2013-01-01T10:15:00Z")
            == HTTPStatus.INTERNAL_SERVER_ERROR
        )

        assert service.counts == Counts(asked=1, failed=1, slow=service.counts.slow)


@pytest.mark.asyncio
async def test_a_broken_connection_is_an_error_that_aiohttp_does_not_retry() -> None:
    faults = Faults(seed=1, failed=0.0, dropped=1.0, slow=0.0, median_s=0.0)
    async with asked(faults) as (session, service):
        for _ in range(2):
            with pytest.raises(aiohttp.ClientPayloadError):
                await at(session, "2013-01-01T10:15:00Z")

        assert service.counts == Counts(asked=2, dropped=2)


@virtual_time
async def test_requests_above_the_capacity_are_rejected() -> None:
    slow = Faults(seed=1, failed=0.0, dropped=0.0, slow=0.0, median_s=1.0, spread=0.0)
    async with asked(slow, Capacities(phase=1000, each=(2,))) as (session, service):
        with hold():  # for the network
            asking = asyncio.gather(
                *(status(session, origin="EWR", at="2013-01-01T10:15:00Z") for _ in range(5))
            )
            while service.counts.refused < 2:  # noqa: ASYNC110 - counted in other tasks
                await asyncio.sleep(0)
        await asyncio.sleep(2)
        with hold():
            statuses = await asking

        assert sorted(statuses) == [200, 200, 200, 429, 429]
        assert service.counts == Counts(asked=5, answered=3, refused=2)


@pytest.mark.asyncio
async def test_a_client_that_retries_gets_the_same_faults_in_any_order() -> None:
    faults = Faults(seed=7, failed=0.3, dropped=0.2, slow=0.0, median_s=0.0)
    times = [f"2013-01-{day:02}T10:00:00+00:00" for day in range(1, 31)]

    async with asked(faults) as (session, service):
        for time in times:
            await asked_until_answered(session, time)
        first = service.counts
    async with asked(faults) as (session, service):
        for ten in (times[20:], times[10:20], times[:10]):
            await asyncio.gather(*(asked_until_answered(session, time) for time in ten))
        second = service.counts

    assert (first.answered, first.refused) == (30, 0)
    assert min(first.failed, first.dropped) > 0
    assert (second.failed, second.dropped) == (first.failed, first.dropped)


async def asked_until_answered(session: aiohttp.ClientSession, time: str) -> None:
    while True:
        try:
            async with session.get("/weather", params={"origin": "EWR", "at": time}) as answer:
                await answer.read()
                if answer.status == HTTPStatus.OK:
                    return
        except aiohttp.ClientPayloadError:
            pass


@pytest.mark.asyncio
async def test_counts_are_served() -> None:
    async with asked(faultless()) as (session, service):
        await at(session, "2013-01-01T10:15:00Z")

        async with session.get("/counts") as answer:
            response = msgspec.json.decode(await answer.read(), type=Counts)

        assert response == service.counts == Counts(asked=1, answered=1, capacity=10)
