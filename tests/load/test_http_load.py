"""A load for a service over HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
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
    """Serve ``/score``, and the paths after it, on a free port."""
    app = web.Application()
    app.router.add_route("*", "/score{rest:.*}", handler)
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
            HttpTarget(urls=[url]),
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
        HttpTarget(urls=[url]),
        [None],
        rate=20,
        duration=timedelta(milliseconds=200),
        warmup=timedelta(0),
    )

    assert failures(result) == ["4 of 4 requests failed: ClientConnectorError"]


@pytest.mark.asyncio
async def test_several_addresses_get_requests_in_turn() -> None:
    paths: Counter[str] = Counter()

    async def score(request: web.Request) -> web.Response:
        paths[request.path_qs] += 1
        return web.Response(status=500 if request.path == "/score/b" else 200)

    async with service(score) as url:
        result = await http_load(
            HttpTarget(urls=[url, f"{url}/b?token=secret", url]),
            [None],
            rate=30,
            duration=timedelta(milliseconds=200),
            warmup=timedelta(0),
        )

    assert paths == {"/score": 4, "/score/b?token=secret": 2}
    assert failures(result) == [f"2 of 6 requests failed: status 500 at {url}/b"]
    assert result.flow == f"POST {url} and 2 more"


@pytest.mark.parametrize(
    "text",
    [
        *("localhost:80", "http://", "http:///score", "ftp://localhost/"),
        *("http://localhost:port/", "http://localhost:99999/"),
    ],
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(FlowDefinitionError, match=f"'{text}' is no address"):
        HttpTarget(urls=["http://localhost/", text])


@pytest.mark.parametrize("urls", ["http://localhost/", []])
def test_no_list_of_addresses_is_refused(urls: Sequence[str]) -> None:
    with pytest.raises(FlowDefinitionError, match="takes a list of addresses"):
        HttpTarget(urls=urls)
