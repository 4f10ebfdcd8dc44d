"""RabbitMQ to files, where each result is written exactly once, and to a queue, at least once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aflow_connectors.files import JsonLinesSink
from aflow_connectors.rabbitmq import RabbitmqSink, RabbitmqSource
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
from tests.connectors.rabbitmq.server import Rabbit


class RabbitmqToFiles(Pair):
    """From three queues to files and to another queue. Each number is a message with an id."""

    def prepare(self) -> None:
        server = self.servers.rabbitmq
        self._rabbit = Rabbit(server.url)
        self._queues = [asyncio.run(self._rabbit.create()) for _ in range(SPLITS)]
        self._out = asyncio.run(self._rabbit.create())
        #: Results that were taken out of the queue.
        self._taken: list[Result] = []
        _, port = self.proxied("127.0.0.1", server.port)
        self.settings["rabbitmq"] = server.url.replace(str(server.port), str(port))
        self.settings["queues"] = ",".join(self._queues)
        self.settings["out"] = self._out
        self.killable.append(server)

    def feed(self, numbers: range) -> None:
        for queue, part in zip(self._queues, parts_of(numbers), strict=True):
            bodies = [b"%d" % number for number in part]
            ids = [str(number) for number in part]
            asyncio.run(self._rabbit.publish(queue, bodies, ids))

    @property
    def outputs(self) -> Sequence[Output]:
        return [Output("files", self._in_files), Output("queue", self._in_queue, repeats=True)]

    def _in_files(self) -> list[Result]:
        return [
            result_of(json.loads(line))
            for path in (self.folder / "files").glob("*.jsonl")
            for line in path.read_text().splitlines()
        ]

    def _in_queue(self) -> list[Result]:
        messages: list[Any] = asyncio.run(self._rabbit.contents(self._out))
        self._taken += [result_of(json.loads(message.body)) for message in messages]
        return self._taken

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        url = settings["rabbitmq"]
        source = RabbitmqSource(
            url, settings["queues"].split(","), of=int, idle_after=None, reconnect=QUICK
        )
        files: JsonLinesSink[dict[str, int]] = JsonLinesSink(Path(settings["folder"]) / "files")
        queue: RabbitmqSink[dict[str, int]] = RabbitmqSink(
            url, key=settings["out"], reconnect=QUICK
        )
        return Ends(source, {"files": files, "queue": queue})


PAIR = RabbitmqToFiles
