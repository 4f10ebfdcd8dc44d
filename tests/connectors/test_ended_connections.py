"""A connection that ends before the server has answered is a lost one: a proxy ends them while its server is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from aflow.connect import Source, SourceError
from aflow_connectors.kafka import KafkaSource
from aflow_connectors.mqtt import MqttSource
from aflow_connectors.nats import NatsSource
from aflow_connectors.postgres import PostgresChanges, PostgresTable
from aflow_connectors.rabbitmq import RabbitmqSource, RabbitmqStreamSource
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.redis import RedisSource

SHORT: Final = Reconnect(
    delay=timedelta(milliseconds=1),
    most=timedelta(milliseconds=20),
    give_up_after=timedelta(milliseconds=100),
)

SOURCES: Final[dict[str, Callable[[str], Source[Any]]]] = {
    "kafka": lambda place: KafkaSource(place, "t", reconnect=SHORT),
    "mqtt": lambda place: MqttSource(f"mqtt://{place}", "t", client_id="t", reconnect=SHORT),
    "nats": lambda place: NatsSource(f"nats://{place}", "t", reconnect=SHORT),
    "postgres": lambda place: PostgresTable(
        f"postgresql://u@{place}/d", "t", key="id", reconnect=SHORT
    ),
    "postgres changes": lambda place: PostgresChanges(
        f"postgresql://u@{place}/d", "t", slot="s", reconnect=SHORT
    ),
    "rabbitmq": lambda place: RabbitmqSource(f"amqp://{place}/", "t", reconnect=SHORT),
    "rabbitmq stream": lambda place: RabbitmqStreamSource(f"amqp://{place}/", "t", reconnect=SHORT),
    "redis": lambda place: RedisSource(f"redis://{place}/0", "t", reconnect=SHORT),
}


async def read(source: Source[Any]) -> None:
    (split,) = await source.splits()
    reader = await source.reader(split, None)
    try:
        await reader.read(1)
    finally:
        await reader.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("name", SOURCES)
async def test_a_connection_that_ends_before_an_answer_is_renewed(name: str) -> None:
    connections = 0

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with await asyncio.start_server(end, "127.0.0.1", 0) as server, asyncio.timeout(300):
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(SourceError, match=r"no connection for .* attempts"):
            await read(SOURCES[name](f"127.0.0.1:{port}"))

    assert connections > 1
