"""The contracts of sources and sinks, over real sockets."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from aiohttp import web

from aflow.testing import check_sink, check_source
from aflow_connectors.http import HttpEvents, HttpPage, HttpPoll, HttpSink
from tests.connectors.http.service import Ledger, Replaying, serving

NUMBERS = [{"n": n} for n in range(17)]


def after_the_last(page: HttpPage[Any]) -> dict[str, int]:
    return {"after": page.records[-1]["n"]}


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_poll_with_a_cursor_keeps_the_contract() -> None:
    async with serving(Replaying(len(NUMBERS)).handle) as url:

        def poll() -> HttpPoll[Any]:
            return HttpPoll(f"{url}/list", records="data.items", cursor=after_the_last, until="now")

        await check_source(poll, expected=NUMBERS)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_poll_without_a_cursor_keeps_the_contract() -> None:
    async def whole(request: web.Request) -> web.Response:
        return web.json_response(NUMBERS, headers={"ETag": '"1"'})

    async with serving(whole) as url:
        await check_source(lambda: HttpPoll(url, until="now"), expected=NUMBERS)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_stream_of_events_keeps_the_contract() -> None:
    async with serving(Replaying(len(NUMBERS)).handle) as url:

        def events() -> HttpEvents[Any]:
            source: HttpEvents[Any] = HttpEvents(f"{url}/events")
            source.bounded = True  # the service ends it with status 204
            return source

        await check_source(events, expected=NUMBERS)


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_sink_keeps_the_contract(exactly_once: bool) -> None:
    ledgers: dict[str, Ledger] = {}
    numbers = count()

    async def handle(request: web.Request) -> web.StreamResponse:
        return await ledgers[request.path].handle(request)

    async with serving(handle) as url:

        def fresh() -> HttpSink[Any]:
            path = f"/{next(numbers)}"
            ledgers[path] = Ledger()
            sink = HttpSink[Any](f"{url}{path}", max_records=3, exactly_once=exactly_once)
            places[id(sink)] = path
            sinks.append(sink)
            return sink

        sinks: list[HttpSink[Any]] = []  # so that no two of them have one id
        places: dict[int, str] = {}

        def visible(sink: HttpSink[Any]) -> list[Any]:
            return ledgers[places[id(sink)]].records

        await check_sink(fresh, visible, NUMBERS[:8])
