"""Redis to Redis: each entry is added exactly once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from aflow_connectors.redis import RedisSink, RedisSource
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


def _number(record: Mapping[str, Any]) -> int:
    return int(record["n"])


class RedisToRedis(Pair):
    """From three streams to one."""

    def prepare(self) -> None:
        self._server = self.servers.redis
        self._stream = self.settings["stream"] = f"pair-{uuid.uuid4().hex}"
        self.settings["redis"] = self._server.url_via(self.proxied(*self._server.host_and_port))
        self.killable.append(self._server)
        for split in range(SPLITS):
            self._create(f"{self._stream}-in-{split}")

    def _create(self, stream: str) -> None:
        """Create an empty stream: the numbers of one that the job finds later would be late."""
        self._server.command("XGROUP", "CREATE", stream, "none", "0", "MKSTREAM")
        self._server.command("XGROUP", "DESTROY", stream, "none")

    def feed(self, numbers: range) -> None:
        for split, part in enumerate(parts_of(numbers)):
            self._server.add(f"{self._stream}-in-{split}", *({"n": number} for number in part))

    @property
    def outputs(self) -> Sequence[Output]:
        return [Output("stream", self._results)]

    def _results(self) -> list[Result]:
        return [result_of(one) for one in self._server.contents(f"{self._stream}-out")]

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        url, stream = settings["redis"], settings["stream"]
        source = RedisSource(url, re.compile(f"{stream}-in-."), idle_after=None, reconnect=QUICK)
        sink: RedisSink[dict[str, int]] = RedisSink(url, f"{stream}-out", reconnect=QUICK)
        return Ends(source, {"out": sink}, _number)


PAIR = RedisToRedis
