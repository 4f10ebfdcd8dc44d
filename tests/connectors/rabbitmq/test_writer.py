"""``ConfirmedWriter`` with a server that confirms slowly or never, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aflow.connect import Batch, SinkError
from aflow.testing import virtual_time
from aflow_connectors.formats import Raw
from aflow_connectors.messages import MessageEncoder
from aflow_connectors.rabbitmq.client import AmqpServer, Publishing, ServerLost
from aflow_connectors.rabbitmq.writer import ConfirmedWriter, MessageMapper
from aflow_connectors.reconnect import Reconnect, Retries


class SlowServer:
    """Confirms messages one after the other, each after ``delay`` (s), and ``most`` on each connection."""

    place = "localhost:5672/"
    is_blocked = False

    def __init__(self, delay: float, most: int) -> None:
        self.delay = delay
        self.most = most
        #: Number of messages that were published on each connection.
        self.published: list[int] = []

    async def open(self, failed: object, *, confirms: bool) -> SlowServer:
        self.published.append(0)
        return self

    async def check_exchange(self, exchange: str) -> None:
        """Accept each name."""

    async def close(self) -> None:
        """Close the connection."""

    async def publish(self, message: Publishing) -> None:
        self.published[-1] += 1
        place = self.published[-1]
        await asyncio.sleep(place * self.delay if place <= self.most else 1e9)


async def write(server: SlowServer, values: list[bytes]) -> None:
    encoder = MessageEncoder[Any]("sink", Raw(), key=lambda _: b"k", key_format=Raw())
    mapper = MessageMapper("sink", encoder, "", False, None, True)
    retries = Retries("sink", Reconnect(), lost=(ServerLost,), failed=SinkError)
    writer = ConfirmedWriter[Any]("sink", cast(AmqpServer, server), mapper, retries)
    await writer.open()
    async with asyncio.timeout(3600):
        await writer.write(Batch(values))


def test_messages_are_not_repeated_while_the_server_confirms_others() -> None:
    server = SlowServer(20, most=10)

    virtual_time.run(lambda: write(server, [b"x"] * 10))

    assert server.published == [10]


def test_only_messages_without_confirmation_are_repeated() -> None:
    server = SlowServer(1, most=3)

    virtual_time.run(lambda: write(server, [b"x"] * 5))

    assert server.published == [5, 2]


def test_a_server_that_confirms_nothing_is_given_up_though_it_accepts_connections() -> None:
    server = SlowServer(1, most=0)

    with pytest.raises(SinkError, match=r"give_up_after=0:05:00.*no confirmations"):
        virtual_time.run(lambda: write(server, [b"x"] * 10))
