"""``TopicWriter`` with a broker that confirms slowly or never, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aflow.connect import Batch, SinkError
from aflow.testing import virtual_time
from aflow_connectors.formats import Raw
from aflow_connectors.messages import MessageEncoder
from aflow_connectors.mqtt import sink
from aflow_connectors.mqtt.client import BrokerLost, mqtt_server
from aflow_connectors.reconnect import Reconnect, Retries


class SlowBroker:
    """Confirms messages one after the other, each after ``delay`` (s), ``most`` on each connection; None: never."""

    def __init__(self, delay: float | None, most: int = 1000) -> None:
        self.delay = delay
        self.most = most
        self.published = 0
        #: Messages that were published on the present connection.
        self.sent = 0
        self._free_at = 0.0

    def __call__(self, *arguments: object) -> SlowBroker:
        return self

    async def open(self) -> None:
        """Connect."""
        self.sent = 0

    async def close(self) -> None:
        """Disconnect."""

    def publish(self, topic: str, payload: bytes, **options: object) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        self.published += 1
        self.sent += 1
        confirmed: asyncio.Future[None] = loop.create_future()
        if self.delay is not None and self.sent <= self.most:
            self._free_at = max(self._free_at, loop.time()) + self.delay
            loop.call_at(self._free_at, confirmed.set_result, None)
        return confirmed

    def check_confirmation(self, code: object, topic: str) -> None:
        """Accept each confirmation."""


async def write(values: list[bytes]) -> None:
    encoder = MessageEncoder[Any]("sink", Raw(), key_format=Raw())
    mapper = sink.TopicMapper("sink", encoder, "t")
    retries = Retries("sink", Reconnect(), lost=(BrokerLost,), failed=SinkError)
    server = mqtt_server("MqttSink", "mqtt://localhost", None)
    writer = sink.TopicWriter[Any]("sink", server, mapper, retries)
    await writer.open()
    async with asyncio.timeout(3600):
        await writer.write(Batch(values))


def test_messages_are_not_repeated_while_the_broker_confirms_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = SlowBroker(20)
    monkeypatch.setattr(sink, "MqttConnection", broker)

    virtual_time.run(lambda: write([b"x"] * 10))

    assert broker.published == 10


def test_a_broker_that_confirms_nothing_is_given_up_though_it_accepts_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink, "MqttConnection", SlowBroker(None))

    with pytest.raises(SinkError, match=r"give_up_after=0:05:00.*no confirmations"):
        virtual_time.run(lambda: write([b"x"] * 10))


def test_a_broker_that_confirms_some_messages_and_stalls_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink, "MqttConnection", SlowBroker(1, most=3))

    with pytest.raises(SinkError, match=r"give_up_after=0:05:00.*no confirmations"):
        virtual_time.run(lambda: write([b"x"] * 10))


def test_a_broker_that_confirms_more_messages_at_each_attempt_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = SlowBroker(1, most=0)
    monkeypatch.setattr(sink, "MqttConnection", broker)
    opened = broker.open

    async def one_more() -> None:
        await opened()
        broker.most += 1

    monkeypatch.setattr(broker, "open", one_more)

    virtual_time.run(lambda: write([b"x"] * 20))

    assert broker.sent == 20
