"""A consumer of a group at the end of its stream: idleness, the end of a bounded job, and its last acknowledgement."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aflow_connectors.deliveries import DeliveryLedger
from tests.connectors.proxy import Proxy
from tests.connectors.redis.server import TestServer
from tests.connectors.redis.shared_streams import (
    QUICK,
    events,
    fill,
    next_chunk,
    opened,
    pending,
    read,
    read_all,
    shared,
)

#: The number of pending entries up to an id.
PENDING = "return #redis.call('XPENDING', KEYS[1], 'group', '-', ARGV[1], 1000)"


@pytest.mark.asyncio
async def test_a_stream_is_not_idle_before_new_entries_were_looked_for(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, 0)
    reader = await opened(shared(redis_server, stream, idle_after=timedelta(microseconds=1)))
    async with asyncio.timeout(300):
        await reader.read(10)  # the group
        first = await reader.read(10)
        second = await reader.read(10)
    await reader.close()

    assert first is not None
    assert second is not None
    assert ([one["n"] for one in first.values], first.idle) == (["0"], False)
    assert (second.values, second.idle) == ([], True)


@pytest.mark.asyncio
async def test_an_outage_does_not_make_a_stream_idle(redis_server: TestServer, stream: str) -> None:
    fill(redis_server, stream, 0)
    async with Proxy(*redis_server.host_and_port) as proxy:
        source = shared(
            redis_server,
            stream,
            url=redis_server.url_via(proxy.address),
            reconnect=QUICK,
            idle_after=timedelta(milliseconds=400),
        )
        reader = await opened(source)
        await read(reader, 1)

        proxy.refuse()
        reading = asyncio.create_task(reader.read(10))
        await asyncio.sleep(0.45)
        fill(redis_server, stream, 1, 2)
        proxy.accept()
        async with asyncio.timeout(300):
            chunk = await reading
        await reader.close()

    assert chunk is not None
    assert ([one["n"] for one in chunk.values], chunk.idle) == (["1", "2"], False)


@pytest.mark.asyncio
async def test_entries_behind_a_stall_are_read_before_the_stream_is_idle(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(4))
    idle_after = timedelta(milliseconds=100)
    reader = await opened(shared(redis_server, stream, prefetch=2, idle_after=idle_after))
    _, position = await read(reader, 2)

    reading = asyncio.create_task(reader.read(10))
    await asyncio.sleep(0.25)
    await reader.on_checkpoint_completed(position)
    async with asyncio.timeout(300):
        chunk = await reading
    await reader.close()

    assert chunk is not None
    assert ([one["n"] for one in chunk.values], chunk.idle) == (["2", "3"], False)


@pytest.mark.asyncio
async def test_a_bounded_job_ends_on_a_stream_whose_entries_were_all_removed(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(3))
    redis_server.command("XTRIM", stream, "MAXLEN", 0)

    assert await read_all(shared(redis_server, stream, until="now")) == []


@pytest.mark.asyncio
async def test_a_bounded_job_ends_without_the_last_entry(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, 0, 1)
    last = redis_server.add(stream, {"n": 2})
    redis_server.command("XDEL", stream, *last)

    assert await read_all(shared(redis_server, stream, until="now")) == [0, 1]


@pytest.mark.asyncio
async def test_a_bounded_job_ends_if_all_undelivered_entries_were_removed(
    redis_server: TestServer, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(redis_server, stream, *range(3))
    reader = await opened(shared(redis_server, stream, prefetch=1))
    _, position = await read(reader, 1)
    await reader.on_checkpoint_completed(position)
    await reader.close()
    redis_server.command("XTRIM", stream, "MAXLEN", 0)

    source = shared(redis_server, stream, until="now", on_lost_entries="earliest")
    assert await read_all(source, position) == []
    assert events(caplog) == ["entries_lost"]


@pytest.mark.asyncio
async def test_a_bounded_job_ends_while_producers_go_on(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(10))
    reader = await opened(shared(redis_server, stream, prefetch=5, until="now"))
    fill(redis_server, stream, *range(10, 30))

    found, position = await read(reader, 5)
    await reader.on_checkpoint_completed(position)
    rest, _ = await read(reader, 1_000)  # no checkpoint is needed for the end
    await reader.close()

    assert found + rest == list(range(10))


@pytest.mark.asyncio
async def test_the_last_acknowledgement_of_a_bounded_job_is_repeated(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(3))
    async with Proxy(*redis_server.host_and_port) as proxy:
        url = redis_server.url_via(proxy.address)
        source = shared(redis_server, stream, url=url, reconnect=QUICK, until="now")
        reader = await opened(source)
        found, position = await read(reader, 1_000)

        proxy.cut()
        await reader.on_checkpoint_completed(position)
        await reader.close()

    assert found == [0, 1, 2]
    assert pending(redis_server, stream) == 0


@pytest.mark.asyncio
async def test_a_checkpoint_between_pages_of_pending_entries_settles_none_of_them(
    redis_server: TestServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow_connectors.redis.shared_reader._PAGE", 3)
    fill(redis_server, stream, *range(60))
    reader = await opened(shared(redis_server, stream))
    _, position = await read(reader, 40)
    await reader.close()  # the acknowledgement is lost
    last = redis_server.command("XRANGE", stream, "-", "+", "COUNT", 40)[-1][0]
    left: list[int] = []
    settle = DeliveryLedger.settle

    def settle_and_count(ledger: DeliveryLedger, covered: int) -> None:
        left.append(redis_server.command("EVAL", PENDING, 1, stream, last))
        settle(ledger, covered)

    monkeypatch.setattr(DeliveryLedger, "settle", settle_and_count)

    restored = await opened(shared(redis_server, stream, until="now"), position)
    rest: list[int] = []
    end = position
    async with asyncio.timeout(300):
        while (chunk := await next_chunk(restored, end)) is not None:
            rest += [int(one["n"]) for one in chunk.values]
            end = chunk.position
    await restored.on_checkpoint_completed(end)
    await restored.close()

    assert rest == list(range(40, 60))
    assert set(left) == {0}  # the ids of entries that are pending are kept
    assert pending(redis_server, stream) == 0
