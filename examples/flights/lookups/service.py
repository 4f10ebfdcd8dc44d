"""A weather service over HTTP that is slow, overloaded or failing at times, as a service of a third party.

``GET /weather?origin=JFK&at=2013-01-01T10:00:00Z`` responds with the newest observation at the airport at or before
that time as JSON, or with ``null``. Other responses: 429 at its capacity (``capacity``), 500 or a connection that
breaks in the middle of the response by seed (``faults``), 400 for an invalid query. ``GET /counts`` responds with the
counts of all requests, without any fault.
"""

from __future__ import annotations

import asyncio
import csv
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import orjson
from aiohttp import web

from flights.lookups.capacity import Capacities, CapacityExceeded, RequestLimiter
from flights.lookups.faults import Ending, Faults
from flights.weather import Observation, plausible

#: Only this machine can connect.
HOST: Final = "127.0.0.1"


@dataclass(slots=True)
class Counts:
    """Counts of requests."""

    asked: int = 0
    """All requests; each is one of the next four, or in flight."""
    answered: int = 0
    refused: int = 0
    """Status 429."""
    failed: int = 0
    """Status 500."""
    dropped: int = 0
    """Connections that broke in the middle of a response."""
    slow: int = 0
    """Admitted requests with ten times the latency."""
    capacity: int = 0
    """Concurrent requests that are admitted now."""


@dataclass(slots=True)
class _Airport:
    """Observations of one airport in the order of time, and their times."""

    hours: list[datetime] = field(default_factory=list[datetime])
    observations: list[Observation] = field(default_factory=list[Observation])


class Observations:
    """Observations of all airports, searched by bisection, unlike the join of the pipeline."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        self._airports: dict[str, _Airport] = {}
        for one in sorted(observations, key=lambda observation: observation.time_hour):
            station = self._airports.setdefault(one.origin, _Airport())
            station.hours.append(one.time_hour)
            station.observations.append(one)

    def at(self, airport: str, moment: datetime) -> Observation | None:
        """Return the newest observation at or before ``moment``, of any age; None if there is none."""
        station = self._airports.get(airport)
        before = bisect_right(station.hours, moment) if station else 0
        return station.observations[before - 1] if station and before else None


def read_observations(folder: Path) -> Observations:
    """Read the files that ``data.write_weather`` wrote to ``folder``, without invalid lines and impossible values."""
    return Observations(one for path in sorted(folder.glob("*.csv")) for one in _read(path))


def _read(path: Path) -> Iterable[Observation]:
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            cells = {name: None if cell == "NA" else cell for name, cell in row.items()}
            try:
                yield plausible(msgspec.convert(cells, Observation, strict=False))
            except msgspec.ValidationError:
                continue  # the pipeline reads the same files and reports malformed lines


class WeatherService:
    """Serve ``observations`` with ``faults``, within ``capacities``."""

    def __init__(
        self, observations: Observations, *, faults: Faults, capacities: Capacities
    ) -> None:
        self._observations = observations
        self._faults = faults
        self._limiter = RequestLimiter(capacities)
        #: Admitted requests by question.
        self._asked: Counter[str] = Counter()
        self.counts = Counts()

    def application(self) -> web.Application:
        """Return the application for aiohttp."""
        application = web.Application()
        application.add_routes(
            [web.get("/weather", self._weather), web.get("/counts", self._show_counts)]
        )
        return application

    async def _show_counts(self, _: web.Request) -> web.Response:
        self.counts.capacity = self._limiter.capacity
        return _json(orjson.dumps(self.counts))

    async def _weather(self, request: web.Request) -> web.StreamResponse:
        try:
            airport = request.query["origin"]
            moment = datetime.fromisoformat(request.query["at"])
        except (KeyError, ValueError):
            raise web.HTTPBadRequest(
                text="write the query as ?origin=JFK&at=2013-01-01T10:00:00Z"
            ) from None
        if moment.tzinfo is None:
            raise web.HTTPBadRequest(text="'at' needs an offset from UTC, as in 10:00:00Z")
        self.counts.asked += 1
        try:
            async with self._limiter.admitted():
                return await self._respond(request, airport, moment)
        except CapacityExceeded:
            self.counts.refused += 1
            raise web.HTTPTooManyRequests(text="too many concurrent requests") from None

    async def _respond(
        self, request: web.Request, airport: str, moment: datetime
    ) -> web.StreamResponse:
        question = f"{airport} {moment.timestamp():.0f}"
        outcome = self._faults.outcome(question, self._asked[question])
        self._asked[question] += 1
        self.counts.slow += outcome.slow
        await asyncio.sleep(outcome.seconds)
        if outcome.ending is Ending.FAILED:
            self.counts.failed += 1
            raise web.HTTPInternalServerError(text="failed on purpose")
        answer = orjson.dumps(self._observations.at(airport, moment))
        if outcome.ending is Ending.DROPPED:
            self.counts.dropped += 1
            return await _broken_off(request, answer)
        self.counts.answered += 1
        return _json(answer)


@asynccontextmanager
async def served(application: web.Application) -> AsyncGenerator[int]:
    """Serve during the block, on a free port, which is yielded. Signal handlers are unchanged."""
    runner = web.AppRunner(application, handle_signals=False, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _broken_off(request: web.Request, answer: bytes) -> web.StreamResponse:
    """Send half of a response and close the connection.

    Without any response aiohttp would repeat the request on another connection: it would assume that the closed one
    was stale.
    """
    response = web.StreamResponse(headers={"Content-Length": str(len(answer))})
    await response.prepare(request)
    await response.write(answer[: len(answer) // 2])
    if request.transport is not None:
        request.transport.close()  # after the pending data; abort() would discard them
    return response


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
