"""The application in real servers: alone, mounted in Starlette, and as a sub-application of aiohttp."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import aflow.web
from aflow import CallbackSink, Job, PushSource
from aflow.model.distribution import install_command
from tests.web.requests import TOKEN, WRITE, visits

KEY = "a%2Fb%20c%0A%C3%BC"


@asynccontextmanager
async def counting() -> AsyncGenerator[Job]:
    """Run a job that has counted two pages."""
    source, counted = PushSource[str](), asyncio.Semaphore(0)
    sink = CallbackSink[int](lambda _: counted.release())
    async with visits(source, sink=sink).start() as job:
        await source.send_many(["a/b c\nü", "/home"])
        await counted.acquire()
        await counted.acquire()
        yield job


async def check_application(client: httpx.AsyncClient, prefix: str) -> None:
    """Send a request of each kind; the job is stopped by the last."""
    ready = await client.get(f"{prefix}/health/ready")
    state = await client.get(f"{prefix}/api/jobs/visits/state/count/{KEY}?type=str")
    metrics = await client.get(f"{prefix}/metrics")
    missing = await client.get(f"{prefix}/nothing")
    head = await client.head(f"{prefix}/health/ready")
    large = await client.post(
        f"{prefix}/api/jobs/visits/stop", content=b" " * 300_000, headers=WRITE
    )
    refused = await client.post(f"{prefix}/api/jobs/visits/stop")
    stop = await client.post(f"{prefix}/api/jobs/visits/stop", json={}, headers=WRITE)

    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.headers["content-type"] == "application/json"
    assert (state.status_code, state.json()["value"]) == (200, 1)
    assert 'aflow_job_status{job="visits",status="running"} 1.0' in metrics.text
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_path")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == len(ready.content)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
    assert (refused.status_code, stop.status_code) == (401, 202)


@pytest.mark.asyncio
async def test_the_application_is_served_alone() -> None:
    async with counting() as job, aflow.web.serve(job, token=TOKEN) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            await check_application(client, "")
        await job.wait()

    assert server.host == "127.0.0.1"
    assert server.port > 0


@pytest.mark.asyncio
async def test_a_server_whose_host_is_cancelled_twice_closes_its_connections() -> None:
    servers: asyncio.Queue[aflow.web.WebServer] = asyncio.Queue()

    async def host() -> None:
        async with aflow.web.serve(list[Job]) as server:
            servers.put_nowait(server)
            await asyncio.Event().wait()

    hosting = asyncio.create_task(host())
    server = await servers.get()
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(b"GET /health/live HTTP/1.1\r\nhost: here\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    hosting.cancel()
    await asyncio.sleep(0)
    hosting.cancel()
    await asyncio.wait([hosting])

    try:
        await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        pass  # it is closed as well
    finally:
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(server.host, server.port)


@pytest.mark.asyncio
async def test_a_server_changes_neither_signals_nor_logging_and_closes_its_socket() -> None:
    names = ("", "uvicorn", "uvicorn.access", "uvicorn.error")

    def logging_settings() -> list[tuple[object, ...]]:
        loggers = [logging.getLogger(name) for name in names]
        return [(one.level, one.propagate, tuple(one.handlers)) for one in loggers]

    def handlers() -> list[object]:
        return [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    before = handlers(), logging_settings()
    async with counting() as job, aflow.web.serve(job) as server:
        during = handlers(), logging_settings()
    after = handlers(), logging_settings()

    assert before == during == after
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(server.host, server.port)


@pytest.mark.asyncio
async def test_an_address_in_use_is_an_error_of_the_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with counting() as job:
            with pytest.raises(OSError, match="in use"):
                async with aflow.web.serve(job, port=port):
                    pass


@pytest.mark.asyncio
async def test_an_error_of_the_block_is_raised_as_it_is() -> None:
    error = ValueError("of the block")

    async def fail() -> None:
        async with counting() as job, aflow.web.serve(job):
            raise error

    with pytest.raises(ValueError, match="of the block") as raised:
        await fail()

    assert raised.value is error


@pytest.mark.asyncio
async def test_a_block_that_is_cancelled_closes_the_server() -> None:
    started: asyncio.Future[aflow.web.WebServer] = asyncio.get_running_loop().create_future()

    async def serve_for_ever() -> None:
        async with counting() as job, aflow.web.serve(job) as server:
            started.set_result(server)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve_for_ever())
        server = await started
        task.cancel()
    assert task.cancelled()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(server.host, server.port)


@pytest.mark.asyncio
async def test_a_server_listens_on_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("Python without IPv6")
    async with counting() as job:
        try:
            async with (
                aflow.web.serve(job, host="::1") as server,
                httpx.AsyncClient(timeout=60) as client,
            ):
                response = await client.get(f"{server.url}/health/live")
        except OSError as exc:
            pytest.skip(f"this machine has no IPv6: {exc}")

    assert server.url == f"http://[::1]:{server.port}"
    assert response.status_code == 200


async def _own_page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("own")


@pytest.mark.asyncio
async def test_the_application_is_mounted_in_starlette() -> None:
    async with counting() as job:
        mounted = Mount("/internal/aflow", aflow.web.app(job, token=TOKEN))
        own = Route("/", _own_page)
        host = Starlette(routes=[own, mounted])
        transport = httpx.ASGITransport(host)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get("/")).text == "own"
            # Starlette does not pass on paths with line breaks.
            found = await client.get("/internal/aflow/api/jobs/visits/state/count/%2Fhome")
            ready = await client.get("/internal/aflow/health/ready")
            stop = await client.post("/internal/aflow/api/jobs/visits/stop", headers=WRITE)

    assert (found.status_code, found.json()["key"]) == (200, "/home")
    assert (ready.status_code, stop.status_code) == (200, 202)


@pytest.mark.asyncio
async def test_the_application_is_a_sub_application_of_aiohttp() -> None:
    async with counting() as job:
        host = web.Application()
        host.add_subapp("/aflow/", aflow.web.aiohttp_app(job, token=TOKEN))
        async with (
            _served(host) as address,
            httpx.AsyncClient(base_url=address, timeout=60) as client,
        ):
            await check_application(client, "/aflow")


@pytest.mark.asyncio
async def test_an_aiohttp_application_is_served_without_a_prefix_and_below_two() -> None:
    async with counting() as job:
        middle, host = web.Application(), web.Application()
        middle.add_subapp("/b/", aflow.web.aiohttp_app(job))
        host.add_subapp("/a/", middle)
        for application, prefix in ((host, "/a/b"), (aflow.web.aiohttp_app(job), "")):
            async with (
                _served(application) as address,
                httpx.AsyncClient(base_url=address, timeout=60) as client,
            ):
                response = await client.get(f"{prefix}/api/jobs/visits/state/count/%2Fhome")
            assert (response.status_code, response.json()["key"]) == (200, "/home")


@pytest.mark.asyncio
async def test_servers_stream_events() -> None:
    async with counting() as job:
        host = web.Application()
        host.add_subapp("/aflow/", aflow.web.aiohttp_app(job))
        async with aflow.web.serve(job) as alone, _served(host) as address:
            async with _first_events(alone.url) as of_uvicorn:
                pass
            async with _first_events(f"{address}/aflow") as of_aiohttp:
                pass

    assert of_uvicorn == of_aiohttp == ["event: job", "event: snapshot"]


@asynccontextmanager
async def _first_events(address: str) -> AsyncGenerator[list[str]]:
    """Yield the names of the first two events, while the stream is open."""
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("GET", f"{address}/api/jobs/visits/events") as response,
    ):
        names: list[str] = []
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                names.append(line)
            if len(names) == 2:
                break
        yield names


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["alone", "aiohttp"])
async def test_an_open_stream_does_not_keep_a_server_from_closing(kind: str) -> None:
    loop = asyncio.get_running_loop()
    async with counting() as job, AsyncExitStack() as client, AsyncExitStack() as server:
        if kind == "alone":
            address = (await server.enter_async_context(aflow.web.serve(job))).url
        else:
            address = await server.enter_async_context(_served(aflow.web.aiohttp_app(job)))
        await client.enter_async_context(_open_stream(address))
        began = loop.time()
        await server.aclose()

        assert (
            loop.time() - began < 4
        )  # a server waits for open responses: uvicorn 5 s, aiohttp 60 s


@asynccontextmanager
async def _open_stream(address: str) -> AsyncGenerator[None]:
    """Keep a connection open that has begun to receive events."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"GET /api/jobs/visits/events HTTP/1.1\r\nHost: test\r\n\r\n")
    await reader.readuntil(b"event: snapshot")
    try:
        yield
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.asyncio
async def test_the_address_of_a_sub_application_without_a_slash_leads_to_the_page() -> None:
    async with counting() as job:
        host = web.Application()
        host.add_subapp("/internal/aflow/", aflow.web.aiohttp_app(job))
        async with (
            _served(host) as address,
            httpx.AsyncClient(follow_redirects=True, timeout=60) as client,
        ):
            page = await client.get(f"{address}/internal/aflow")

    assert page.status_code == 200
    assert str(page.url) == f"{address}/internal/aflow/"
    assert "<title>aflow</title>" in page.text


@pytest.mark.asyncio
async def test_the_page_of_a_mounted_application_is_below_its_prefix() -> None:
    async with counting() as job:
        host = Starlette(routes=[Mount("/internal/aflow", aflow.web.app(job))])
        transport = httpx.ASGITransport(host)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://test", follow_redirects=True
        ) as client:
            page = await client.get("/internal/aflow")
            module = await client.get("/internal/aflow/static/main.mjs")

    assert str(page.url) == "http://test/internal/aflow/"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert module.headers["content-type"] == "text/javascript; charset=utf-8"


@asynccontextmanager
async def _served(application: web.Application) -> AsyncGenerator[str]:
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


#: Imports aflow, and then aflow.web, where some packages are missing.
_WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
import aflow
assert "aflow.web" not in sys.modules
{then}
"""


def run_without(missing: list[str], then: str) -> subprocess.CompletedProcess[str]:
    program = _WITHOUT.format(missing=missing, then=then)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client"])
def test_a_missing_package_is_an_error_that_names_the_extra(missing: str) -> None:
    done = run_without([missing], "import aflow.web")

    assert done.returncode == 1
    assert f"aflow.web needs {missing}" in done.stderr
    assert install_command("web") in done.stderr


@pytest.mark.slow
def test_aiohttp_is_needed_by_its_sub_application_only() -> None:
    done = run_without(
        ["aiohttp"], "import aflow.web; aflow.web.app([]); aflow.web.aiohttp_app([])"
    )

    assert done.returncode == 1
    assert "aflow.web.aiohttp_app needs aiohttp" in done.stderr


@pytest.mark.slow
def test_aflow_is_imported_without_the_extra() -> None:
    missing = ["starlette", "uvicorn", "prometheus_client", "aiohttp"]

    assert run_without(missing, "").returncode == 0
