"""``MqttSource`` against a broker."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

import aflow as af
from aflow.connect import BadRecord, Chunk, Position, Reader, SourceError, Split, Tag
from aflow.errors import AflowError
from aflow.model.codecs import PLAIN
from aflow.testing import CollectSink, check_source
from aflow_connectors.formats import Raw
from aflow_connectors.mqtt import MqttSource
from aflow_connectors.reconnect import Reconnect
from tests.connectors.mqtt.server import WITH_PASSWORD, Mosquitto, Mqtt
from tests.connectors.proxy import Proxy

pytestmark = pytest.mark.asyncio

QUICK = Reconnect(
    delay=timedelta(milliseconds=1),
    most=timedelta(milliseconds=20),
    give_up_after=timedelta(seconds=60),
)


def name() -> str:
    return f"t{uuid.uuid4().hex}"


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def events(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [event for one in caplog.records if (event := getattr(one, "event", None))]


async def opened(source: MqttSource[Any], position: object = None) -> Reader[Any]:
    return await source.reader((await source.splits())[0], position)


async def read(reader: Reader[Any], count: int) -> tuple[list[Any], Any]:
    """Read ``count`` values. Return them, and the position after them."""
    found: list[Any] = []
    position: Any = None
    async with asyncio.timeout(300):
        while len(found) < count:
            chunk = await reader.read(count - len(found))
            assert chunk is not None
            found += chunk.values
            position = chunk.position
    return found, position


async def until_chunk(reader: Reader[Any], wanted: Callable[[Chunk[Any]], bool]) -> Chunk[Any]:
    async with asyncio.timeout(300):
        while True:
            chunk = await reader.read(100)
            assert chunk is not None
            if wanted(chunk):
                return chunk


class Ending(MqttSource[int]):
    """Ends after the message 5, since an MQTT source has no end."""

    bounded = True

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return EndingReader(await super().reader(split, position), position)


class EndingReader(Reader[int]):
    def __init__(self, reader: Reader[int], position: Any) -> None:
        self._reader = reader
        self._over = position is not None and position[0] == 6

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._over:
            return None
        chunk = await self._reader.read(limit)
        self._over = chunk is not None and 5 in chunk.values
        return chunk

    async def close(self) -> None:
        await self._reader.close()


async def test_it_keeps_the_contract_of_sources(mqtt: Mqtt) -> None:
    topic = name()
    await mqtt.subscribed(topic, topic)
    await mqtt.publish(topic, numbers(6))

    await check_source(
        lambda: Ending(mqtt.url, topic, client_id=topic, of=int), expected=list(range(6))
    )


async def test_messages_of_filters_have_topic_and_user_properties(mqtt: Mqtt) -> None:
    topic = name()
    source = MqttSource(
        mqtt.url, [f"{topic}/+/x", f"{topic}/deep/#"], client_id=topic, of=int, messages=True
    )
    reader = await opened(source)
    properties: Any = import_module("paho.mqtt.properties").Properties(3)
    properties.UserProperty = [("a", "é"), ("a", "2")]

    await mqtt.publish(f"{topic}/one/x", [b"1"], properties=properties)
    await mqtt.publish(f"{topic}/one/y", [b"2"])
    await mqtt.publish(f"{topic}/deep/er/z", [b"3"])
    (first, second), _ = await read(reader, 2)
    await reader.close()

    assert (first.key, first.value) == (f"{topic}/one/x", 1)
    assert first.headers == (("a", "é".encode()), ("a", b"2"))
    assert (second.key, second.value, second.headers) == (f"{topic}/deep/er/z", 3, ())


@pytest.mark.parametrize("retained", [True, False])
async def test_retained_messages_are_read_when_the_session_begins(
    mqtt: Mqtt, retained: bool
) -> None:
    topic = name()
    await mqtt.publish(topic, [b"1"], retain=True)
    source = MqttSource(mqtt.url, topic, client_id=topic, of=int, messages=True, retained=retained)
    reader = await opened(source)
    await mqtt.publish(topic, [b"2"])
    expected = [(1, (("mqtt-retained", b"1"),))] if retained else []

    found, position = await read(reader, len(expected) + 1)
    await reader.on_checkpoint_completed(position)
    await reader.close()
    again = await opened(source, position)
    await mqtt.publish(topic, [b"3"])
    later, _ = await read(again, 1)
    await again.close()

    assert [(one.value, one.headers) for one in found] == [*expected, (2, ())]
    assert [one.value for one in later] == [3]


async def test_what_is_no_record_is_a_dead_letter_or_an_error(mqtt: Mqtt) -> None:
    topic = name()
    await mqtt.subscribed(topic, topic)
    await mqtt.publish(topic, [b"", b"{", b"2"])
    bad = Tag[BadRecord]("bad")
    reader = await opened(MqttSource(mqtt.url, topic, client_id=topic, of=int, dead_letters=bad))

    rejected: list[str] = []

    def count(chunk: Chunk[Any]) -> bool:
        rejected.extend(one.place for one in chunk.rejected)
        return bool(chunk.values)

    chunk = await until_chunk(reader, count)
    await reader.close()

    assert chunk.values == [2]
    assert rejected == [f"{topic}, message 1", f"{topic}, message 2"]
    strict = await opened(MqttSource(mqtt.url, topic, client_id=topic, of=int))
    with pytest.raises(SourceError, match="message 1: not JSON"):
        await read(strict, 1)
    await strict.close()


async def test_empty_messages_and_those_of_ten_megabytes_are_read(mqtt: Mqtt) -> None:
    topic = name()
    large = b"x" * 10_000_000
    reader = await opened(MqttSource(mqtt.url, topic, client_id=topic, format=Raw()))

    await mqtt.publish(topic, [b"", large, b"b"])

    assert (await read(reader, 3))[0] == [b"", large, b"b"]
    await reader.close()


async def test_only_a_completed_checkpoint_acknowledges(mqtt: Mqtt) -> None:
    topic = name()
    source = MqttSource(mqtt.url, topic, client_id=topic, of=int)
    reader = await opened(source)
    await mqtt.publish(topic, numbers(10))

    _, position = await read(reader, 4)
    await read(reader, 3)
    await reader.on_checkpoint_completed(position)
    await reader.close()

    again = await opened(source)  # without the ids of the checkpoint
    assert (await read(again, 6))[0] == [4, 5, 6, 7, 8, 9]
    await again.close()


async def test_messages_before_the_restored_position_are_dropped_and_then_acknowledged(
    mqtt: Mqtt,
) -> None:
    topic = name()
    source = MqttSource(mqtt.url, topic, client_id=topic, of=int)
    reader = await opened(source)
    await mqtt.publish(topic, [b"7"] * 10)  # packet ids tell equal messages apart
    _, position = await read(reader, 4)
    await reader.close()  # the acknowledgement is lost

    restored = await opened(source, PLAIN.decode(PLAIN.encode(position)))
    rest, end = await read(restored, 6)
    await restored.on_checkpoint_completed(end)
    await restored.close()

    assert rest == [7] * 6
    assert await mqtt.messages(topic) == []


async def test_a_cut_connection_loses_and_repeats_nothing(mqtt: Mqtt) -> None:
    topic = name()
    await mqtt.subscribed(topic, topic)
    await mqtt.publish(topic, numbers(600))

    async with Proxy(mqtt.host, mqtt.port) as proxy:
        host, port = proxy.address
        source = MqttSource(
            f"mqtt://{host}:{port}",
            topic,
            client_id=topic,
            of=int,
            reconnect=QUICK,
        )
        reader = await opened(source)
        found: list[int] = []
        while len(found) < 600:
            some, position = await read(reader, 100)
            found += some
            proxy.cut()
            await asyncio.sleep(0)
            await reader.on_checkpoint_completed(position)
            some, position = await read(reader, 50)
            found += some
            await reader.on_checkpoint_completed(position)
        await reader.close()

    assert found == list(range(600))


async def test_more_messages_than_the_prefetch_wait_for_a_checkpoint(
    mqtt: Mqtt, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow_connectors.delivery_pause._STALLED", 0.01)
    topic = name()
    reader = await opened(MqttSource(mqtt.url, topic, client_id=topic, of=int, prefetch=4))
    await mqtt.publish(topic, numbers(6))
    _, position = await read(reader, 4)

    waiting = asyncio.create_task(read(reader, 2))
    async with asyncio.timeout(300):
        while "prefetch_exhausted" not in events(caplog):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not waiting.done()
    await reader.on_checkpoint_completed(position)

    assert (await waiting)[0] == [4, 5]
    await reader.close()


async def test_a_source_without_messages_is_idle_once(mqtt: Mqtt) -> None:
    topic = name()
    idle_after = timedelta(milliseconds=1)
    reader = await opened(
        MqttSource(mqtt.url, topic, client_id=topic, of=int, idle_after=idle_after)
    )

    idle = await until_chunk(reader, lambda chunk: chunk.idle)
    waiting = asyncio.create_task(reader.read(10))
    await mqtt.publish(topic, [b"1"])
    chunk = await waiting
    await reader.close()

    assert idle.values == []
    assert chunk is not None
    assert (chunk.values, chunk.idle) == ([1], False)


@pytest.mark.parametrize("policy", ["fail", "continue"])
async def test_a_session_that_the_broker_has_lost_is_not_passed_over(
    mqtt: Mqtt, policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = name()
    source = MqttSource(mqtt.url, topic, client_id=topic, of=int, on_lost_session=policy)
    reader = await opened(source)
    first = await reader.read(1)
    await reader.close()
    assert first is not None
    async with mqtt.client(identifier=topic, clean_start=True):
        pass

    if policy == "fail":
        for _ in "first start", "restart":
            with pytest.raises(SourceError, match="does not have the session any more"):
                await opened(source, first.position)
        return
    again = await opened(source, first.position)
    await mqtt.publish(topic, [b"1"])
    assert (await read(again, 1))[0] == [1]
    await again.close()
    assert events(caplog) == ["session_lost"]


async def test_a_second_client_of_a_session_takes_it_over_and_is_suspected(
    mqtt: Mqtt, caplog: pytest.LogCaptureFixture
) -> None:
    topic = name()
    slow = Reconnect(delay=timedelta(hours=1), most=timedelta(hours=1))
    reader = await opened(MqttSource(mqtt.url, topic, client_id=topic, reconnect=slow))
    await reader.read(1)
    waiting = asyncio.create_task(reader.read(1))

    second = await opened(MqttSource(mqtt.url, topic, client_id=topic))
    async with asyncio.timeout(300):
        while "connection_lost" not in events(caplog):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    await reader.close()
    await second.close()

    assert f"is another client connected as '{topic}'?" in caplog.text


def guarded(broker: Mosquitto, topic: str, password: str) -> MqttSource[Any]:
    user = WITH_PASSWORD[0]
    url = f"mqtt://{user}:{password.replace(' ', '%20')}@127.0.0.1:{broker.closed_port}"
    return MqttSource(url, topic, client_id=name())


async def test_wrong_credentials_fail_at_once_and_are_not_shown(own_broker: Mosquitto) -> None:
    reader = await opened(guarded(own_broker, "allowed/x", WITH_PASSWORD[1]))
    await reader.close()

    with pytest.raises(SourceError, match="refuses the connection") as caught:
        async with asyncio.timeout(300):
            await opened(guarded(own_broker, "allowed/x", "my-secret"))

    assert "my-secret" not in str(caught.value)


async def test_a_server_that_is_away_is_an_error_after_a_time() -> None:
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=20))
    source = MqttSource("mqtt://u:my-secret@127.0.0.1:1", "t", client_id="c", reconnect=reconnect)

    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1.*give_up_after") as caught:
        await opened(source)

    assert "my-secret" not in str(caught.value)


async def test_a_position_of_another_source_is_refused(mqtt: Mqtt) -> None:
    with pytest.raises(SourceError, match="of another kind of source"):
        await opened(MqttSource(mqtt.url, "t", client_id=name()), {"line": 3})


async def test_a_job_needs_checkpoints_and_stops_with_acknowledged_messages(
    mqtt: Mqtt, tmp_path: Any
) -> None:
    topic = name()
    await mqtt.subscribed(topic, topic)
    await mqtt.publish(topic, numbers(300))

    def flow() -> tuple[af.Flow, CollectSink[int]]:
        flow, out = af.Flow("one"), CollectSink[int]()
        source = MqttSource(mqtt.url, topic, client_id=topic, of=int, prefetch=100)
        flow.source(source, name="in").to(out, name="out")
        return flow, out

    with pytest.raises(AflowError, match="checkpointing="):
        await flow()[0].run()
    running, out = flow()
    checkpointing = af.Checkpointing(storage=tmp_path, every=timedelta(milliseconds=20))
    async with running.start(checkpointing=checkpointing) as job:
        async with asyncio.timeout(300):
            while len(out.values) < 300:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await job.stop()

    assert out.values == list(range(300))


async def test_a_message_that_ends_a_wait_does_not_make_a_source_idle(
    mqtt: Mqtt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow_connectors.mqtt.session_reader._SLICE", 30.0)
    topic = name()
    idle_after = timedelta(microseconds=1)
    reader = await opened(
        MqttSource(mqtt.url, topic, client_id=topic, of=int, idle_after=idle_after)
    )
    await reader.read(10)  # the start

    waiting = asyncio.create_task(reader.read(10))
    await mqtt.publish(topic, [b"1"])
    chunk = await waiting
    await reader.close()

    assert chunk is not None
    assert (chunk.values, chunk.idle) == ([1], False)


async def test_a_connection_sends_small_packets_at_once(
    mqtt: Mqtt, monkeypatch: pytest.MonkeyPatch
) -> None:
    aiomqtt: Any = import_module("aiomqtt")
    create, clients = aiomqtt.Client, list[Any]()

    def create_and_keep(**settings: Any) -> Any:
        clients.append(create(**settings))
        return clients[-1]

    monkeypatch.setattr("aflow_connectors.mqtt.client.aiomqtt.Client", create_and_keep)
    topic = name()
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]

    reader = await opened(
        MqttSource(mqtt.url, topic, client_id=topic, client={"socket_options": options})
    )
    connected: socket.socket = clients[-1]._client.socket()
    found = [
        connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    ]
    await reader.close()

    assert all(found)
