"""NATS to PostgreSQL, where each row is appended exactly once, and replaced by key, and to NATS, exactly once."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from aflow_connectors.nats import NatsSink, NatsSource
from tests.connectors.pairs import postgres_ends
from tests.connectors.pairs.pair import (
    QUICK,
    SPLITS,
    Ends,
    Output,
    Pair,
    Result,
    parts_of,
    result_of,
)


class NatsToPostgres(Pair):
    """From three streams to two tables and a stream. Either server is killed."""

    def prepare(self) -> None:
        self._nats = self.servers.nats
        self._stream = self.settings["stream"] = f"pair-{uuid.uuid4().hex}"
        self.settings["nats"] = self._nats.url_via(self.proxied(*self._nats.host_and_port))
        self.killable.append(self._nats)
        asyncio.run(self._create())
        _, self._address = postgres_ends.connect(self)
        postgres_ends.create_tables(self._address)

    async def _create(self) -> None:
        for split in range(SPLITS):
            await self._nats.create(f"{self._stream}-{split}")
        await self._nats.create(f"{self._stream}-out")

    def feed(self, numbers: range) -> None:
        asyncio.run(self._publish(numbers))

    async def _publish(self, numbers: range) -> None:
        for split, part in enumerate(parts_of(numbers)):
            await self._nats.publish(f"{self._stream}-{split}", *(b"%d" % n for n in part))

    @property
    def outputs(self) -> Sequence[Output]:
        return [
            Output("appended", lambda: postgres_ends.results(self._address, "appended")),
            Output("replaced", lambda: postgres_ends.results(self._address, "replaced")),
            Output("stream", self._in_stream),
        ]

    def _in_stream(self) -> list[Result]:
        bodies = asyncio.run(self._nats.bodies(f"{self._stream}-out"))
        return [result_of(json.loads(body)) for body in bodies]

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        out: NatsSink[dict[str, int]] = NatsSink(
            settings["nats"], f"{settings['stream']}-out", reconnect=QUICK
        )
        streams = re.compile(f"{settings['stream']}-.")
        source = NatsSource(settings["nats"], streams, of=int, idle_after=None, reconnect=QUICK)
        sinks: dict[str, Any] = {
            "appended": postgres_ends.appending(settings),
            "replaced": postgres_ends.replacing(settings),
            "stream": out,
        }
        return Ends(source, sinks)


PAIR = NatsToPostgres
