"""``NatsSource`` against a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import aflow as af
from aflow.connect import BadRecord, Chunk, Reader, SourceError, Tag
from aflow.testing import CollectSink, check_source
from aflow_connectors.formats import Raw
from aflow_connectors.message import Message
from aflow_connectors.nats import NatsSource
from aflow_connectors.nats import stream as stream_module
from aflow_connectors.reconnect import Reconnect
from tests.connectors.nats.server import NatsServer
from tests.connectors.proxy import Proxy

pytestmark = pytest.mark.asyncio

QUICK = Reconnect(delay=timedelta(milliseconds=1), most=timedelta(milliseconds=50))


async def opened(source: NatsSource[Any], position: object = None, split: int = 0) -> Reader[Any]:
    return await source.reader((await source.splits())[split], position)


async def values(reader: Reader[Any], count: int) -> list[Any]:
    """Read ``count`` values or to the end, and close the reader."""
    found: list[Any] = []
    try:
        async with asyncio.timeout(300):
            while len(found) < count and (chunk := await reader.read(100)) is not None:
                found += chunk.values
    finally:
        await reader.close()
    return found


async def until_chunk(reader: Reader[Any], wanted: Callable[[Chunk[Any]], bool]) -> Chunk[Any]:
    async with asyncio.timeout(300):
        while True:
            chunk = await reader.read(100)
            assert chunk is not None
            if wanted(chunk):
                return chunk


def texts(*numbers: int) -> list[bytes]:
    return [b"%d" % n for n in numbers]


async def delete(server: NatsServer, stream: str, sequence: int) -> None:
    await server.administer(lambda context: context._jsm.delete_msg(stream, sequence))


async def purge(server: NatsServer, stream: str, before: int) -> None:
    """Discard the messages before sequence ``before``, as a limit does."""
    await server.administer(lambda context: context._jsm.purge_stream(stream, seq=before))


@pytest.mark.slow
async def test_it_keeps_the_contract_of_sources(nats_server: NatsServer, stream: str) -> None:
    other = await nats_server.create(f"{stream}-other")
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(*range(5)))
    await nats_server.publish(other, *texts(*range(10, 20)))
    await delete(nats_server, other, 10)

    await check_source(
        lambda: NatsSource(nats_server.url, [stream, other], of=int, until="now"),
        expected=[*range(5), *range(10, 19)],
    )


async def test_messages_have_subject_headers_timestamp_and_sequence(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(f"{stream}.eu.7", b'{"a": 1}', headers={"h": "é"})
    source = NatsSource(nats_server.url, stream, of=dict, messages=True, until="now")
    now = datetime.now(UTC).timestamp() * 1000

    (message,) = await values(await opened(source), 1)

    assert message.timestamp is not None
    assert abs(message.timestamp - now) < 60_000
    assert message == Message(
        f"{stream}.eu.7",
        {"a": 1},
        (("h", "é".encode()),),
        message.timestamp,
        stream,
        None,
        1,
    )


async def test_what_is_no_record_is_a_dead_letter_or_an_error(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, b"1", b"", b"{", b"2")
    bad = Tag[BadRecord]("bad")
    tolerant = NatsSource(nats_server.url, stream, of=int, dead_letters=bad, until="now")

    reader = await opened(tolerant)
    chunk = await until_chunk(reader, lambda chunk: bool(chunk.values))
    await reader.close()

    assert chunk.values == [1, 2]
    assert [one.place for one in chunk.rejected] == [f"{stream}, message {n}" for n in (2, 3)]
    with pytest.raises(SourceError, match=f"{stream}, message 2: "):
        await values(await opened(NatsSource(nats_server.url, stream, of=int)), 2)


async def test_empty_messages_and_those_of_ten_megabytes_are_read(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    large = b"x" * 10_000_000
    await nats_server.publish(stream, b"a", large, large, b"")

    source = NatsSource(nats_server.url, stream, format=Raw(), until="now")
    found = await values(await opened(source), 4)

    assert [len(one) for one in found] == [1, 10_000_000, 10_000_000, 0]


async def test_a_subject_filters_the_messages(nats_server: NatsServer, stream: str) -> None:
    await nats_server.create(stream)
    for n in range(9):
        await nats_server.publish(f"{stream}.{n % 3}", b"%d" % n)
    source = NatsSource(nats_server.url, stream, of=int, subject=f"{stream}.1", until="now")

    reader = await opened(source)
    found: list[Any] = []
    positions: list[Any] = []
    while (chunk := await reader.read(1)) is not None:
        found += chunk.values
        positions.append(chunk.position)
    await reader.close()

    assert found == [1, 4, 7]
    assert [position[0] for position in positions] == [0, 2, 5, 8, 9]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [0, 1, 2, 7]),
        ("latest", [7]),
        (2, [1, 2, 7]),
        ("time", [2, 7]),
        (datetime(2020, 1, 1, tzinfo=UTC), [0, 1, 2, 7]),
        (datetime(2200, 1, 1, tzinfo=UTC), [7]),
    ],
    ids=["earliest", "latest", "sequence", "time", "past", "future"],
)
async def test_start_chooses_the_first_message(
    nats_server: NatsServer, stream: str, start: Any, expected: list[int]
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(0, 1))
    await asyncio.sleep(0.01)  # time of the server
    between = datetime.now(UTC)
    await nats_server.publish(stream, *texts(2))
    if start == "time":
        start = between
    if isinstance(start, int):
        start = {stream: start}

    reader = await opened(NatsSource(nats_server.url, stream, of=int, start=start))
    await nats_server.publish(stream, *texts(7))

    assert await values(reader, len(expected)) == expected


async def test_a_sequence_as_start_must_be_of_the_stream(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)

    with pytest.raises(SourceError, match="no sequence for stream"):
        await opened(NatsSource(nats_server.url, stream, start={"other": 1}))
    with pytest.raises(SourceError, match=r"has 5 for stream .* which ends at 0"):
        await opened(NatsSource(nats_server.url, stream, start={stream: 5}))


async def test_the_first_position_keeps_the_start_for_a_restart(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(0))
    source = NatsSource(nats_server.url, stream, of=int, start="latest")
    reader = await opened(source)

    chunk = await reader.read(10)
    await reader.close()
    await nats_server.publish(stream, *texts(1))

    assert chunk is not None
    assert chunk.values == []
    assert await values(await opened(source, chunk.position), 1) == [1]


async def test_a_restart_ends_where_the_first_run_would_have(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(0, 1))
    source = NatsSource(nats_server.url, stream, of=int, until="now")
    reader = await opened(source)
    start = await reader.read(1)
    await reader.close()
    assert start is not None

    await nats_server.publish(stream, *texts(2))

    assert await values(await opened(source, start.position), 9) == [0, 1]


async def read_two(server: NatsServer, stream: str) -> object:
    """Publish six messages and read the first two. Return the position."""
    await server.create(stream)
    await server.publish(stream, *texts(*range(1, 7)))
    reader = await opened(NatsSource(server.url, stream, of=int))
    await reader.read(10)
    chunk = await reader.read(2)
    assert chunk is not None
    await reader.close()
    return chunk.position


async def test_discarding_what_was_read_is_no_loss(nats_server: NatsServer, stream: str) -> None:
    position = await read_two(nats_server, stream)
    await purge(nats_server, stream, 3)

    reader = await opened(NatsSource(nats_server.url, stream, of=int), position)

    assert await values(reader, 4) == [3, 4, 5, 6]


@pytest.mark.parametrize("first", [4, 6, 7])
async def test_lost_messages_are_an_error_with_the_sequences(
    nats_server: NatsServer, stream: str, first: int
) -> None:
    position = await read_two(nats_server, stream)
    await purge(nats_server, stream, first)

    with pytest.raises(SourceError, match=f"after message 2: its messages from 3 to {first - 1} "):
        await values(await opened(NatsSource(nats_server.url, stream, of=int), position), 1)


async def test_messages_discarded_while_a_reader_works_are_noticed(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(*range(1100)))
    reader = await opened(NatsSource(nats_server.url, stream, of=int))
    await until_chunk(reader, lambda chunk: bool(chunk.values))

    await purge(nats_server, stream, 1090)

    # What the client has already is no loss.
    with pytest.raises(SourceError, match=r"its messages from 1025 to 1089 were discarded"):
        await values(reader, 1100)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [5, 6, 7]), ("latest", [7])])
async def test_a_policy_continues_after_lost_messages(
    nats_server: NatsServer,
    stream: str,
    policy: Any,
    expected: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    position = await read_two(nats_server, stream)
    await purge(nats_server, stream, 5)
    source = NatsSource(nats_server.url, stream, of=int, on_lost_messages=policy)

    reader = await opened(source, position)
    assert any(getattr(one, "event", "") == "messages_lost" for one in caplog.records)
    await nats_server.publish(stream, *texts(7))

    assert await values(reader, len(expected)) == expected


async def test_the_place_after_lost_messages_is_in_a_chunk_before_there_are_more(
    nats_server: NatsServer, stream: str
) -> None:
    position = await read_two(nats_server, stream)
    await purge(nats_server, stream, 5)
    source = NatsSource(nats_server.url, stream, of=int, on_lost_messages="latest")
    reader = await opened(source, position)

    chunk = await reader.read(10)
    await reader.close()
    await nats_server.publish(stream, *texts(7))

    assert chunk is not None
    assert await values(await opened(source, chunk.position), 1) == [7]


async def test_deleted_messages_in_the_middle_are_no_loss(
    nats_server: NatsServer, stream: str
) -> None:
    position = await read_two(nats_server, stream)
    for sequence in (3, 5):
        await delete(nats_server, stream, sequence)

    reader = await opened(NatsSource(nats_server.url, stream, of=int), position)

    assert await values(reader, 2) == [4, 6]


async def test_a_filtered_stream_that_is_discarded_beside_the_reader_is_no_loss(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    source = NatsSource(nats_server.url, stream, of=int, subject=f"{stream}.rare")
    await nats_server.publish(f"{stream}.rare", *texts(1))
    await nats_server.publish(stream, *texts(*range(50)))
    reader = await opened(source)

    first = await until_chunk(reader, lambda chunk: chunk.values == [1])
    chunk = await reader.read(10)
    await reader.close()
    await purge(nats_server, stream, 52)
    await nats_server.publish(f"{stream}.rare", *texts(2))

    assert chunk is not None
    assert (first.position[0], chunk.values, chunk.position[0]) == (1, [], 51)  # type: ignore[index]
    assert await values(await opened(source, chunk.position), 1) == [2]


async def test_a_stream_that_was_created_again_is_an_error(
    nats_server: NatsServer, stream: str
) -> None:
    position = await read_two(nats_server, stream)
    await nats_server.administer(lambda context: context._jsm.delete_stream(stream))
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(*range(9)))

    with pytest.raises(SourceError, match="the stream was created again"):
        await opened(NatsSource(nats_server.url, stream, of=int), position)
    source = NatsSource(nats_server.url, stream, of=int, on_lost_messages="earliest")
    assert await values(await opened(source, position), 9) == list(range(9))


async def test_a_shorter_stream_of_the_same_name_ends_at_its_own_end(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(1, 2))
    source = NatsSource(nats_server.url, stream, of=int, on_lost_messages="earliest", until="now")

    assert await values(await opened(source, (50, "another time", 100)), 9) == [1, 2]


async def test_a_stream_that_has_lost_its_end_is_an_error(
    nats_server: NatsServer, stream: str
) -> None:
    position: Any = await read_two(nats_server, stream)

    with pytest.raises(SourceError, match="it ends at 6, before the position"):
        await opened(NatsSource(nats_server.url, stream, of=int), (7, position[1]))
    source = NatsSource(nats_server.url, stream, of=int, on_lost_messages="earliest")
    reader = await opened(source, (7, position[1]))
    await nats_server.publish(stream, *texts(8))
    assert await values(reader, 1) == [8]


@pytest.mark.slow
async def test_a_stream_that_is_deleted_while_it_is_read_is_an_error(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(1))
    reader = await opened(NatsSource(nats_server.url, stream, of=int, reconnect=QUICK))
    await until_chunk(reader, lambda chunk: bool(chunk.values))

    await nats_server.administer(lambda context: context._jsm.delete_stream(stream))

    with pytest.raises(SourceError, match="does not exist any more"):
        await values(reader, 1)


@pytest.mark.slow
async def test_a_consumer_that_the_server_has_removed_is_created_again(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(1))
    reader = await opened(NatsSource(nats_server.url, stream, of=int, reconnect=QUICK))
    await until_chunk(reader, lambda chunk: bool(chunk.values))

    async def remove(context: Any) -> None:
        for one in await context._jsm.consumers_info(stream):
            await context._jsm.delete_consumer(stream, one.name)

    await nats_server.administer(remove)
    await nats_server.publish(stream, *texts(2))

    assert await values(reader, 1) == [2]


async def at_the_end(server: NatsServer, stream: str, patch: pytest.MonkeyPatch) -> Reader[Any]:
    """Read the only message of a stream, until the last request for more has ended."""
    patch.setattr(stream_module, "_WAIT", 0.01)
    await server.create(stream)
    await server.publish(stream, *texts(1))
    source = NatsSource(server.url, stream, format=Raw(), idle_after=timedelta(milliseconds=1))
    reader = await opened(source)
    inner: Any = reader
    await until_chunk(reader, lambda chunk: chunk.values == texts(1))
    await until_chunk(reader, lambda chunk: chunk.idle)
    async with asyncio.timeout(300):
        while inner._requested:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return reader


async def test_a_request_without_answer_does_not_skip_messages(
    nats_server: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader: Any = await at_the_end(nats_server, stream, monkeypatch)
    monkeypatch.setattr(stream_module, "_LAPSED", 0.1)
    consumer = reader._consumer
    await nats_server.administer(lambda context: context._jsm.delete_consumer(stream, consumer))
    await nats_server.publish(stream, *texts(2))

    assert await values(reader, 1) == texts(2)


async def test_a_message_larger_than_a_request_is_not_skipped(
    nats_server: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_BYTES", 500)
    reader = await at_the_end(nats_server, stream, monkeypatch)
    await nats_server.publish(stream, b"x" * 1000)

    chunk: Any = await reader.read(10)
    while not chunk.values:
        assert chunk.position[0] == 1
        chunk = await reader.read(10)
    await reader.close()
    assert (chunk.values, chunk.position[0]) == ([b"x" * 1000], 2)


async def test_a_stream_at_its_end_is_idle_once(nats_server: NatsServer, stream: str) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(0))
    source = NatsSource(nats_server.url, stream, of=int, idle_after=timedelta(milliseconds=1))
    reader = await opened(source)

    idle = await until_chunk(reader, lambda chunk: chunk.idle)
    waiting = asyncio.create_task(reader.read(10))
    await asyncio.sleep(0.05)
    await nats_server.publish(stream, *texts(1))
    chunk = await waiting
    await reader.close()

    assert idle.values == []
    assert chunk is not None
    assert (chunk.values, chunk.idle) == ([1], False)


async def test_a_pattern_finds_new_streams_from_their_first_message(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    pattern = re.compile(f"{stream}.*")
    source = NatsSource(nats_server.url, pattern, of=int, start="latest")
    before = [split.id for split in await source.splits()]

    await nats_server.create(f"{stream}-second")
    await nats_server.publish(f"{stream}-second", *texts(7))
    splits = await source.splits()

    assert before == [stream]
    assert [split.id for split in splits] == [stream, f"{stream}-second"]
    assert await values(await source.reader(splits[1], None), 1) == [7]


async def test_a_stream_that_does_not_exist_is_an_error(nats_server: NatsServer) -> None:
    with pytest.raises(SourceError, match="no stream 'missing'"):
        await NatsSource(nats_server.url, "missing").splits()
    with pytest.raises(SourceError, match="no stream that matches 'miss"):
        await NatsSource(nats_server.url, re.compile("miss.*"), until="now").splits()
    assert await NatsSource(nats_server.url, re.compile("miss.*")).splits() == []


@pytest.mark.parametrize("position", [3, (1,), ("x", 1), (1, "t", "2")], ids=str)
async def test_a_position_of_another_source_is_refused(
    nats_server: NatsServer, stream: str, position: object
) -> None:
    await nats_server.create(stream)

    with pytest.raises(SourceError, match="of another kind of source"):
        await opened(NatsSource(nats_server.url, stream), position)


async def test_wrong_credentials_and_permissions_fail_at_once(
    own_nats: NatsServer, stream: str
) -> None:
    await own_nats.create(stream)

    with pytest.raises(SourceError, match=r"access is denied: .*Authorization") as wrong:
        async with asyncio.timeout(300):
            await NatsSource(own_nats.url_of("tester:wrong-secret"), stream).splits()
    limited = NatsSource(
        own_nats.url_of("limited:right"), stream, timeout=timedelta(milliseconds=200)
    )
    with pytest.raises(SourceError, match=r"access is denied: .*[Pp]ermissions [Vv]iolation"):
        async with asyncio.timeout(300):
            await opened(limited)
    assert "wrong-secret" not in str(wrong.value)


async def test_a_server_that_is_away_is_an_error_after_a_time() -> None:
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=20))

    with pytest.raises(SourceError, match=r"streams at 127\.0\.0\.1:1: no connection.*NoServers"):
        await NatsSource("nats://127.0.0.1:1", "t", reconnect=reconnect).splits()


@pytest.mark.parametrize("answer", [b"", b'INFO {"server_id":'], ids=["nothing", "a part"])
async def test_a_connection_that_ends_before_the_server_has_introduced_itself_is_lost(
    answer: bytes,
) -> None:
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=50))
    connections = 0

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(end, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        with pytest.raises(SourceError, match=r"no connection for .* attempts"):
            await NatsSource(f"nats://127.0.0.1:{port}", "t", reconnect=reconnect).splits()

    assert connections > 1


@pytest.mark.slow
async def test_connections_that_are_cut_anywhere_lose_and_repeat_nothing(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(*range(3000)))
    found: list[int] = []

    async with Proxy(*nats_server.host_and_port) as proxy:
        source = NatsSource(
            nats_server.url_via(proxy.address), stream, of=int, reconnect=QUICK, until="now"
        )
        reader = await opened(source)
        chunks = 0
        while (chunk := await reader.read(100)) is not None:
            found += chunk.values
            chunks += 1
            if chunks % 3 == 0:
                proxy.cut()
        await reader.close()
        accepted = proxy.accepted

    assert accepted > 3
    assert found == list(range(3000))


@pytest.mark.slow
async def test_a_frozen_connection_counts_as_lost_after_its_timeout(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(0))

    async with Proxy(*nats_server.host_and_port) as proxy:
        source = NatsSource(
            nats_server.url_via(proxy.address),
            stream,
            of=int,
            reconnect=QUICK,
            idle_after=None,
            timeout=timedelta(milliseconds=200),
        )
        reader = await opened(source)
        await until_chunk(reader, lambda chunk: bool(chunk.values))
        reading = asyncio.create_task(values(reader, 1))
        await asyncio.sleep(0.05)
        proxy.freeze()
        await nats_server.publish(stream, *texts(1))
        await asyncio.sleep(2.5)
        proxy.thaw()
        found = await reading
        accepted = proxy.accepted

    assert found == [1]
    assert accepted > 2


@pytest.mark.slow
async def test_a_reader_continues_when_the_server_is_killed_and_back(
    own_nats: NatsServer, stream: str
) -> None:
    await own_nats.create(stream)
    await own_nats.publish(stream, *texts(*range(2000)))
    reader = await opened(NatsSource(own_nats.url, stream, of=int, reconnect=QUICK))
    chunk = await until_chunk(reader, lambda chunk: bool(chunk.values))

    own_nats.kill()
    own_nats.start()

    found = [*chunk.values, *await values(reader, 2000 - len(chunk.values))]
    assert found == list(range(2000))


async def test_two_subtasks_read_three_streams_and_a_restart_may_have_one(
    nats_server: NatsServer, stream: str, tmp_path: Any
) -> None:
    names = [await nats_server.create(f"{stream}-{n}") for n in range(3)]
    for index, name in enumerate(names):
        await nats_server.publish(name, *texts(*range(index * 100, index * 100 + 50)))

    async def run(parallelism: int) -> list[int]:
        flow, out = af.Flow("three"), CollectSink[int]()
        source = NatsSource(nats_server.url, names, of=int, until="now")
        flow.source(source, name="in").to(out, name="out")
        await flow.run(parallelism=parallelism, checkpointing=af.Checkpointing(storage=tmp_path))
        return sorted(out.values)

    assert await run(2) == sorted(p * 100 + n for p in range(3) for n in range(50))
    assert await run(1) == []


async def test_a_stream_is_not_idle_at_once_after_a_lost_connection(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(0))

    async with Proxy(*nats_server.host_and_port) as proxy:
        reader: Any = await opened(
            NatsSource(
                nats_server.url_via(proxy.address),
                stream,
                of=int,
                reconnect=QUICK,
                idle_after=timedelta(hours=1),
            )
        )
        await until_chunk(reader, lambda chunk: bool(chunk.values))
        while reader._silence.since is None:
            await reader._link.run(reader._fetch)
        proxy.cut()
        await nats_server.publish(stream, *texts(1))
        reader._silence._since -= 3601  # the time passes without a connection
        await reader._link.run(reader._fetch)  # notices the loss
        chunk = await reader.read(1)
        await reader.close()

    assert (chunk.values, chunk.idle) == ([1], False)


async def test_lost_connections_do_not_keep_a_silent_stream_active(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    await nats_server.publish(stream, *texts(0))

    async with Proxy(*nats_server.host_and_port) as proxy:
        reader: Any = await opened(
            NatsSource(
                nats_server.url_via(proxy.address),
                stream,
                of=int,
                reconnect=QUICK,
                idle_after=timedelta(hours=1),
            )
        )
        await until_chunk(reader, lambda chunk: bool(chunk.values))
        while reader._silence.since is None:
            await reader._link.run(reader._fetch)
        since = reader._silence.since
        session = reader._session
        proxy.cut()
        while reader._session is session or reader._silence.since is None:
            await reader._link.run(reader._fetch)
        found = reader._silence.since
        await reader.close()

    assert found == since
