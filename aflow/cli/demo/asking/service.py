"""A weather service over HTTP, as those of others are: slow at times, busy at times, broken at times.

``GET /weather?origin=JFK&at=2013-01-01T10:00:00Z`` answers with the newest observation at that airport up to then, as
JSON, or with ``null`` if there is none. Any other answer is no answer: 429 if too many ask at once (``desk``), 500 or
a connection that breaks in the middle of the answer by seed (``faults``), 400 if the question is none.
``GET /counts`` tells what was done so far; it always works.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson
from aiohttp import web

from aflow.cli.demo.asking.desk import Capacities, Desk, NoRoom
from aflow.cli.demo.asking.faults import Ending, Faults
from aflow.cli.demo.asking.observed import Observed

#: Nobody else can reach it.
HOST: Final = "127.0.0.1"


@dataclass(slots=True)
class Counts:
    """What was done so far."""

    asked: int = 0
    """All requests; each is one of the next four, or under way."""
    answered: int = 0
    refused: int = 0
    """429: no room."""
    failed: int = 0
    """500."""
    dropped: int = 0
    """Connections that broke in the middle of an answer."""
    slow: int = 0
    """Those of the others that took ten times as long."""
    capacity: int = 0
    """How many it works on at once now."""


class WeatherService:
    """Answers questions about ``observed`` as ``faults`` and ``capacities`` let it."""

    def __init__(self, observed: Observed, *, faults: Faults, capacities: Capacities) -> None:
        self._observed = observed
        self._faults = faults
        self._desk = Desk(capacities)
        #: How often each question was let in.
        self._asked: Counter[str] = Counter()
        self.counts = Counts()

    def application(self) -> web.Application:
        """The service as aiohttp runs it."""
        application = web.Application()
        application.add_routes(
            [web.get("/weather", self._weather), web.get("/counts", self._show_counts)]
        )
        return application

    async def _show_counts(self, _: web.Request) -> web.Response:
        self.counts.capacity = self._desk.capacity
        return _json(orjson.dumps(self.counts))

    async def _weather(self, request: web.Request) -> web.StreamResponse:
        try:
            airport = request.query["origin"]
            moment = datetime.fromisoformat(request.query["at"])
        except (KeyError, ValueError):
            raise web.HTTPBadRequest(text="ask as in ?origin=JFK&at=2013-01-01T10:00:00Z") from None
        if moment.tzinfo is None:
            raise web.HTTPBadRequest(text="'at' needs its distance to UTC, as in 10:00:00Z")
        self.counts.asked += 1
        try:
            async with self._desk.inside():
                return await self._worked_on(request, airport, moment)
        except NoRoom:
            self.counts.refused += 1
            raise web.HTTPTooManyRequests(text="too many ask at once") from None

    async def _worked_on(
        self, request: web.Request, airport: str, moment: datetime
    ) -> web.StreamResponse:
        question = f"{airport} {moment.timestamp():.0f}"
        fate = self._faults.fate(question, self._asked[question])
        self._asked[question] += 1
        self.counts.slow += fate.slow
        await asyncio.sleep(fate.seconds)
        if fate.ending is Ending.FAILED:
            self.counts.failed += 1
            raise web.HTTPInternalServerError(text="this was bound to happen")
        answer = orjson.dumps(self._observed.at(airport, moment))
        if fate.ending is Ending.DROPPED:
            self.counts.dropped += 1
            return await _broken_off(request, answer)
        self.counts.answered += 1
        return _json(answer)


@asynccontextmanager
async def served(application: web.Application) -> AsyncGenerator[int]:
    """Listens meanwhile; the port, one that was free. Signals are left to the rest of the program."""
    runner = web.AppRunner(application, handle_signals=False, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _broken_off(request: web.Request, answer: bytes) -> web.StreamResponse:
    """Half an answer, and no more of this connection.

    Not none at all: an idle connection that closes when it is asked is taken for one that was stale, and aiohttp asks
    again on another one, so that its user sees nothing of it.
    """
    response = web.StreamResponse(headers={"Content-Length": str(len(answer))})
    await response.prepare(request)
    await response.write(answer[: len(answer) // 2])
    if request.transport is not None:
        request.transport.close()  # after what was written; abort() would throw that away
    return response


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
