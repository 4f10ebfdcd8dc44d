"""Requests to the job itself to Kafka: a number that was answered with 202 counts exactly once."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from aiohttp import web

import aflow as af
from aflow.web import aiohttp_ingest
from tests.connectors.pairs import kafka_ends
from tests.connectors.pairs.pair import Ends, Output, Pair
from tests.connectors.ports import free_port

#: Numbers in a request.
_AT_ONCE: Final = 50
#: Seconds that a client waits for an answer, and between requests.
_TIMEOUT: Final = 2.0
_RETRY: Final = 0.02
#: Seconds until a client gives up. Long: the machine may be busy.
_GIVE_UP: Final = 600.0


@asynccontextmanager
async def _accepting(source: af.DurablePushSource[int], port: int) -> AsyncGenerator[None]:
    """Serve requests with numbers, before the job starts and while it runs."""
    application = web.Application()
    application.router.add_post("/numbers", aiohttp_ingest(source, of=int))
    runner = web.AppRunner(application, access_log=None)
    async with source:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield


class HttpToKafka(Pair):
    """From requests, that are repeated until they are answered, to two partitions."""

    feeds_job = True

    def prepare(self) -> None:
        self._broker = kafka_ends.connect(self)
        self._out = self.settings["out"] = kafka_ends.create_topic(self._broker, 2)
        port = free_port()
        self.settings["port"] = str(port)
        self._host, self._port = self.proxied("127.0.0.1", port)

    def feed(self, numbers: range) -> None:
        for first in numbers[::_AT_ONCE]:
            self._post(range(first, min(first + _AT_ONCE, numbers.stop)))

    def _post(self, numbers: range) -> None:
        """Send numbers in one request until they are accepted. A repeated request has the same key."""
        deadline = time.monotonic() + _GIVE_UP
        while (status := self._status(numbers)) != 202:
            assert status in {None, 503}, f"request with {numbers} is answered with {status}"
            assert time.monotonic() < deadline, f"{numbers} are not accepted: {status}"
            time.sleep(_RETRY)

    def _status(self, numbers: range) -> int | None:
        """Return the status of a request; None for a lost connection."""
        connection = HTTPConnection(self._host, self._port, timeout=_TIMEOUT)
        headers = {"Idempotency-Key": str(numbers.start), "Content-Type": "application/json"}
        try:
            connection.request("POST", "/numbers", json.dumps(list(numbers)), headers)
            return connection.getresponse().status
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    @property
    def outputs(self) -> Sequence[Output]:
        return [Output("topic", lambda: kafka_ends.results(self._broker, self._out))]

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        source = af.DurablePushSource(Path(settings["folder"]) / "requests", of=int)
        return Ends(
            source,
            {"out": kafka_ends.sink(settings)},
            serving=_accepting(source, int(settings["port"])),
        )


PAIR = HttpToKafka
