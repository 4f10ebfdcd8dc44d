"""HTTP services on loopback for the tests of this folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from aiohttp import WSMsgType, web

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, *, port: int = 0) -> AsyncGenerator[str]:
    """Serve all paths with ``handler``; yield the address, without a slash at its end."""
    application = web.Application(client_max_size=64 << 20)
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.05, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering(answer: bytes, *, hold: bool = False) -> AsyncGenerator[str]:
    """Answer each connection with these bytes, and close it or, with ``hold``, keep it open."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        await writer.drain()
        if hold:
            await ended.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        ended.set()
        server.close()
        await server.wait_closed()


class Ledger:
    """A service that applies each request once by its key, as ``Idempotency-Key`` asks."""

    def __init__(self) -> None:
        #: By key, the records of each request that was applied, in their order.
        self.applied: dict[str, list[Any]] = {}
        #: All requests, also repeated ones: key and number of records.
        self.requests: list[tuple[str, int]] = []
        #: Statuses, or responses, of the next requests; a request that gets one of them is not applied.
        self.answers: list[int | web.Response] = []
        #: Number of next requests that are applied, but whose connection is cut instead of an answer.
        self.cuts = 0
        self.headers: list[dict[str, str]] = []

    @property
    def records(self) -> list[Any]:
        """All applied records."""
        return [record for records in self.applied.values() for record in records]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Take a request."""
        body = await request.read()
        key = request.headers["Idempotency-Key"]
        self.headers.append(dict(request.headers))
        records = self._decoded(request.content_type, body)
        self.requests.append((key, len(records)))
        if self.answers:
            answer = self.answers.pop(0)
            return web.Response(status=answer) if isinstance(answer, int) else answer
        self.applied.setdefault(key, records)
        if self.cuts:
            self.cuts -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=204)

    def _decoded(self, content_type: str, body: bytes) -> list[Any]:
        if content_type == "application/x-ndjson":
            return [json.loads(line) for line in body.splitlines()]
        if content_type == "application/json":
            found: Any = json.loads(body)
            return found if body.startswith(b"[") else [found]
        return [body]


class Replaying:
    """Numbers from 0 to ``count``, as a list with a cursor, as events and over a WebSocket, each from any position."""

    def __init__(self, count: int, *, pace: float = 0.0, ends: bool = True) -> None:
        self.count = count
        #: Seconds between two numbers of the streams.
        self.pace = pace
        #: True if streams end after the last number: events with 204.
        self.ends = ends
        #: The positions of all requests.
        self.asked: list[int] = []
        self._connections: set[asyncio.Transport] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer with the numbers after the position of the request."""
        match request.path:
            case "/list":
                return self._list(request)
            case "/events":
                return await self._events(request)
            case _:
                return await self._socket(request)

    def cut(self) -> None:
        """Cut all streams."""
        for transport in self._connections:
            transport.abort()

    def _list(self, request: web.Request) -> web.Response:
        after = int(request.query.get("after", -1))
        self.asked.append(after)
        size = int(request.query.get("size", 7))
        numbers = range(after + 1, min(self.count, after + 1 + size))
        return web.json_response({"data": {"items": [{"n": n} for n in numbers]}})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        after = int(request.headers.get("Last-Event-ID", -1))
        self.asked.append(after)
        if after + 1 >= self.count and self.ends:
            return web.Response(status=204)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async with self._connected(request):
            await response.write(b"retry: 20\n\n")
            for n in range(after + 1, self.count):
                await response.write(b'id: %d\ndata: {"n": %d}\n\n' % (n, n))
                if self.pace:
                    await asyncio.sleep(self.pace)
            if not self.ends:
                await asyncio.sleep(3600)
        return response

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async with self._connected(request):
            asked = await socket.receive()
            if asked.type is not WSMsgType.TEXT:
                return socket  # the client has disconnected
            after = int(json.loads(asked.data)["after"])
            self.asked.append(after)
            for n in range(after + 1, self.count):
                await socket.send_str(json.dumps({"n": n}))
                if self.pace:
                    await asyncio.sleep(self.pace)
            await socket.receive()
        return socket

    @asynccontextmanager
    async def _connected(self, request: web.Request) -> AsyncGenerator[None]:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._connections.add(transport)
        try:
            yield
        except ConnectionError:
            pass  # the client has disconnected
        finally:
            self._connections.discard(transport)
