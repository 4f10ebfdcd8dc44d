"""``MqttSink`` against a broker."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from aflow.connect import Batch, Sink, SinkError, Writer, WriterContext
from aflow.testing import check_sink
from aflow_connectors.formats import Raw, Text
from aflow_connectors.message import Message
from aflow_connectors.mqtt import MqttSink
from aflow_connectors.reconnect import Reconnect
from tests.connectors.mqtt.server import WITH_PASSWORD, Mosquitto, Mqtt
from tests.connectors.proxy import Proxy

pytestmark = pytest.mark.asyncio

QUICK = Reconnect(delay=timedelta(milliseconds=1), most=timedelta(milliseconds=20))


async def listened(mqtt: Mqtt) -> str:
    """Return the name of a topic, and of a session that gets its messages and those of topics below it."""
    topic = f"t{uuid.uuid4().hex}"
    await mqtt.subscribed(topic, f"{topic}/#")
    return topic


async def opened(sink: Sink[Any]) -> Writer[Any]:
    return await sink.writer(WriterContext("out"))


async def write(writer: Writer[Any], *values: object) -> None:
    writing = writer.write(Batch(list(values)))
    assert writing is not None
    await writing


async def written(sink: Sink[Any], *values: object) -> None:
    writer = await opened(sink)
    try:
        await write(writer, *values)
        await writer.flush()
    finally:
        await writer.close()


@pytest.mark.slow
async def test_it_keeps_the_contract_of_sinks(mqtt: Mqtt) -> None:
    topics = [await listened(mqtt) for _ in range(60)]
    numbers = count()
    seen: dict[str, list[int]] = {}

    class ToTopic(MqttSink[int]):
        def __init__(self) -> None:
            self.topic = topics[next(numbers)]
            super().__init__(mqtt.url, self.topic)

    async def visible(sink: MqttSink[int]) -> list[int]:
        assert isinstance(sink, ToTopic)
        found = seen.setdefault(sink.topic, [])
        found += [int(one.payload) for one in await mqtt.messages(sink.topic)]
        return found

    await check_sink(ToTopic, visible, list(range(8)))


async def test_a_record_becomes_a_message_with_topic_and_user_properties(mqtt: Mqtt) -> None:
    topic = await listened(mqtt)
    sink = MqttSink[dict[str, str]](
        mqtt.url, lambda one: f"{topic}/{one['room']}", headers=lambda one: {"room": one["room"]}
    )

    await written(sink, {"room": "é"})

    (message,) = await mqtt.messages(topic, count=1)
    assert (str(message.topic), message.payload) == (f"{topic}/é", '{"room":"é"}'.encode())
    assert message.properties.UserProperty == [("room", "é")]
    assert (message.qos, message.retain) == (1, False)


async def test_a_message_brings_its_own_headers_and_none_as_value_is_empty(mqtt: Mqtt) -> None:
    topic = await listened(mqtt)
    sink = MqttSink[Message[str, str]](mqtt.url, topic, format=Text())

    await written(sink, Message("key", "x", (("h", b"1"),)), Message[str, str]("key", None))

    first, second = await mqtt.messages(topic, count=2)
    assert first.properties.UserProperty == [("h", "1")]
    assert (first.payload, second.payload) == (b"x", b"")


async def test_a_retained_message_is_kept_for_later_subscribers(mqtt: Mqtt) -> None:
    topic = f"t{uuid.uuid4().hex}"
    await written(MqttSink[int](mqtt.url, topic, retain=True), 1, 2)

    async with mqtt.client() as client:
        await client.subscribe(topic, 1)
        message = await anext(aiter(client.messages))

    assert (message.payload, message.retain) == (b"2", True)


async def test_a_message_of_ten_megabytes_is_written(mqtt: Mqtt) -> None:
    topic = await listened(mqtt)
    large = b"x" * 10_000_000

    await written(MqttSink[bytes](mqtt.url, topic, format=Raw()), large, b"")

    assert [one.payload for one in await mqtt.messages(topic, count=2)] == [large, b""]


def missing(record: dict[str, str]) -> str:
    return record["missing"]


def wildcard(record: object) -> str:
    return "a/+"


def no_text(record: object) -> dict[str, bytes]:
    return {"h": b"\xff"}


NO_MESSAGES: dict[str, tuple[Any, dict[str, Any], object, str]] = {
    "encoding": ("t", {}, 1j, "JSON cannot hold it"),
    "function": (missing, {}, {}, "topic failed for record"),
    "wildcard": (wildcard, {}, 1, r"has topic 'a/\+', and a topic has"),
    "header": ("t", {"headers": no_text}, 1, "header 'h' that is not UTF-8"),
}


@pytest.mark.parametrize(
    ("topic", "options", "record", "reason"), NO_MESSAGES.values(), ids=NO_MESSAGES
)
async def test_a_record_that_is_no_message_is_an_error(
    mqtt: Mqtt, topic: Any, options: Any, record: object, reason: str
) -> None:
    with pytest.raises(SinkError, match=reason):
        await written(MqttSink[Any](mqtt.url, topic, **options), record)


async def test_a_cut_connection_loses_no_message(mqtt: Mqtt) -> None:
    topic = await listened(mqtt)

    async with Proxy(mqtt.host, mqtt.port) as proxy:
        host, port = proxy.address
        writer = await opened(MqttSink[int](f"mqtt://{host}:{port}", topic, reconnect=QUICK))
        for start in range(0, 500, 100):
            proxy.cut_after = 1500
            await write(writer, *range(start, start + 100))
        await writer.close()

    assert await mqtt.numbers(topic, 500) == set(range(500))


async def test_wrong_credentials_and_forbidden_topics_are_errors(own_broker: Mosquitto) -> None:
    user, password = WITH_PASSWORD
    place = f"127.0.0.1:{own_broker.closed_port}"
    url = f"mqtt://{user}:{password.replace(' ', '%20')}@{place}"

    with pytest.raises(SinkError, match="refuses the connection") as caught:
        async with asyncio.timeout(300):
            await opened(MqttSink[int](f"mqtt://{user}:my-secret@{place}", "allowed/x"))
    await written(MqttSink[int](url, "allowed/x"), 1)
    with pytest.raises(SinkError, match="topic 'other': Not authorized"):
        await written(MqttSink[int](url, "other"), 1)

    assert "my-secret" not in str(caught.value)
