"""The sinks of Redis against a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from aflow.connect import Batch, Committable, Sink, SinkError, Writer, WriterContext
from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN
from aflow.testing import check_sink
from aflow_connectors.formats import Json, Raw
from aflow_connectors.message import Message
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.redis import RedisSink, RedisUpsert
from aflow_connectors.redis.epochs import PreparedCommands
from tests.connectors.proxy import Proxy
from tests.connectors.redis.server import TestServer

pytestmark = pytest.mark.asyncio

QUICK = Reconnect(delay=timedelta(milliseconds=1), most=timedelta(milliseconds=50))


async def opened(sink: Sink[Any], *, subtask: int = 0, checkpoints: bool = True) -> Writer[Any]:
    return await sink.writer(WriterContext("out", subtask=subtask, checkpoints=checkpoints))


async def put(writer: Writer[Any], values: Sequence[Any]) -> None:
    writing = writer.write(Batch(list(values)))
    if writing is not None:
        await writing


async def prepared(writer: Writer[Any], values: Sequence[Any], checkpoint: int) -> Committable:
    """Write ``values``, and return what ``prepare`` returns, after storage."""
    if values:  # a batch is never empty
        await put(writer, values)
    preparing = writer.prepare(checkpoint)
    return PLAIN.decode(PLAIN.encode(await preparing))


async def written(sink: Sink[Any], *values: Any) -> None:
    """Write ``values`` without checkpoints."""
    writer = await opened(sink, checkpoints=False)
    try:
        await put(writer, values)
        await writer.flush()
    finally:
        await writer.close()


def numbers(server: TestServer, stream: str) -> list[int]:
    return [int(one["n"]) for one in server.contents(stream)]


def to(server: TestServer, stream: str, **options: Any) -> RedisSink[Any]:
    return RedisSink[Any](server.url, stream, **options)


def n(*values: int) -> list[dict[str, int]]:
    return [{"n": value} for value in values]


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [True, False], ids=["epochs", "at least once"])
async def test_it_keeps_the_contract_of_sinks(
    redis_server: TestServer, stream: str, *, exactly_once: bool
) -> None:
    kept: list[RedisSink[Any]] = []

    def fresh() -> RedisSink[Any]:
        kept.append(to(redis_server, f"{stream}-{len(kept)}", exactly_once=exactly_once))
        return kept[-1]

    def visible(sink: RedisSink[Any]) -> list[Any]:
        return [{"n": one} for one in numbers(redis_server, f"{stream}-{kept.index(sink)}")]

    await check_sink(fresh, visible, n(*range(8)))


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [True, False], ids=["epochs", "at once"])
async def test_an_upsert_keeps_the_contract_of_sinks(
    redis_server: TestServer, stream: str, *, exactly_once: bool
) -> None:
    kept: list[RedisUpsert[int]] = []

    def fresh() -> RedisUpsert[int]:
        name = f"{stream}-{len(kept)}"
        sink = RedisUpsert[int](
            redis_server.url, lambda n: f"{name}:{n}", format=Json(int), exactly_once=exactly_once
        )
        kept.append(sink)
        return sink

    def visible(sink: RedisUpsert[int]) -> list[int]:
        keys = redis_server.command("KEYS", f"{stream}-{kept.index(sink)}:*")
        return sorted(int(redis_server.command("GET", key)) for key in keys)

    await check_sink(fresh, visible, list(range(8)))


@dataclass(frozen=True)
class Paid:
    id: int
    ok: bool
    note: str | None
    at: datetime
    day: date
    sum: Decimal
    share: float
    data: bytes


async def test_fields_of_a_record_are_text(redis_server: TestServer, stream: str) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    record = Paid(7, True, None, moment, moment.date(), Decimal("1.50"), 0.25, b"raw")

    await written(to(redis_server, stream), record)

    assert redis_server.contents(stream) == [
        {
            "id": "7",
            "ok": "true",
            "at": "2026-01-02T00:00:00+00:00",
            "day": "2026-01-02",
            "sum": "1.50",
            "share": "0.25",
            "data": "raw",
        }
    ]


async def test_a_payload_has_key_and_headers(redis_server: TestServer, stream: str) -> None:
    sink = to(redis_server, stream, format=Json(), field="body", key_field="id")

    await written(
        sink,
        {"a": 1},
        Message("k", [2], (("kind", b"order"),)),
        Message(b"gone", None),
    )

    assert redis_server.contents(stream) == [
        {"body": '{"a":1}'},
        {"body": "[2]", "id": "k", "kind": "order"},
        {"id": "gone"},
    ]


async def test_key_and_headers_are_functions_of_the_record(
    redis_server: TestServer, stream: str
) -> None:
    sink = RedisSink[Any](
        redis_server.url,
        stream,
        format=Json(),
        key=lambda one: one["id"],
        headers=lambda one: {"h": "é"},
    )

    await written(sink, {"id": "x"})

    assert redis_server.contents(stream) == [{"value": '{"id":"x"}', "key": "x", "h": "é"}]


async def test_a_stream_is_trimmed(redis_server: TestServer, stream: str) -> None:
    exact = to(redis_server, stream, maxlen=3, exact_maxlen=True)
    about = to(redis_server, f"{stream}-about", maxlen=100)

    await written(exact, *n(*range(10)))
    await written(about, *n(*range(1000)))

    assert numbers(redis_server, stream) == [7, 8, 9]
    assert 100 <= redis_server.command("XLEN", f"{stream}-about") < 1000


async def test_large_empty_and_many_records_are_written_in_order(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream, format=Raw()))
    output = [b"x" * 10_000_000, b"", *(b"%d" % n for n in range(2500))]

    committable: Any = await prepared(writer, output, 1)
    await writer.commit(committable)
    await writer.close()

    assert [one["value"].encode() for one in redis_server.contents(stream)] == output
    assert len(committable["blocks"]) == 4


async def test_a_function_chooses_the_stream(redis_server: TestServer, stream: str) -> None:
    sink = RedisSink[Any](redis_server.url, lambda one: f"{stream}-{one['n'] % 2}")
    writer = await opened(sink)

    await writer.commit(await prepared(writer, n(*range(10)), 1))
    await writer.close()

    assert numbers(redis_server, f"{stream}-0") == [0, 2, 4, 6, 8]
    assert numbers(redis_server, f"{stream}-1") == [1, 3, 5, 7, 9]


async def test_a_hash_is_replaced_removed_and_expires(
    redis_server: TestServer, stream: str
) -> None:
    sink = RedisUpsert[Any](
        redis_server.url,
        lambda one: f"{stream}:{getattr(one, 'key', None) or one['id']}",
        expire=timedelta(hours=1),
    )

    await written(sink, {"id": 1, "old": 1}, {"id": 1, "new": 2}, {"id": 2}, Message("2", None))

    assert redis_server.command("HGETALL", f"{stream}:1") == {b"id": b"1", b"new": b"2"}
    assert 3500 < redis_server.command("TTL", f"{stream}:1") <= 3600
    assert redis_server.command("EXISTS", f"{stream}:2") == 0


@pytest.mark.parametrize("format", [None, Json()], ids=["hash", "string"])
async def test_an_upsert_stores_the_value_of_a_message_that_has_a_key(
    redis_server: TestServer, stream: str, format: Any
) -> None:
    sink = RedisUpsert[Any](redis_server.url, lambda one: f"{stream}:{one.key}", format=format)

    await written(sink, Message(7, {"a": 1}))

    read = "HGETALL" if format is None else "GET"
    expected = {b"a": b"1"} if format is None else b'{"a":1}'
    assert redis_server.command(read, f"{stream}:7") == expected


_Any = Message[Any, Any]


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        (7, {}, "has no named fields"),
        ({}, {}, "it has no fields"),
        ({"a": [1]}, {}, r"field 'a' is a list.*format=Json\(\)"),
        ({1: 2}, {}, "names of fields are str"),
        ({f"f{n}": n for n in range(1001)}, {}, "1,001 fields, and the limit"),
        (_Any("k", {"a": 1}), {}, "has a key or headers, which format= stores"),
        (object(), {"format": Json()}, "JSON cannot hold it"),
        (_Any(None, None), {"format": Json()}, "neither key nor value"),
        (_Any(7, 1), {"format": Json()}, "a key is bytes or str, not int"),
        (_Any("k", 1, (("key", b""),)), {"format": Json()}, "a header 'key', which is the name"),
    ],
    ids=["type", "empty", "nested", "names", "many", "key", "json", "none", "key type", "header"],
)
async def test_what_is_no_entry_is_refused_before_the_checkpoint(
    redis_server: TestServer, stream: str, record: object, options: Any, message: str
) -> None:
    writer = await opened(to(redis_server, stream, **options))

    with pytest.raises(SinkError, match=message):
        await prepared(writer, [record], 1)
    await writer.close()


async def test_a_function_that_names_no_key_is_an_error(redis_server: TestServer) -> None:
    def keyed_by(field: str) -> RedisUpsert[Any]:
        return RedisUpsert[Any](redis_server.url, lambda one: one[field])

    for field, message in (("n", "must be a text"), ("x", "KeyError")):
        with pytest.raises(SinkError, match=message):
            await written(keyed_by(field), {"n": 1})


async def test_a_key_of_another_type_is_an_error_and_nothing_is_written(
    redis_server: TestServer, stream: str
) -> None:
    redis_server.command("SET", f"{stream}-1", "text")
    sink = RedisSink[Any](redis_server.url, lambda one: f"{stream}-{one['n']}")
    writer = await opened(sink)
    stored = await prepared(writer, n(0, 1, 2), 1)

    with pytest.raises(SinkError, match=f"'{stream}-1' is a string, not a stream"):
        await writer.commit(stored)
    before = redis_server.command("EXISTS", f"{stream}-0", f"{stream}-2")
    redis_server.command("DEL", f"{stream}-1")
    await writer.commit(stored)
    await writer.close()

    assert before == 0
    assert [numbers(redis_server, f"{stream}-{one}") for one in range(3)] == [[0], [1], [2]]


async def test_a_crash_between_checkpoint_and_commit_loses_and_repeats_nothing(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream))
    first = await prepared(writer, n(1), 1)
    await writer.commit(first)
    second = await prepared(writer, n(*range(2, 2500)), 2)
    await writer.close()

    restored = to(redis_server, stream)
    for _ in range(2):
        await restored.recover("out", [second])
    writer = await opened(restored)
    await writer.commit(second)
    await writer.commit(await prepared(writer, n(2500), 3))
    await writer.close()

    assert numbers(redis_server, stream) == list(range(1, 2501))


async def test_a_commit_that_was_interrupted_continues_at_its_block(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream))
    stored: Any = await prepared(writer, n(*range(3500)), 1)
    await writer.commit({**stored, "blocks": stored["blocks"][:2]})
    await writer.close()
    written_before = len(numbers(redis_server, stream))

    await to(redis_server, stream).recover("out", [stored])

    assert written_before == 2000
    assert numbers(redis_server, stream) == list(range(3500))


async def test_a_sink_that_is_no_longer_exactly_once_writes_what_its_checkpoint_has(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream))
    stored = await prepared(writer, n(1), 1)
    await writer.close()

    sink = to(redis_server, stream, exactly_once=False)
    for _ in range(2):
        await sink.recover("out", [stored])

    assert numbers(redis_server, stream) == [1]


async def test_fewer_writers_recover_the_output_of_all(
    redis_server: TestServer, stream: str
) -> None:
    sink = to(redis_server, stream)
    writers = [await opened(sink, subtask=number) for number in range(3)]
    stored = [await prepared(writer, n(number), 1) for number, writer in enumerate(writers)]
    await writers[1].commit(stored[1])
    for writer in writers:
        await writer.close()

    await to(redis_server, stream).recover("out", stored)

    assert sorted(numbers(redis_server, stream)) == [0, 1, 2]


async def test_a_job_that_was_taken_over_is_fenced(redis_server: TestServer, stream: str) -> None:
    zombie = await opened(to(redis_server, stream))
    first = await prepared(zombie, n(1), 1)
    await zombie.commit(first)
    late = await prepared(zombie, n(2), 2)

    await to(redis_server, stream).recover("out", [first])
    with pytest.raises(SinkError, match="fenced: another job"):
        await zombie.commit(late)
    await zombie.close()

    assert numbers(redis_server, stream) == [1]


@pytest.mark.parametrize("subtasks", [1, 2], ids=["same writers", "more writers since"])
async def test_an_older_checkpoint_than_the_output_is_refused(
    redis_server: TestServer, stream: str, subtasks: int
) -> None:
    sink = to(redis_server, stream)
    writer = await opened(sink)
    old = await prepared(writer, n(1), 1)
    await writer.commit(old)
    await writer.close()
    for number in range(subtasks):
        last = await opened(sink, subtask=number)
        output = n(2) if number == subtasks - 1 else []
        await last.commit(await prepared(last, output, 2))
        await last.close()

    with pytest.raises(SinkError, match=r"resumes from checkpoint 1, but .* checkpoint 2"):
        await to(redis_server, stream).recover("out", [old])


async def test_a_server_that_does_not_know_the_output_is_refused(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream))
    stored: Any = await prepared(writer, n(1), 1)
    await writer.close()
    redis_server.command("DEL", stored["state"])

    with pytest.raises(RestoreError, match="not known which checkpoints were written"):
        await to(redis_server, stream).recover("out", [stored])


async def test_a_job_without_output_yet_continues_on_an_empty_server(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream))
    stored: Any = await prepared(writer, [], 1)
    await writer.close()
    redis_server.command("DEL", stored["state"])

    restored = to(redis_server, stream)
    await restored.recover("out", [stored])
    writer = await opened(restored)
    await writer.commit(await prepared(writer, n(1), 2))
    await writer.close()

    assert numbers(redis_server, stream) == [1]


async def test_output_that_the_server_has_lost_is_an_error(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream))
    stored: list[Any] = []
    states: list[Any] = []
    for checkpoint in (1, 2, 3):
        stored.append(await prepared(writer, n(checkpoint), checkpoint))
        await writer.commit(stored[-1])
        states.append(redis_server.command("HGET", stored[0]["state"], 0))
    redis_server.command("HSET", stored[0]["state"], 0, states[0])

    with pytest.raises(SinkError, match=r"had written checkpoint 3 before 4.* server has 1"):
        await writer.commit(await prepared(writer, n(4), 4))
    with pytest.raises(SinkError, match=r"had written checkpoint 2 before 3.* server has 1"):
        await to(redis_server, stream).recover("out", [stored[2]])
    await writer.close()


async def test_a_number_that_was_used_before_is_refused(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream))
    await writer.commit(await prepared(writer, n(1), 5))

    with pytest.raises(SinkError, match="checkpoint 5 of this sink was written already"):
        await writer.prepare(5)
    await writer.close()


@pytest.mark.parametrize(
    "change",
    [{"owner": "me"}, {"writer": -1}, {"kind": "list"}, {"blocks": ["x"]}, {"after": [1]}],
    ids=str,
)
async def test_a_foreign_committable_is_refused(
    redis_server: TestServer, stream: str, change: dict[str, object]
) -> None:
    writer = await opened(to(redis_server, stream))
    stored: Any = await prepared(writer, n(1), 1)
    await writer.close()

    with pytest.raises(RestoreError, match="another kind of sink"):
        await to(redis_server, stream).recover("out", [{**stored, **change}])


async def test_damaged_output_is_an_error(redis_server: TestServer, stream: str) -> None:
    writer = await opened(to(redis_server, stream))
    stored: Any = await prepared(writer, n(1), 1)
    await writer.close()

    for block in (b"\xc1", b"\x01"):
        with pytest.raises(RestoreError, match="damaged output"):
            await to(redis_server, stream).recover("out", [{**stored, "blocks": [block]}])
    assert PreparedCommands.of(stored, sink="out").blocks == tuple(stored["blocks"])


async def test_input_that_no_checkpoint_covers_is_an_error(
    redis_server: TestServer, stream: str
) -> None:
    writer = await opened(to(redis_server, stream))
    await put(writer, n(1))

    with pytest.raises(SinkError, match="no checkpoint covers the last records"):
        await writer.flush()
    await writer.close()


@pytest.mark.slow
async def test_connections_that_are_cut_anywhere_lose_and_repeat_nothing(
    redis_server: TestServer, stream: str
) -> None:
    expected: list[int] = []

    async with Proxy(*redis_server.host_and_port) as proxy:
        url = redis_server.url_via(proxy.address)
        writer = await opened(RedisSink[Any](url, stream, reconnect=QUICK))
        for checkpoint in range(1, 40):
            proxy.cut_after = checkpoint * 67
            output = range(checkpoint * 10, checkpoint * 10 + 5)
            expected += output
            await writer.commit(await prepared(writer, n(*output), checkpoint))
        accepted = proxy.accepted
        await writer.close()

    assert accepted > 15
    assert numbers(redis_server, stream) == expected


async def test_a_commit_whose_answer_is_lost_is_not_repeated(
    redis_server: TestServer, stream: str
) -> None:
    async with Proxy(*redis_server.host_and_port) as proxy:
        url = redis_server.url_via(proxy.address)
        writer = await opened(RedisSink[Any](url, stream, reconnect=QUICK))
        stored = await prepared(writer, n(1), 1)
        proxy.lose_answers()
        committing = asyncio.create_task(writer.commit(stored))
        async with asyncio.timeout(300):
            while not redis_server.command("EXISTS", stream):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        proxy.cut()
        proxy.thaw()
        await committing
        await writer.close()

    assert numbers(redis_server, stream) == [1]


async def test_a_frozen_server_is_backpressure(own_redis: TestServer, stream: str) -> None:
    timeout = timedelta(milliseconds=100)
    writer = await opened(to(own_redis, stream, reconnect=QUICK, timeout=timeout))
    stored = await prepared(writer, n(1, 2, 3), 1)
    assert own_redis.process is not None

    own_redis.process.pause()
    committing = asyncio.create_task(writer.commit(stored))
    await asyncio.sleep(0.3)
    was_done = committing.done()
    own_redis.process.resume()
    async with asyncio.timeout(300):
        await committing
    await writer.close()

    assert not was_done
    assert numbers(own_redis, stream) == [1, 2, 3]


@pytest.mark.slow
async def test_a_server_that_is_killed_and_restarted_has_each_entry_once(
    own_redis: TestServer, stream: str
) -> None:
    writer = await opened(to(own_redis, stream, reconnect=QUICK))
    first = await prepared(writer, n(*range(1500)), 1)
    own_redis.kill()
    own_redis.start()
    await writer.commit(first)
    second = await prepared(writer, n(*range(1500, 3000)), 2)
    await writer.commit(second)
    own_redis.kill()
    own_redis.start()
    await writer.commit(second)
    await writer.close()

    assert numbers(own_redis, stream) == list(range(3000))


async def test_a_server_without_memory_is_an_error_and_nothing_is_written(
    own_redis: TestServer, stream: str
) -> None:
    writer = await opened(to(own_redis, stream))
    stored = await prepared(writer, n(*range(1500)), 1)

    own_redis.command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(SinkError, match=r"OOM|used memory"):
            await writer.commit(stored)
    finally:
        own_redis.command("CONFIG", "SET", "maxmemory", "0")
    before = own_redis.command("EXISTS", stream)
    await writer.commit(stored)
    await writer.close()

    assert before == 0
    assert numbers(own_redis, stream) == list(range(1500))


async def test_a_server_that_has_become_a_replica_is_connected_to_again(
    own_redis: TestServer, stream: str
) -> None:
    writer: Any = await opened(to(own_redis, stream))
    stored = await prepared(writer, n(1), 1)
    before = await writer._link.command("CLIENT", "ID")

    own_redis.command("REPLICAOF", "127.0.0.1", "1")
    committing = asyncio.create_task(writer.commit(stored))
    await asyncio.sleep(0.1)
    was_done = committing.done()
    own_redis.command("REPLICAOF", "NO", "ONE")
    async with asyncio.timeout(300):
        await committing
    after = await writer._link.command("CLIENT", "ID")
    await writer.close()

    assert not was_done
    assert before != after  # its address may be that of the new primary now
    assert numbers(own_redis, stream) == [1]


async def test_wrong_credentials_fail_at_once(own_redis: TestServer, stream: str) -> None:
    own_redis.command("ACL", "SETUSER", "writer", "on", ">right", "~*", "+@all", "-xadd")

    for password, message in (
        ("wrong-secret", "invalid username"),
        ("right", "can't run this command"),
    ):
        sink = RedisSink[Any](own_redis.url_of(f"writer:{password}"), stream)
        with pytest.raises(SinkError, match=message) as caught:
            await written(sink, {"n": 1})
        assert "wrong-secret" not in str(caught.value)
