"""``RabbitmqSink`` against a server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest

from aflow.connect import Batch, Sink, SinkError, Writer, WriterContext
from aflow.testing import check_sink
from aflow_connectors.formats import Raw, Text
from aflow_connectors.message import Message
from aflow_connectors.rabbitmq import RabbitmqSink
from aflow_connectors.reconnect import Reconnect
from tests.connectors.proxy import Proxy
from tests.connectors.rabbitmq.reading import QUICK
from tests.connectors.rabbitmq.server import Rabbit, RabbitServer

pytestmark = pytest.mark.asyncio


async def opened(sink: Sink[Any]) -> Writer[Any]:
    return await sink.writer(WriterContext("out"))


async def write(writer: Writer[Any], *values: object, timestamps: list[int] | None = None) -> None:
    writing = writer.write(Batch(list(values), timestamps))
    assert writing is not None
    await writing


async def written(sink: Sink[Any], *values: object, timestamps: list[int] | None = None) -> None:
    writer = await opened(sink)
    try:
        await write(writer, *values, timestamps=timestamps)
        await writer.flush()
    finally:
        await writer.close()


def events(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [event for one in caplog.records if (event := getattr(one, "event", None))]


@pytest.mark.slow
async def test_it_keeps_the_contract_of_sinks(rabbit: Rabbit) -> None:
    names = [await rabbit.create() for _ in range(60)]
    numbers = count()

    class Named(RabbitmqSink[int]):
        def __init__(self) -> None:
            self.queue = names[next(numbers)]
            super().__init__(rabbit.url, key=self.queue)

    def visible_in(sink: RabbitmqSink[int]) -> str:
        assert isinstance(sink, Named)
        return sink.queue

    seen: dict[str, list[int]] = {}

    async def visible(sink: RabbitmqSink[int]) -> list[int]:
        queue = visible_in(sink)
        found = seen.setdefault(queue, [])
        found += [int(one.body) for one in await rabbit.contents(queue)]
        return found

    await check_sink(Named, visible, list(range(8)))


async def test_a_record_becomes_a_persistent_message_with_key_headers_and_timestamp(
    rabbit: Rabbit,
) -> None:
    queue = await rabbit.create()
    exchange = await rabbit.create_exchange("direct", blue=queue)
    sink = RabbitmqSink[dict[str, Any]](
        rabbit.url,
        lambda one: one["to"],
        key=lambda one: one["colour"],
        headers=lambda one: {"text": one["colour"], "raw": b"\xff"},
        message_id=lambda one: f"id-{one['colour']}",
    )

    await written(sink, {"to": exchange, "colour": "blue"}, timestamps=[1_234_567])

    (message,) = await rabbit.contents(queue)
    properties = message.header.properties
    assert message.body == b'{"to":"%s","colour":"blue"}' % exchange.encode()
    assert (properties.delivery_mode, properties.message_id) == (2, "id-blue")
    assert dict(properties.headers) == {
        "text": "blue",
        "raw": b"\xff",
        "timestamp_in_ms": 1_234_567,
    }
    assert int(properties.timestamp.timestamp()) == 1234


async def test_a_message_brings_its_own_key_and_headers(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    sink = RabbitmqSink[Message[str, str]](
        rabbit.url, format=Text(), timestamps=False, persistent=False
    )

    await written(sink, Message(queue, "", (("h", b"1"),), 5))

    (message,) = await rabbit.contents(queue)
    assert (message.body, message.header.properties.headers) == (b"", {"h": "1"})
    assert message.header.properties.timestamp is None
    assert message.header.properties.delivery_mode == 1


async def test_a_message_of_ten_megabytes_is_written(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    large = b"x" * 10_000_000

    await written(RabbitmqSink[bytes](rabbit.url, format=Raw(), key=queue), large, b"")

    assert [one.body for one in await rabbit.contents(queue)] == [large, b""]


async def test_a_message_that_no_queue_takes_is_an_error(rabbit: Rabbit) -> None:
    exchange = await rabbit.create_exchange("direct")

    with pytest.raises(SinkError, match=f"exchange '{exchange}' has no queue for routing key 'k'"):
        await written(RabbitmqSink[int](rabbit.url, exchange, key="k"), 1, 2)


@pytest.mark.parametrize("by_function", [False, True])
async def test_an_exchange_that_is_missing_is_an_error(rabbit: Rabbit, by_function: bool) -> None:
    sink = RabbitmqSink[int](rabbit.url, (lambda _: "none") if by_function else "none", key="k")

    with pytest.raises(SinkError, match="there is no exchange 'none'; create it first"):
        await written(sink, 1)


def missing(record: dict[str, str]) -> str:
    return record["missing"]


def itself(record: Any) -> Any:
    return record


def long_header(record: object) -> dict[str, str]:
    return {"h" * 129: "v"}


NO_MESSAGES: dict[str, tuple[dict[str, Any], object, str]] = {
    "encoding": ({"key": "k"}, 1j, "JSON cannot hold it"),
    "no key": ({}, 1, "has no routing key; set key="),
    "function": ({"key": missing}, {}, "key= failed for record"),
    "long key": ({"key": "k" * 256}, 1, "a routing key of 256 bytes"),
    "id": ({"key": "k", "message_id": itself}, 1, "has message_id 1; it must be a text"),
    "tombstone": ({}, Message("k", None), "has no value"),
    "header": ({"key": "k", "headers": long_header}, 1, "names of 128 bytes"),
}


@pytest.mark.parametrize(("options", "record", "reason"), NO_MESSAGES.values(), ids=NO_MESSAGES)
async def test_a_record_that_is_no_message_is_an_error(
    rabbit: Rabbit, options: Any, record: object, reason: str
) -> None:
    with pytest.raises(SinkError, match=reason):
        await written(RabbitmqSink[Any](rabbit.url, **options), record)


async def test_a_time_that_amqp_cannot_hold_is_an_error(rabbit: Rabbit) -> None:
    sink = RabbitmqSink[int](rabbit.url, key="k")

    with pytest.raises(SinkError, match="older than 1970"):
        await written(sink, 1, timestamps=[-1])


async def test_a_full_queue_is_backpressure_until_the_time_is_over(rabbit: Rabbit) -> None:
    queue = await rabbit.create(max_length=1, overflow="reject-publish")
    short = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=50))
    await written(RabbitmqSink[int](rabbit.url, key=queue), 1)

    with pytest.raises(SinkError, match="is a queue full"):
        await written(RabbitmqSink[int](rabbit.url, key=queue, reconnect=short), 2)
    writing = asyncio.create_task(
        written(RabbitmqSink[int](rabbit.url, key=queue, reconnect=QUICK), 3)
    )
    before = await rabbit.contents(queue)
    await writing

    after = await rabbit.contents(queue)
    assert [one.body for one in before + after] == [b"1", b"3"]


@pytest.mark.slow
async def test_a_full_disk_of_the_server_is_backpressure_with_an_event_and_then_an_error(
    own_rabbit: RabbitServer,
    rabbit: Rabbit,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aflow_connectors.rabbitmq.writer._SLICE", 0.02)
    caplog.set_level("INFO", logger="aflow.connectors")
    queue = await rabbit.create()
    writer = await opened(RabbitmqSink[int](rabbit.url, key=queue, reconnect=QUICK))
    short = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=300))

    own_rabbit.control("set_disk_free_limit", "1000000GB")
    with monkeypatch.context() as patch:
        patch.setattr("aflow_connectors.rabbitmq.writer.PATIENCE", 0.2)
        with pytest.raises(SinkError, match=r"give_up_after.*for its disk or memory"):
            await written(RabbitmqSink[int](rabbit.url, key=queue, reconnect=short), -1)
    caplog.clear()
    writing = asyncio.create_task(write(writer, *range(50)))
    async with asyncio.timeout(300):
        while "publishers_blocked" not in events(caplog):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    was_done = writing.done()
    own_rabbit.control("set_disk_free_limit", "10MB")
    async with asyncio.timeout(300):
        await writing
    await writer.close()

    assert not was_done
    found = {int(one.body) for one in await rabbit.contents(queue)}
    assert found - {-1} == set(range(50))  # the one without confirmation may be there
    assert events(caplog) == ["publishers_blocked", "publishers_unblocked"]


async def test_a_cut_connection_loses_no_message(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    server = urlsplit(rabbit.url)
    assert server.hostname is not None

    async with Proxy(server.hostname, server.port or 5672) as proxy:
        host, port = proxy.address
        url = f"amqp://{server.username}:{server.password}@{host}:{port}{server.path}"
        writer = await opened(RabbitmqSink[int](url, key=queue, reconnect=QUICK))
        for start in range(0, 1000, 200):
            proxy.cut_after = 5000
            await write(writer, *range(start, start + 200))
        await writer.close()

    assert {int(one.body) for one in await rabbit.contents(queue)} == set(range(1000))


async def test_wrong_credentials_fail_at_once_and_are_not_shown(rabbit: Rabbit) -> None:
    host = rabbit.url.rpartition("@")[2]

    with pytest.raises(SinkError, match="refuses the connection") as caught:
        async with asyncio.timeout(300):
            await opened(RabbitmqSink[int](f"amqp://guest:my-secret@{host}", key="k"))

    assert "my-secret" not in str(caught.value)
