"""``RabbitmqSource`` against a server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

import aflow as af
from aflow.connect import BadRecord, SourceError, Tag
from aflow.errors import AflowError
from aflow.model.codecs import PLAIN
from aflow.testing import CollectSink, check_source
from aflow_connectors.formats import Raw
from aflow_connectors.rabbitmq import RabbitmqSource
from aflow_connectors.reconnect import Reconnect
from tests.connectors.proxy import Proxy
from tests.connectors.rabbitmq.reading import QUICK, all_chunks, opened, read, until_chunk, values
from tests.connectors.rabbitmq.server import Rabbit

pytestmark = pytest.mark.asyncio


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def events(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [event for one in caplog.records if (event := getattr(one, "event", None))]


async def test_it_keeps_the_contract_of_sources(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    await rabbit.publish(queue, numbers(6))

    await check_source(
        lambda: RabbitmqSource(rabbit.url, queue, of=int, until="now"), expected=list(range(6))
    )


async def test_messages_have_routing_key_headers_timestamp_and_id(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    headers = {"text": "é", "raw": bytearray(b"\xff"), "number": 7, "list": [1, "a"], "none": None}
    await rabbit.publish(queue, [b'{"a": 1}'], ["first"], headers=[headers], timestamp=at)
    await rabbit.publish(
        queue, [b"2"], ["second"], headers=[{"timestamp_in_ms": 1234}], timestamp=at
    )
    source = RabbitmqSource(rabbit.url, queue, of=object, messages=True, until="now")

    first, second = await values(await opened(source), 2)

    expected = (
        ("text", "é".encode()),
        ("raw", b"\xff"),
        ("number", b"7"),
        ("list", b'[1,"a"]'),
        ("none", b"null"),
    )
    assert dict(first.headers) == dict(expected)
    assert (first.key, first.value, first.origin, first.offset) == (
        queue,
        {"a": 1},
        queue,
        "first",
    )
    assert first.timestamp == int(at.timestamp() * 1000)
    assert second.timestamp == 1234


async def test_what_is_no_record_is_a_dead_letter_or_an_error(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    await rabbit.publish(queue, [b"1", b"", b"{", b"2"], ["a", "b", "c", "d"])
    bad = Tag[BadRecord]("bad")

    reader = await opened(RabbitmqSource(rabbit.url, queue, of=int, dead_letters=bad, until="now"))
    chunks = await all_chunks(reader)
    await reader.close()

    assert [value for chunk in chunks for value in chunk.values] == [1, 2]
    places = [one.place for chunk in chunks for one in chunk.rejected]
    assert places == [f"{queue}, message b", f"{queue}, message c"]
    with pytest.raises(SourceError, match="message b: not JSON"):
        await values(await opened(RabbitmqSource(rabbit.url, queue, of=int, until="now")), 2)


async def test_empty_messages_and_those_of_ten_megabytes_are_read(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    large = b"x" * 10_000_000
    await rabbit.publish(queue, [b"", large, b"b"])

    source = RabbitmqSource(rabbit.url, queue, format=Raw(), until="now")

    assert await values(await opened(source), 3) == [b"", large, b"b"]


async def test_only_a_completed_checkpoint_acknowledges(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    await rabbit.publish(queue, numbers(10))
    reader = await opened(RabbitmqSource(rabbit.url, queue, of=int))

    _, position = await read(reader, 4)
    await read(reader, 3)
    await reader.on_checkpoint_completed(position)
    await reader.close()

    left = await values(await opened(RabbitmqSource(rabbit.url, queue, of=int, until="now")), 99)
    assert left == [4, 5, 6, 7, 8, 9]


async def test_messages_before_the_restored_position_are_dropped_and_then_acknowledged(
    rabbit: Rabbit,
) -> None:
    queue = await rabbit.create()
    await rabbit.publish(queue, numbers(10))
    source = RabbitmqSource(rabbit.url, queue, of=int, until="now")
    reader = await opened(source)
    _, position = await read(reader, 4)
    await reader.close()  # the acknowledgement is lost

    restored = await opened(source, PLAIN.decode(PLAIN.encode(position)))
    rest, end = await read(restored, 99)
    await restored.on_checkpoint_completed(end)
    await restored.close()

    assert rest == [4, 5, 6, 7, 8, 9]
    assert await rabbit.count(queue) == 0


async def test_no_message_is_read_twice_though_a_restart_has_a_smaller_prefetch(
    rabbit: Rabbit,
) -> None:
    queue = await rabbit.create()
    await rabbit.publish(queue, numbers(160))
    reader = await opened(RabbitmqSource(rabbit.url, queue, of=int, prefetch=150, remember=0))
    found, position = await read(reader, 150)
    await reader.close()  # the acknowledgement is lost

    restored = await opened(
        RabbitmqSource(rabbit.url, queue, of=int, prefetch=20, remember=0), position
    )
    reading = asyncio.create_task(read(restored, 10))
    async with asyncio.timeout(300):
        while not reading.done():
            # Each checkpoint acknowledges the messages of before that were delivered again.
            await restored.on_checkpoint_completed(position)
            await asyncio.sleep(0.01)
    rest, end = await reading
    await restored.on_checkpoint_completed(end)
    await restored.close()

    assert found + rest == list(range(160))
    assert await rabbit.count(queue) == 0


async def test_a_message_that_is_published_twice_is_read_once(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    await rabbit.publish(queue, [b"1", b"1", b"2"], ["a", "a", "b"])

    assert await values(
        await opened(RabbitmqSource(rabbit.url, queue, of=int, until="now")), 9
    ) == [1, 2]
    at_least_once = RabbitmqSource(rabbit.url, queue, of=int, until="now", exactly_once=False)
    assert await values(await opened(at_least_once), 9) == [1, 1, 2]


async def test_messages_without_id_are_read_again_with_a_warning(
    rabbit: Rabbit, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await rabbit.create()
    await rabbit.publish_without_ids(queue, numbers(3))
    source = RabbitmqSource(rabbit.url, queue, of=int, messages=True, until="now")
    reader = await opened(source)
    first, position = await read(reader, 2)
    await reader.close()

    again = await values(await opened(source, position), 9)

    assert [one.offset for one in first] == [1, 2]
    assert [one.value for one in again] == [0, 1, 2]
    assert events(caplog) == ["no_message_id"] * 2


async def test_a_cut_connection_loses_and_repeats_nothing(
    rabbit: Rabbit, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await rabbit.create()
    await rabbit.publish(queue, numbers(3000))
    server = urlsplit(rabbit.url)
    assert server.hostname is not None

    async with Proxy(server.hostname, server.port or 5672) as proxy:
        host, port = proxy.address
        url = f"amqp://{server.username}:{server.password}@{host}:{port}{server.path}"
        reader = await opened(RabbitmqSource(url, queue, of=int, prefetch=600, reconnect=QUICK))
        found: list[int] = []
        position: object = None
        while len(found) < 3000:
            some, position = await read(reader, 300)
            found += some
            proxy.cut()
            await reader.on_checkpoint_completed(position)
            # Else nothing is acknowledged on the lost connection.
            some, position = await read(reader, 200)
            found += some
            await reader.on_checkpoint_completed(position)
        waiting = asyncio.create_task(reader.read(1))  # connects again
        async with asyncio.timeout(300):
            while await rabbit.count(queue):
                await reader.on_checkpoint_completed(position)
        waiting.cancel()
        await asyncio.wait([waiting])
        await reader.close()

    assert found == list(range(3000))
    assert "connection_lost" in events(caplog)


async def test_an_exhausted_prefetch_is_reported_and_ends_with_a_checkpoint(
    rabbit: Rabbit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow_connectors.delivery_pause._STALLED", 0.01)
    queue = await rabbit.create()
    await rabbit.publish(queue, numbers(10))
    reader = await opened(RabbitmqSource(rabbit.url, queue, of=int, prefetch=4))
    _, position = await read(reader, 4)

    waiting = asyncio.create_task(read(reader, 2))
    async with asyncio.timeout(300):
        while "prefetch_exhausted" not in events(caplog):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not waiting.done()
    await reader.on_checkpoint_completed(position)

    assert (await waiting)[0] == [4, 5]
    await reader.close()


async def test_a_queue_without_messages_is_idle_once(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    source = RabbitmqSource(rabbit.url, queue, of=int, idle_after=timedelta(milliseconds=1))
    reader = await opened(source)

    idle = await until_chunk(reader, lambda chunk: chunk.idle)
    waiting = asyncio.create_task(reader.read(10))
    await rabbit.publish(queue, [b"1"])
    chunk = await waiting
    await reader.close()

    assert idle.values == []
    assert chunk is not None
    assert (chunk.values, chunk.idle) == ([1], False)


async def test_a_queue_has_one_consumer(rabbit: Rabbit) -> None:
    queue = await rabbit.create()
    short = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=20))
    first = await opened(RabbitmqSource(rabbit.url, queue))

    with pytest.raises(SourceError, match="has another consumer"):
        await opened(RabbitmqSource(rabbit.url, queue, reconnect=short))
    await first.close()


async def test_a_queue_that_is_missing_or_deleted_is_an_error(rabbit: Rabbit) -> None:
    with pytest.raises(SourceError, match="there is no queue 'missing'; create it first"):
        await opened(RabbitmqSource(rabbit.url, "missing"))
    queue = await rabbit.create()
    reader = await opened(RabbitmqSource(rabbit.url, queue, reconnect=QUICK))

    waiting = asyncio.create_task(reader.read(1))
    await rabbit.delete(queue)

    with pytest.raises(SourceError, match="there is no queue"):
        await waiting
    await reader.close()


async def test_wrong_credentials_fail_at_once_and_are_not_shown(rabbit: Rabbit) -> None:
    host = rabbit.url.rpartition("@")[2]

    with pytest.raises(SourceError, match="refuses the connection") as caught:
        async with asyncio.timeout(300):
            await opened(RabbitmqSource(f"amqp://guest:my-secret@{host}", "q"))

    assert "my-secret" not in str(caught.value)
    with pytest.raises(SourceError, match="does the virtual host exist"):
        await opened(RabbitmqSource(f"{rabbit.url.rstrip('/')}/missing", "q"))


async def test_a_server_that_is_away_is_an_error_after_a_time() -> None:
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=20))
    source = RabbitmqSource("amqp://u:my-secret@127.0.0.1:1/", "q", reconnect=reconnect)

    with pytest.raises(
        SourceError, match=r"give_up_after.*127\.0\.0\.1:1/ cannot be reach"
    ) as caught:
        await opened(source)

    assert "my-secret" not in str(caught.value)


async def test_a_position_of_another_source_is_refused(rabbit: Rabbit) -> None:
    queue = await rabbit.create()

    with pytest.raises(SourceError, match="of another kind of source"):
        await opened(RabbitmqSource(rabbit.url, queue), {"line": 3})


async def test_a_job_needs_checkpoints_and_empties_the_queue(rabbit: Rabbit, tmp_path: Any) -> None:
    first, second = await rabbit.create(), await rabbit.create(kind="quorum")
    await rabbit.publish(first, numbers(500))
    await rabbit.publish(second, [b"%d" % n for n in range(500, 1000)])

    def flow() -> tuple[af.Flow, CollectSink[int]]:
        flow, out = af.Flow("two"), CollectSink[int]()
        source = RabbitmqSource(rabbit.url, [first, second], of=int, until="now", prefetch=100)
        flow.source(source, name="in").to(out, name="out")
        return flow, out

    with pytest.raises(AflowError, match="checkpointing="):
        await flow()[0].run()
    running, out = flow()
    every = timedelta(milliseconds=20)
    await running.run(parallelism=2, checkpointing=af.Checkpointing(storage=tmp_path, every=every))

    assert sorted(out.values) == list(range(1000))
    assert await rabbit.count(first) == await rabbit.count(second) == 0


async def test_a_message_that_ends_a_wait_does_not_make_a_queue_idle(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow_connectors.rabbitmq.queue_reader._SLICE", 30.0)
    queue = await rabbit.create()
    idle_after = timedelta(microseconds=1)
    reader = await opened(RabbitmqSource(rabbit.url, queue, of=int, idle_after=idle_after))

    waiting = asyncio.create_task(reader.read(10))
    await rabbit.publish(queue, [b"1"])
    chunk = await waiting
    await reader.close()

    assert chunk is not None
    assert (chunk.values, chunk.idle) == ([1], False)
