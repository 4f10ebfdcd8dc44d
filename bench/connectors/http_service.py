"""The service of the benchmark ``http``, in a process of its own: ``python -m bench.connectors.http_service RECORDS``.

It has prepared what it sends, so that it costs as little as possible beside the clients.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import orjson
from aiohttp import web

from bench.connectors.comparison import numbered_record

#: Records of a page, of a write of the stream, and of a request.
BATCH: Final = 4096
#: Times as many records in pages as in events and messages: the loop reads a page in the time of a few of those, so the
#: start of a job would count for more than its pages.
PAGED: Final = 4


class Service:
    """Records from 0 on as pages, events and messages; and the number of records that were posted."""

    def __init__(self, records: int) -> None:
        encoded = [orjson.dumps(numbered_record(n)) for n in range(PAGED * records)]
        self._pages = [
            b"[" + b",".join(encoded[start : start + BATCH]) + b"]"
            for start in range(0, len(encoded), BATCH)
        ]
        del encoded[records:]
        events = [b"id: %d\ndata: %s\n\n" % (n, one) for n, one in enumerate(encoded)]
        self._events = [
            b"".join(events[start : start + BATCH]) for start in range(0, records, BATCH)
        ]
        self._messages = [one.decode() for one in encoded]
        #: Records that were posted since ``/taken`` was read.
        self._taken = 0

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 30)
        application.add_routes(
            [
                web.get("/pages", self._page),
                web.get("/events", self._stream),
                web.get("/socket", self._socket),
                web.post("/records", self._take),
                web.get("/taken", self._count),
            ]
        )
        return application

    async def _page(self, request: web.Request) -> web.Response:
        number = int(request.query.get("page", 0))
        body = self._pages[number] if number < len(self._pages) else b"[]"
        return web.Response(body=body, content_type="application/json")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if "Last-Event-ID" in request.headers:  # of a client that has read all of them
            return web.Response(status=204)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: 1\n\n")
        for part in self._events:
            await response.write(part)
        return response

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        for message in self._messages:
            await socket.send_str(message)
        await socket.receive()
        return socket

    async def _take(self, request: web.Request) -> web.Response:
        self._taken += (await request.read()).count(b'"n"')
        return web.Response()

    async def _count(self, request: web.Request) -> web.Response:
        taken, self._taken = self._taken, 0
        return web.Response(body=b"%d" % taken)


async def main(records: int) -> None:
    """Serve until the input is closed; print the address."""
    runner = web.AppRunner(Service(records).application(), access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("http://{}:{}".format(*runner.addresses[0]), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
