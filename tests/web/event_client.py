"""A client of server-sent events that calls the ASGI application directly, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp, Message


class EventClient:
    """One request for the events of a job, and what was received so far."""

    def __init__(self, application: ASGIApp, job: str, headers: Mapping[str, str]) -> None:
        self._application = application
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/api/jobs/{job}/events",
            "raw_path": f"/api/jobs/{quote(job, safe='')}/events".encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self._requested = False
        self._gone = asyncio.Event()
        #: Set while the client accepts data.
        self.reads = asyncio.Event()
        self.reads.set()
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        #: True once the response is complete.
        self.complete = False

    def disconnect(self) -> None:
        self._gone.set()

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events received so far, with their data."""
        found: list[tuple[str, dict[str, Any]]] = []
        for text in self.body.decode().split("\n\n")[:-1]:
            name, data = text.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return found

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name == "snapshot"]

    async def run(self) -> None:
        await self._application(self._scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._requested:
            self._requested = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            self.body += message["body"]
            self.complete = not message.get("more_body", False)


@asynccontextmanager
async def reading(
    application: ASGIApp, job: str = "visits", headers: Mapping[str, str] | None = None
) -> AsyncGenerator[EventClient]:
    """Read the events of a job during the block, then disconnect; the application must return then."""
    client = EventClient(application, job, headers or {})
    async with asyncio.TaskGroup() as group:
        group.create_task(client.run())
        try:
            yield client
        finally:
            client.disconnect()
            client.reads.set()
