"""HTTP: pages, server-sent events, WebSocket messages and posted records, by aflow and by a loop over aiohttp."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import web

import aflow as af
from aflow_connectors.http import HttpEvents, HttpPage, HttpPoll, HttpSink, HttpWebSocket
from bench.connectors.comparison import compare_directions, numbered_record
from bench.connectors.http_service import BATCH, PAGED
from bench.connectors.latency import Ends, Program, added_latency, flow_between, loop_beside
from bench.harness import Measurement

PROJECT: Final = Path(__file__).parents[2]


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a service in another process, and measure the sources and the sink."""
    with _serving(records) as url:
        yield _poll(url, PAGED * records, rounds)
        yield _events(url, records, rounds)
        yield _socket(url, records, rounds)
        yield _sink(url, records, rounds)
    yield added_latency("http_websocket_to_http", _relay)


@contextmanager
def _serving(records: int) -> Generator[str]:
    service = subprocess.Popen(
        [sys.executable, "-m", "bench.connectors.http_service", str(records)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdin is not None
    assert service.stdout is not None
    try:
        yield service.stdout.readline().strip()
    finally:
        service.stdin.close()
        service.wait()
        service.stdout.close()


async def _summed(source: af.Source[Any]) -> int:
    """Return the sum of the numbers of a source that ends."""
    flow, out = af.Flow("read"), af.CollectSink[int]()
    flow.source(source, name="in").map(lambda one: one["n"]).to(out)
    await flow.run()
    return sum(out.values)


def _poll(url: str, records: int, rounds: int) -> Measurement:
    def following(page: HttpPage[Any]) -> dict[str, int]:
        return {"page": int(page.records[0]["n"]) // BATCH + 1}

    async def in_aflow() -> int:
        return await _summed(HttpPoll(f"{url}/pages", cursor=following, until="now"))

    async def by_hand() -> int:
        found: list[int] = []
        async with aiohttp.ClientSession() as session:
            for number in count():
                async with session.get(f"{url}/pages", params={"page": number}) as response:
                    page = orjson.loads(await response.read())
                if not page:
                    return sum(found)
                found += [one["n"] for one in page]
        raise AssertionError("there is always another number")

    return compare_directions("http_poll", records, rounds, in_aflow, by_hand)


def _events(url: str, records: int, rounds: int) -> Measurement:
    async def in_aflow() -> int:
        # Status 204, the answer to a client with an id, ends the source.
        return await _summed(HttpEvents(f"{url}/events"))

    async def by_hand() -> int:
        found: list[int] = []
        data = b""
        async with aiohttp.ClientSession() as session, session.get(f"{url}/events") as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    data = line[6:]
                elif line == b"\n" and data:
                    found.append(orjson.loads(data)["n"])
                    data = b""
        return sum(found)

    return compare_directions("http_events", records, rounds, in_aflow, by_hand)


def _socket(url: str, records: int, rounds: int) -> Measurement:
    async def in_aflow() -> int:
        flow, found, done = af.Flow("read"), list[int](), asyncio.Event()

        def add(n: int) -> None:
            found.append(n)
            if n == records - 1:
                done.set()

        source: HttpWebSocket[Any] = HttpWebSocket(f"{url}/socket")
        flow.source(source, name="in").map(lambda one: one["n"]).to(af.CallbackSink(add))
        async with flow.start() as job:
            await done.wait()
            await job.cancel()
        return sum(found)

    async def by_hand() -> int:
        found: list[int] = []
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{url}/socket") as socket,
        ):
            async for message in socket:
                found.append(orjson.loads(message.data)["n"])
                if len(found) == records:
                    break
        return sum(found)

    return compare_directions("http_websocket", records, rounds, in_aflow, by_hand)


def _sink(url: str, records: int, rounds: int) -> Measurement:
    output = [numbered_record(n) for n in range(records)]

    async def taken(session: aiohttp.ClientSession) -> int:
        async with session.get(f"{url}/taken") as response:
            return int(await response.read())

    async def in_aflow() -> int:
        flow = af.Flow("write")
        sink = HttpSink[dict[str, Any]](f"{url}/records", max_records=BATCH, max_bytes=1 << 20)
        flow.source(output, name="in").to(sink, name="out")
        await flow.run()
        async with aiohttp.ClientSession() as session:
            return await taken(session)

    async def by_hand() -> int:
        async with aiohttp.ClientSession() as session:
            for start in range(0, records, BATCH):
                body = b"[" + b",".join(map(orjson.dumps, output[start : start + BATCH])) + b"]"
                headers = {"Content-Type": "application/json", "Idempotency-Key": str(start)}
                async with session.post(f"{url}/records", data=body, headers=headers) as response:
                    response.raise_for_status()
            return await taken(session)

    return compare_directions("http_sink", records, rounds, in_aflow, by_hand)


@asynccontextmanager
async def _relay(program: Program) -> AsyncGenerator[Ends]:
    """Relay messages of a WebSocket to requests of one record, by a service on the same event loop."""
    waiting, posted = asyncio.Queue[int](), asyncio.Queue[list[dict[str, int]]]()

    async def messages(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)

        async def send() -> None:
            while True:
                await socket.send_bytes(orjson.dumps({"n": await waiting.get()}))

        async with loop_beside(send()):
            await socket.receive()  # the client closes it
        return socket

    async def records(request: web.Request) -> web.Response:
        posted.put_nowait(orjson.loads(await request.read()))
        return web.Response()

    async def numbers() -> AsyncGenerator[int]:
        while True:
            for one in await posted.get():
                yield one["n"]

    async def by_hand(url: str) -> None:
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{url}/messages") as socket,
        ):
            async for message in socket:
                body = orjson.dumps([orjson.loads(message.data)])
                async with session.post(f"{url}/records", data=body, headers=headers) as response:
                    response.raise_for_status()

    application = web.Application()
    application.add_routes([web.get("/messages", messages), web.post("/records", records)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}".format(*runner.addresses[0])
    source: HttpWebSocket[Any] = HttpWebSocket(f"{url}/messages")
    sink = HttpSink[dict[str, Any]](f"{url}/records")
    running = flow_between(source, sink) if program == "in_aflow" else loop_beside(by_hand(url))
    async with running:
        yield Ends(waiting.put, numbers())
    await runner.cleanup()
