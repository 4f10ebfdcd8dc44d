"""``RabbitmqStreamSource`` against a server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from aflow.connect import BadRecord, Chunk, SourceError, Tag
from aflow.testing import check_source
from aflow_connectors.formats import Raw
from aflow_connectors.rabbitmq import RabbitmqStreamSource
from tests.connectors.proxy import Proxy
from tests.connectors.rabbitmq.reading import QUICK, all_chunks, opened, read, until_chunk, values
from tests.connectors.rabbitmq.server import Rabbit

pytestmark = pytest.mark.asyncio


async def filled(rabbit: Rabbit, count: int, **arguments: object) -> str:
    stream = await rabbit.create(kind="stream", **arguments)
    await rabbit.publish(stream, [b"%d" % n for n in range(count)])
    return stream


async def test_it_keeps_the_contract_of_sources(rabbit: Rabbit) -> None:
    stream = await filled(rabbit, 6)

    await check_source(
        lambda: RabbitmqStreamSource(rabbit.url, stream, of=int, until="now"),
        expected=list(range(6)),
    )


async def test_an_empty_stream_ends_at_once(rabbit: Rabbit) -> None:
    stream = await filled(rabbit, 0)

    assert (
        await values(await opened(RabbitmqStreamSource(rabbit.url, stream, until="now")), 9) == []
    )


async def test_empty_messages_and_those_of_ten_megabytes_are_read(rabbit: Rabbit) -> None:
    stream = await rabbit.create(kind="stream")
    large = b"x" * 10_000_000
    await rabbit.publish(stream, [b"", large, b"b"])

    source = RabbitmqStreamSource(rabbit.url, stream, format=Raw(), until="now")

    assert await values(await opened(source), 3) == [b"", large, b"b"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [0, 1, 2, 3]),
        ("latest", [3]),
        (1, [1, 2, 3]),
        (datetime.fromtimestamp(1.5, UTC), [0, 1, 2, 3]),
        (datetime(2200, 1, 1, tzinfo=UTC), [3]),
    ],
    ids=["earliest", "latest", "offset", "time", "future"],
)
async def test_start_chooses_the_first_message(
    rabbit: Rabbit, start: Any, expected: list[int]
) -> None:
    stream = await filled(rabbit, 3)

    reader = await opened(RabbitmqStreamSource(rabbit.url, stream, of=int, start=start))
    await rabbit.publish(stream, [b"3"])

    assert await values(reader, len(expected)) == expected


async def test_the_first_position_keeps_the_start_for_a_restart(rabbit: Rabbit) -> None:
    stream = await filled(rabbit, 1)
    source = RabbitmqStreamSource(rabbit.url, stream, of=int, start="latest")
    reader = await opened(source)

    chunk = await reader.read(10)
    await reader.close()
    await rabbit.publish(stream, [b"1"])

    assert chunk == Chunk([], 1)
    assert await values(await opened(source, 1), 1) == [1]


async def test_a_restart_ends_where_the_first_run_would_have(rabbit: Rabbit) -> None:
    stream = await filled(rabbit, 2)
    source = RabbitmqStreamSource(rabbit.url, stream, of=int, until="now")
    reader = await opened(source)
    start = await reader.read(1)
    await reader.close()
    assert start is not None

    await rabbit.publish(stream, [b"2"])

    assert await values(await opened(source, start.position), 9) == [0, 1]


@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
async def test_messages_that_were_removed_are_never_skipped_silently(
    rabbit: Rabbit, policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await filled(rabbit, 0, max_length_bytes=1000, stream_max_segment_size_bytes=500)
    for part in range(8):
        await rabbit.publish(stream, [b"%d" % (part * 20 + n) for n in range(20)])
    source = RabbitmqStreamSource(rabbit.url, stream, of=int, on_lost_offsets=policy)

    if policy == "fail":
        with pytest.raises(SourceError, match="offset 3 does not exist: the stream has"):
            await opened(source, 3)
        return
    reader = await opened(source, 3)
    await rabbit.publish(stream, [b"160"])
    (first,) = await values(reader, 1)

    assert first == 160 if policy == "latest" else 3 < first <= 160
    events = [event for one in caplog.records if (event := getattr(one, "event", None))]
    assert events == ["offsets_lost"]


async def test_the_end_of_a_stream_whose_last_chunk_has_no_messages_is_found(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only RabbitMQ decides when it writes such a chunk.
    monkeypatch.setattr("aflow_connectors.rabbitmq.stream_reader._ATTEMPTS", 0)
    stream = await filled(rabbit, 100)

    found = await values(
        await opened(RabbitmqStreamSource(rabbit.url, stream, of=int, until="now")), 999
    )

    assert found == list(range(100))


async def test_an_offset_after_the_end_is_an_error(rabbit: Rabbit) -> None:
    stream = await filled(rabbit, 3)

    with pytest.raises(SourceError, match="offset 9 does not exist: the stream has 0 to 3"):
        await opened(RabbitmqStreamSource(rabbit.url, stream), 9)


async def test_what_is_no_record_is_a_dead_letter_with_its_offset(rabbit: Rabbit) -> None:
    stream = await filled(rabbit, 1)
    await rabbit.publish(stream, [b"", b"2"])
    bad = Tag[BadRecord]("bad")
    source = RabbitmqStreamSource(rabbit.url, stream, of=int, dead_letters=bad, until="now")

    reader = await opened(source)
    chunks = await all_chunks(reader)
    await reader.close()

    assert [value for chunk in chunks for value in chunk.values] == [0, 2]
    assert [one.place for chunk in chunks for one in chunk.rejected] == [f"{stream}, offset 1"]


async def test_a_cut_connection_loses_and_repeats_nothing(rabbit: Rabbit) -> None:
    stream = await filled(rabbit, 2000)
    server = urlsplit(rabbit.url)
    assert server.hostname is not None

    async with Proxy(server.hostname, server.port or 5672) as proxy:
        host, port = proxy.address
        url = f"amqp://{server.username}:{server.password}@{host}:{port}{server.path}"
        source = RabbitmqStreamSource(url, stream, of=int, prefetch=100, reconnect=QUICK)
        reader = await opened(source)
        found: list[int] = []
        while len(found) < 2000:
            found += (await read(reader, 400))[0]
            proxy.cut()
        await reader.close()

    assert found == list(range(2000))


async def test_a_stream_at_its_end_is_idle_once(rabbit: Rabbit) -> None:
    stream = await filled(rabbit, 1)
    idle_after = timedelta(milliseconds=1)
    reader = await opened(RabbitmqStreamSource(rabbit.url, stream, of=int, idle_after=idle_after))

    idle = await until_chunk(reader, lambda chunk: chunk.idle)
    waiting = asyncio.create_task(reader.read(10))
    await rabbit.publish(stream, [b"1"])
    chunk = await waiting
    await reader.close()

    assert (idle.position, idle.values) == (1, [])
    assert chunk == Chunk([1], 2, None, [])


async def test_a_stream_that_is_missing_is_an_error(rabbit: Rabbit) -> None:
    with pytest.raises(SourceError, match="there is no queue 'missing'"):
        await opened(RabbitmqStreamSource(rabbit.url, "missing"))


async def test_a_message_that_ends_a_wait_does_not_make_a_stream_idle(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow_connectors.rabbitmq.stream_reader._SLICE", 30.0)
    stream = await filled(rabbit, 0)
    idle_after = timedelta(microseconds=1)
    reader = await opened(RabbitmqStreamSource(rabbit.url, stream, of=int, idle_after=idle_after))
    await reader.read(10)  # the start

    waiting = asyncio.create_task(reader.read(10))
    await rabbit.publish(stream, [b"1"])
    chunk = await waiting
    await reader.close()

    assert chunk is not None
    assert (chunk.values, chunk.idle) == ([1], False)
