"""``RedisSource`` against a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

import aflow as af
from aflow.connect import BadRecord, Chunk, Reader, SinkError, SourceError, Tag, WriterContext
from aflow.testing import CollectSink, check_source
from aflow_connectors.formats import Json, Raw, Text
from aflow_connectors.message import Message
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.redis import RedisSink, RedisSource
from tests.connectors.proxy import Proxy
from tests.connectors.redis.server import TestServer, redis_program, running_redis
from tests.connectors.skips import skip_or_fail

pytestmark = pytest.mark.asyncio

QUICK = Reconnect(delay=timedelta(milliseconds=1), most=timedelta(milliseconds=50))


@dataclass(frozen=True)
class Order:
    id: int
    paid: bool = False
    at: datetime | None = None


async def opened(source: RedisSource[Any], position: object = None, split: int = 0) -> Reader[Any]:
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


def numbered(*numbers: int) -> list[dict[str, int]]:
    return [{"n": n} for n in numbers]


async def test_it_keeps_the_contract_of_sources(redis_server: TestServer, stream: str) -> None:
    other = f"{stream}-other"
    redis_server.add(stream, *numbered(*range(5)))
    redis_server.add(other, *numbered(*range(10, 20)))
    redis_server.command("XDEL", other, redis_server.add(other, {"n": 20})[0])

    await check_source(
        lambda: RedisSource(redis_server.url, [stream, other], until="now"),
        expected=[{"n": str(n)} for n in (*range(5), *range(10, 20))],
    )


async def test_fields_become_a_record_of_the_declared_type(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, {"id": 7, "paid": "true", "at": "2026-01-01T00:00:00Z", "x": "é"})
    source = RedisSource(redis_server.url, stream, of=Order, until="now")

    assert await values(await opened(source), 1) == [
        Order(7, paid=True, at=datetime(2026, 1, 1, tzinfo=UTC))
    ]


async def test_a_payload_has_key_headers_timestamp_and_id(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(
        stream,
        {"value": b'{"a": 1}', "key": "k", "h": b"\xff"},
        {"key": "k"},
        ids=["1000-0", "1000-7"],
    )
    source = RedisSource(
        redis_server.url,
        stream,
        format=Json(dict[str, int]),
        messages=True,
        key_format=Text(),
        until="now",
    )

    first, tombstone = await values(await opened(source), 2)

    assert first == Message("k", {"a": 1}, (("h", b"\xff"),), 1000, stream, None, "1000-0")
    assert (tombstone.key, tombstone.value, tombstone.offset) == ("k", None, "1000-7")


async def test_the_time_of_the_id_is_the_event_time(redis_server: TestServer, stream: str) -> None:
    redis_server.add(stream, {"n": 1}, {"n": 2}, ids=["1000-0", "2000-3"])
    reader = await opened(RedisSource(redis_server.url, stream, messages=True))

    chunk = await until_chunk(reader, lambda chunk: bool(chunk.values))
    await reader.close()

    assert chunk.timestamps == [1000, 2000]
    assert chunk.values[1] == Message(None, {"n": "2"}, (), 2000, stream, None, "2000-3")


async def test_what_is_no_record_is_a_dead_letter_or_an_error(
    redis_server: TestServer, stream: str
) -> None:
    ids = redis_server.add(stream, {"id": 1}, {"id": "x"}, {b"\xff": "y"}, {"id": ""}, {"id": 2})
    bad = Tag[BadRecord]("bad")
    tolerant = RedisSource(redis_server.url, stream, of=Order, dead_letters=bad, until="now")

    reader = await opened(tolerant)
    chunk = await until_chunk(reader, lambda chunk: bool(chunk.values))
    await reader.close()

    assert chunk.values == [Order(1), Order(2)]
    assert [one.place for one in chunk.rejected] == [f"{stream}, entry {id}" for id in ids[1:4]]
    assert [one.raw for one in chunk.rejected] == [b"id=x", b"\xff=y", b"id="]
    assert chunk.rejected[1].reason == "not UTF-8"
    with pytest.raises(SourceError, match=f"{stream}, entry {ids[1]}: "):
        await values(await opened(RedisSource(redis_server.url, stream, of=Order)), 2)


async def test_a_payload_that_is_no_record_is_a_dead_letter(
    redis_server: TestServer, stream: str
) -> None:
    ids = redis_server.add(stream, {"value": 1}, {"value": "{"}, {"other": 2}, {"value": ""})
    bad = Tag[BadRecord]("bad")
    source = RedisSource(redis_server.url, stream, format=Json(int), dead_letters=bad, until="now")

    reader = await opened(source)
    chunk = await until_chunk(reader, lambda chunk: bool(chunk.values))
    await reader.close()

    assert chunk.values == [1]
    rejected = {one.place: one.reason for one in chunk.rejected}
    assert sorted(rejected) == [f"{stream}, entry {id}" for id in ids[1:]]
    assert rejected[f"{stream}, entry {ids[2]}"] == "it has no field 'value'"


async def test_an_entry_of_ten_megabytes_is_read(redis_server: TestServer, stream: str) -> None:
    large = b"x" * 10_000_000
    redis_server.add(stream, {"value": b"a"}, {"value": large}, {"value": b""})

    source = RedisSource(redis_server.url, stream, format=Raw(), until="now")

    assert await values(await opened(source), 3) == [b"a", large, b""]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", ["0", "1", "2", "new"]),
        ("latest", ["new"]),
        (datetime.fromtimestamp(1.5, UTC), ["2", "new"]),
        (datetime.fromtimestamp(3, UTC), ["new"]),
        ("1000-0", ["1", "2", "new"]),
        ("2000", ["2", "new"]),
    ],
    ids=["earliest", "latest", "time", "future", "id", "milliseconds"],
)
async def test_start_chooses_the_first_entry(
    redis_server: TestServer, stream: str, start: Any, expected: list[str]
) -> None:
    redis_server.add(stream, *numbered(0, 1, 2), ids=["1-0", "1000-0", "2000-0"])
    is_id = start in ("1000-0", "2000")
    chosen = cast(Any, {stream: start} if is_id else start)

    reader = await opened(RedisSource(redis_server.url, stream, start=chosen))
    redis_server.add(stream, {"n": "new"}, ids=["3000-0"])

    assert [one["n"] for one in await values(reader, len(expected))] == expected


async def test_ids_as_start_must_name_each_stream(redis_server: TestServer, stream: str) -> None:
    redis_server.add(stream, *numbered(1))

    with pytest.raises(SourceError, match="no id for stream"):
        await opened(RedisSource(redis_server.url, stream, start={"other": "0-1"}))


async def test_the_first_position_keeps_the_start_for_a_restart(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, *numbered(0))
    source = RedisSource(redis_server.url, stream, start="latest")
    reader = await opened(source)

    chunk = await reader.read(10)
    await reader.close()
    redis_server.add(stream, *numbered(1))

    assert chunk is not None
    assert chunk.values == []
    assert await values(await opened(source, chunk.position), 1) == [{"n": "1"}]


async def test_a_restart_ends_where_the_first_run_would_have(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, *numbered(0, 1))
    source = RedisSource(redis_server.url, stream, until="now")
    reader = await opened(source)
    start = await reader.read(1)
    await reader.close()
    assert start is not None

    redis_server.add(stream, *numbered(2))

    assert await values(await opened(source, start.position), 9) == [{"n": "0"}, {"n": "1"}]


async def read_two(server: TestServer, stream: str, *, start: Any = "earliest") -> object:
    """Add six entries and read the first two. Return the position."""
    server.add(stream, *numbered(*range(1, 7)), ids=[f"{n}-0" for n in range(1, 7)])
    reader = await opened(RedisSource(server.url, stream, start=start))
    await reader.read(10)
    chunk = await reader.read(2)
    assert chunk is not None
    await reader.close()
    return chunk.position


@pytest.mark.parametrize("left", [4, 5, 6])
async def test_trimming_what_was_read_is_no_loss(
    redis_server: TestServer, stream: str, left: int
) -> None:
    position = await read_two(redis_server, stream)
    redis_server.command("XTRIM", stream, "MAXLEN", "=", left)

    reader = await opened(RedisSource(redis_server.url, stream), position)

    assert [one["n"] for one in await values(reader, 4)] == ["3", "4", "5", "6"]


@pytest.mark.parametrize(("left", "count"), [(3, "1 entries"), (1, "3 entries"), (0, "4 entries")])
async def test_lost_entries_are_an_error_with_their_number(
    redis_server: TestServer, stream: str, left: int, count: str
) -> None:
    position = await read_two(redis_server, stream)
    redis_server.command("XTRIM", stream, "MAXLEN", "=", left)

    with pytest.raises(SourceError, match=f"after entry 2-0: {count} after it were removed"):
        await values(await opened(RedisSource(redis_server.url, stream), position), 1)


@pytest.mark.parametrize("start", [{"": "2-0"}, datetime.fromtimestamp(0.002, UTC)], ids=str)
async def test_lost_entries_are_noticed_where_the_count_is_unknown(
    redis_server: TestServer, stream: str, start: Any
) -> None:
    if isinstance(start, dict):
        start = {stream: "2-0"}
    position = await read_two(redis_server, stream, start=start)
    redis_server.command("XTRIM", stream, "MAXLEN", "=", 2)

    with pytest.raises(SourceError, match="after entry 3-0: entries after it may have been"):
        await values(await opened(RedisSource(redis_server.url, stream), position), 1)


async def test_entries_trimmed_while_a_reader_waits_are_noticed(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, *numbered(1))
    reader = await opened(RedisSource(redis_server.url, stream, start="latest"))
    await reader.read(10)
    reading = asyncio.create_task(values(reader, 1))
    await asyncio.sleep(0.05)

    # In one step, so that the reader cannot read in between.
    script = (
        "for n = 1, 5 do redis.call('XADD', KEYS[1], 'MAXLEN', '=', '2', '*', 'n', n) end return 1"
    )
    redis_server.command("EVAL", script, 1, stream)

    with pytest.raises(SourceError, match="3 entries after it were removed unread"):
        await reading


async def test_entries_deleted_after_they_were_read_are_no_loss(
    redis_server: TestServer, stream: str
) -> None:
    """As by consumers that acknowledge and delete each entry."""
    source = RedisSource(redis_server.url, stream, start={stream: "0-1"})
    redis_server.add(stream, *numbered(0))
    reader = await opened(source)
    found: list[str] = []
    position: object = None

    for number in range(1, 6):
        chunk = await until_chunk(reader, lambda chunk: bool(chunk.values))
        found += [one["n"] for one in chunk.values]
        position = chunk.position
        redis_server.command("XTRIM", stream, "MAXLEN", 0)
        if number % 2:
            await reader.close()
            reader = await opened(source, position)
        redis_server.add(stream, *numbered(number))
    await reader.close()

    assert found == ["0", "1", "2", "3", "4"]


async def until_warned(caplog: pytest.LogCaptureFixture) -> None:
    """Wait until a reader has logged that entries were lost."""
    async with asyncio.timeout(300):
        while not any(getattr(one, "event", "") == "entries_lost" for one in caplog.records):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", ["5", "6", "7"]), ("latest", ["7"])])
async def test_a_policy_continues_after_lost_entries(
    redis_server: TestServer,
    stream: str,
    policy: Any,
    expected: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    position = await read_two(redis_server, stream)
    redis_server.command("XTRIM", stream, "MAXLEN", "=", 2)
    source = RedisSource(redis_server.url, stream, on_lost_entries=policy)

    reading = asyncio.create_task(values(await opened(source, position), len(expected)))
    await until_warned(caplog)
    redis_server.add(stream, *numbered(7))

    assert [one["n"] for one in await reading] == expected


async def test_the_place_after_lost_entries_is_in_a_chunk_before_there_are_more(
    redis_server: TestServer, stream: str
) -> None:
    position = await read_two(redis_server, stream)
    redis_server.command("XTRIM", stream, "MAXLEN", "=", 2)
    source = RedisSource(redis_server.url, stream, on_lost_entries="latest")
    reader = await opened(source, position)

    async with asyncio.timeout(300):
        chunk = await reader.read(10)
    await reader.close()
    redis_server.add(stream, *numbered(7))

    assert chunk is not None
    assert [one["n"] for one in await values(await opened(source, chunk.position), 1)] == ["7"]


async def test_a_stream_that_has_lost_its_end_is_an_error(
    redis_server: TestServer, stream: str
) -> None:
    position = await read_two(redis_server, stream)
    source = RedisSource(redis_server.url, stream)

    redis_server.command("DEL", stream)
    redis_server.add(stream, *numbered(1), ids=["1-0"])
    with pytest.raises(SourceError, match="the stream ends at 1-0, before the position"):
        await values(await opened(source, position), 1)
    redis_server.add(stream, *numbered(*range(40)))
    redis_server.command("DEL", stream)
    redis_server.add(stream, *numbered(7), ids=["7-0"])
    with pytest.raises(SourceError, match="the stream was created again"):
        await values(await opened(source, position), 1)


@pytest.mark.parametrize("later", [1, 300])
async def test_data_that_the_server_has_lost_is_noticed_after_later_entries(
    redis_server: TestServer, stream: str, later: int
) -> None:
    position = await read_two(redis_server, stream)
    source = RedisSource(redis_server.url, stream)

    redis_server.command("DEL", stream)
    redis_server.add(stream, *numbered(1), ids=["1-0"])
    redis_server.add(stream, *numbered(*range(later)))
    with pytest.raises(SourceError, match="the server has lost data"):
        await values(await opened(source, position), later + 1)


@pytest.mark.parametrize("looks_before", [True, False])
async def test_nothing_is_read_again_after_lost_data(
    redis_server: TestServer,
    stream: str,
    caplog: pytest.LogCaptureFixture,
    *,
    looks_before: bool,
) -> None:
    position = await read_two(redis_server, stream)
    redis_server.command("DEL", stream)
    redis_server.add(stream, *numbered(1), ids=["1-0"])
    source = RedisSource(redis_server.url, stream, on_lost_entries="earliest")

    reader = await opened(source, position)
    if looks_before:
        reading = asyncio.create_task(values(reader, 1))
        await until_warned(caplog)
        redis_server.add(stream, *numbered(9))
    else:
        redis_server.add(stream, *numbered(9))
        reading = asyncio.create_task(values(reader, 1))

    assert await reading == [{"n": "9"}]


async def test_lost_data_is_noticed_after_a_restart_before_the_end(
    redis_server: TestServer, stream: str
) -> None:
    position = await read_two(redis_server, stream)
    source = RedisSource(redis_server.url, stream)
    redis_server.command("DEL", stream)
    redis_server.add(stream, *numbered(1), ids=["1-0"])
    redis_server.add(stream, *numbered(*range(300)))

    reader = await opened(source, position)
    chunk = await until_chunk(reader, lambda chunk: bool(chunk.values))
    await reader.close()

    with pytest.raises(SourceError, match="the server has lost data"):
        await values(await opened(source, chunk.position), 300)


async def test_a_stream_that_is_deleted_while_it_is_read_is_an_error(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, *numbered(1))
    source = RedisSource(redis_server.url, stream, timeout=timedelta(milliseconds=200))
    reader = await opened(source)
    await until_chunk(reader, lambda chunk: bool(chunk.values))
    reading = asyncio.create_task(values(reader, 1))
    await asyncio.sleep(0.05)

    redis_server.command("DEL", stream)

    with pytest.raises(SourceError, match="does not exist any more"):
        await reading


async def test_a_stream_at_its_end_is_idle_once(redis_server: TestServer, stream: str) -> None:
    redis_server.add(stream, *numbered(0))
    source = RedisSource(redis_server.url, stream, idle_after=timedelta(milliseconds=1))
    reader = await opened(source)

    idle = await until_chunk(reader, lambda chunk: chunk.idle)
    waiting = asyncio.create_task(reader.read(10))
    await asyncio.sleep(0.05)
    redis_server.add(stream, *numbered(1))
    chunk = await waiting
    await reader.close()

    assert idle.values == []
    assert chunk is not None
    assert (chunk.values, chunk.idle) == ([{"n": "1"}], False)


async def test_an_outage_is_no_silence_of_a_stream(redis_server: TestServer, stream: str) -> None:
    redis_server.add(stream, *numbered(0))
    now = asyncio.get_running_loop().time
    async with Proxy(*redis_server.host_and_port) as proxy:
        source = RedisSource(
            redis_server.url_via(proxy.address),
            stream,
            reconnect=QUICK,
            idle_after=timedelta(milliseconds=300),
        )
        reader = await opened(source)
        await until_chunk(reader, lambda chunk: bool(chunk.values))
        proxy.refuse()
        reading = asyncio.create_task(reader.read(10))
        await asyncio.sleep(0.4)

        back_at = now()
        proxy.accept()
        chunk = await reading
        idle_at = now()
        await reader.close()

    assert chunk is not None
    assert chunk.idle
    assert idle_at - back_at >= 0.3


async def test_a_pattern_finds_new_streams_from_their_first_entry(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, *numbered(0))
    redis_server.command("SET", f"{stream}-text", "no stream")
    source = RedisSource(redis_server.url, re.compile(f"{stream}.*"), start="latest")
    before = [split.id for split in await source.splits()]

    redis_server.add(f"{stream}-second", *numbered(7))
    splits = await source.splits()

    assert before == [stream]
    assert [split.id for split in splits] == [stream, f"{stream}-second"]
    assert await values(await source.reader(splits[1], None), 1) == [{"n": "7"}]


async def test_a_stream_that_does_not_exist_is_an_error(
    redis_server: TestServer, stream: str
) -> None:
    with pytest.raises(SourceError, match=f"no stream '{stream}'"):
        await RedisSource(redis_server.url, stream).splits()
    with pytest.raises(SourceError, match="no stream that matches 'miss"):
        await RedisSource(redis_server.url, re.compile("miss.*"), until="now").splits()
    assert await RedisSource(redis_server.url, re.compile("miss.*")).splits() == []
    redis_server.command("SET", stream, "text")
    with pytest.raises(SourceError, match="is a string, not a stream"):
        await RedisSource(redis_server.url, stream).splits()


async def test_a_node_of_a_cluster_is_refused() -> None:
    program = redis_program()
    if program is None:
        skip_or_fail("no Redis server is installed: scripts/have-redis")
        return
    with running_redis(program, "--cluster-enabled", "yes") as node:
        with pytest.raises(SourceError, match="a node of a Redis Cluster, which is not supported"):
            await RedisSource(node.url, "t").splits()
        with pytest.raises(SinkError, match="a node of a Redis Cluster, which is not supported"):
            await RedisSink(node.url, "t").writer(WriterContext("out"))


async def test_checkpoints_set_the_last_id_of_the_group(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, *numbered(0, 1, 2))
    source = RedisSource(redis_server.url, stream, group="watched")
    reader = await opened(source)
    chunk = await until_chunk(reader, lambda chunk: len(chunk.values) == 3)
    redis_server.add(stream, *numbered(3))

    await reader.on_checkpoint_completed(chunk.position)
    await reader.on_checkpoint_completed(chunk.position)
    await reader.close()

    (group,) = redis_server.command("XINFO GROUPS", stream)
    assert (group["name"], group["lag"]) == (b"watched", 1)


@pytest.mark.parametrize("position", [3, ("1-0",), ("x", 1), ("1-0", "1")], ids=str)
async def test_a_position_of_another_source_is_refused(
    redis_server: TestServer, stream: str, position: object
) -> None:
    redis_server.add(stream, *numbered(0))

    with pytest.raises(SourceError, match="of another kind of source"):
        await opened(RedisSource(redis_server.url, stream), position)


async def test_wrong_credentials_fail_at_once(own_redis: TestServer, stream: str) -> None:
    own_redis.add(stream, *numbered(1))
    own_redis.command("ACL", "SETUSER", "reader", "on", ">right", "~other*", "+@all")

    with pytest.raises(SourceError, match="access is denied") as wrong:
        await RedisSource(own_redis.url_of("reader:wrong-secret"), stream).splits()
    with pytest.raises(SourceError, match=r"access is denied.*NoPermission"):
        await RedisSource(own_redis.url_of("reader:right"), stream).splits()
    assert "wrong-secret" not in str(wrong.value)
    assert await RedisSource(own_redis.url_of("reader:right"), re.compile("none")).splits() == []


async def test_a_server_that_is_away_is_an_error_after_a_time() -> None:
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=20))

    with pytest.raises(SourceError, match=r"streams at 127\.0\.0\.1:1/0: no connection.*111"):
        await RedisSource("redis://127.0.0.1:1/0", "t", reconnect=reconnect).splits()


async def test_connections_that_are_cut_anywhere_lose_and_repeat_nothing(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, *numbered(*range(400)))
    found: list[int] = []

    async with Proxy(*redis_server.host_and_port) as proxy:
        source = RedisSource(
            redis_server.url_via(proxy.address), stream, reconnect=QUICK, until="now"
        )
        reader = await opened(source)
        while (chunk := await reader.read(10)) is not None:
            found += [int(one["n"]) for one in chunk.values]
            proxy.cut_after = len(found) % 150
        await reader.close()
        accepted = proxy.accepted

    assert accepted > 10
    assert found == list(range(400))


async def test_a_frozen_connection_counts_as_lost_after_its_timeout(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.add(stream, *numbered(0))

    async with Proxy(*redis_server.host_and_port) as proxy:
        source = RedisSource(
            redis_server.url_via(proxy.address),
            stream,
            reconnect=QUICK,
            timeout=timedelta(milliseconds=200),
        )
        reader = await opened(source)
        await until_chunk(reader, lambda chunk: bool(chunk.values))
        reading = asyncio.create_task(values(reader, 1))
        await asyncio.sleep(0.05)
        proxy.freeze()
        redis_server.add(stream, *numbered(1))
        await asyncio.sleep(0.3)
        proxy.thaw()
        found = await reading
        accepted = proxy.accepted

    assert found == [{"n": "1"}]
    assert accepted > 2


async def test_two_subtasks_read_three_streams_and_a_restart_may_have_one(
    redis_server: TestServer, stream: str, tmp_path: Any
) -> None:
    names = [f"{stream}-{n}" for n in range(3)]
    for index, name in enumerate(names):
        redis_server.add(name, *numbered(*range(index * 100, index * 100 + 50)))

    async def run(parallelism: int) -> list[int]:
        flow, out = af.Flow("three"), CollectSink[int]()
        source = RedisSource(redis_server.url, names, until="now")
        flow.source(source, name="in").map(lambda one: int(one["n"])).to(out, name="out")
        await flow.run(parallelism=parallelism, checkpointing=af.Checkpointing(storage=tmp_path))
        return sorted(out.values)

    assert await run(2) == sorted(p * 100 + n for p in range(3) for n in range(50))
    assert await run(1) == []
