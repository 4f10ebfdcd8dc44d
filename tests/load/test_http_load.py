"""A load for a service over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeAlias

import pytest
from aiohttp import web

from aflow.bench import BenchResult
from aflow.bench.http_load import HttpTarget, http_load
from aflow.errors import FlowDefinitionError

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def service(handler: Handler) -> AsyncGenerator[str]:
    """Serve one path on a free port."""
    app = web.Application()
    app.router.add_route("*", "/score", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/score"
    finally:
        await runner.cleanup()


def failures(result: BenchResult) -> list[str]:
    """Return the problems with responses; on a busy machine the service may be slower than the load."""
    return [problem for problem in result.problems if "requests failed" in problem]


@pytest.mark.asyncio
async def test_responses_are_measured_and_failed_ones_are_errors() -> None:
    bodies: list[int] = []

    async def score(request: web.Request) -> web.Response:
        body = await request.json()
        bodies.append(body["n"])
        await asyncio.sleep(0.02)
        return web.Response(status=500 if body["n"] == 5 else 200)

    async with service(score) as url:
        result = await http_load(
            HttpTarget(url=url),
            lambda n: {"n": n},
            rate=50,
            duration=timedelta(milliseconds=600),
            warmup=timedelta(0),
        )

    assert sorted(bodies) == list(range(30))
    assert result.latency().percentiles_ms["50"] >= 20
    assert failures(result) == ["1 of 30 requests failed: status 500"]


@pytest.mark.asyncio
async def test_a_service_that_is_not_there_is_an_error() -> None:
    async def score(request: web.Request) -> web.Response:
        return web.Response()

    async with service(score) as url:
        pass

    result = await http_load(
        HttpTarget(url=url),
        [None],
        rate=20,
        duration=timedelta(milliseconds=200),
        warmup=timedelta(0),
    )

    assert failures(result) == ["4 of 4 requests failed: ClientConnectorError"]


@pytest.mark.asyncio
async def test_a_text_that_is_no_address_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="'localhost:80' is no address"):
        HttpTarget(url="localhost:80")
