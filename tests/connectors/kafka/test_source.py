"""``KafkaSource`` against a broker."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import aflow as af
from aflow.connect import BadRecord, Chunk, Reader, SourceError, Tag
from aflow.testing import CollectSink, check_discovery, check_source
from aflow_connectors.formats import Raw, Text
from aflow_connectors.kafka import KafkaSource
from aflow_connectors.message import Message
from aflow_connectors.reconnect import Reconnect
from tests.connectors.kafka.broker import Broker, Cluster
from tests.connectors.proxy import Proxy

pytestmark = pytest.mark.asyncio

BAD = Tag[BadRecord]("bad")

#: A password that the broker of the tests does not ask for.
SECRET = "s3cret"


async def opened(source: KafkaSource[Any], position: object = None, split: int = 0) -> Reader[Any]:
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


async def test_it_keeps_the_contract_of_sources(kafka: Cluster) -> None:
    topic = await kafka.create(partitions=2)
    await kafka.produce(topic, [b"1", b"2", b"3", b"four", b"4"])
    await kafka.produce(
        topic, [b"5", b"-1", b"6", b"-2"], partition=1, transactions=[True, False] * 2
    )

    await check_source(
        lambda: KafkaSource(
            kafka.servers,
            topic,
            of=int,
            until="now",
            dead_letters=BAD,
            group=topic,
            client={"sasl_plain_password": SECRET},
        ),
        expected=[1, 2, 3, 4, 5, 6],
        rejected=[b"four"],
        secrets=[SECRET],
    )


@pytest.mark.slow
async def test_it_keeps_the_contract_while_connections_are_cut(
    own_broker: Broker, kafka: Cluster
) -> None:
    topic = await kafka.create(partitions=2)
    for partition in range(2):
        await kafka.produce(topic, [b"%d" % n for n in range(20)], partition=partition)
    quick = Reconnect(delay=timedelta(milliseconds=1), most=timedelta(milliseconds=50))

    async with Proxy("127.0.0.1", own_broker.proxied, listen=own_broker.advertised) as proxy:
        host, port = proxy.address
        await check_source(
            lambda: KafkaSource(f"{host}:{port}", topic, of=int, until="now", reconnect=quick),
            expected=[*range(20), *range(20)],
            disturb=proxy.cut,
        )


async def test_partitions_and_topics_that_are_created_later_are_found(kafka: Cluster) -> None:
    topic = await kafka.create(partitions=1, name=f"found-{uuid.uuid4().hex}")
    await kafka.produce(topic, [b"1"])

    async def grow(source: KafkaSource[int]) -> list[int]:
        await kafka.add_partitions(topic, 2)
        await kafka.produce(topic, [b"2", b"3"], partition=1)
        return [2, 3]

    await check_discovery(lambda: KafkaSource(kafka.servers, topic, of=int, start="latest"), grow)


async def test_messages_have_key_headers_timestamp_and_place(kafka: Cluster) -> None:
    topic = await kafka.create()
    headers = [("h", b"\x00"), ("empty", None)]
    await kafka.produce(
        topic, [b'{"a": 1}', None], key=b"k", timestamps=[1000, 2000], headers=headers
    )
    source = KafkaSource(
        kafka.servers, topic, of=dict, messages=True, key_format=Text(), until="now"
    )

    first, tombstone = await values(await opened(source), 2)

    read = (("h", b"\x00"), ("empty", b""))
    assert first == Message("k", {"a": 1}, read, 1000, topic, 0, 0)
    assert (tombstone.key, tombstone.value, tombstone.offset) == ("k", None, 1)


async def test_what_is_no_record_is_a_dead_letter_or_an_error(kafka: Cluster) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"1", b"", b"{", None, b"2"], key=b"k")
    bad = Tag[BadRecord]("bad")
    tolerant = KafkaSource(kafka.servers, topic, of=int, dead_letters=bad, until="now")

    reader = await opened(tolerant)
    chunk = await until_chunk(reader, lambda chunk: bool(chunk.values))
    await reader.close()

    assert chunk.values == [1, 2]
    places = [f"{topic}, partition 0, offset {offset}" for offset in (1, 2, 3)]
    assert [one.place for one in chunk.rejected] == places
    assert "tombstone" in chunk.rejected[2].reason
    with pytest.raises(SourceError, match="partition 0, offset 1"):
        await values(await opened(KafkaSource(kafka.servers, topic, of=int, until="now")), 2)


async def test_empty_messages_and_those_of_ten_megabytes_are_read(kafka: Cluster) -> None:
    topic = await kafka.create(max_message_bytes="20000000")
    large = b"x" * 10_000_000
    await kafka.produce(topic, [b"a", large, b"", b"b"])

    source = KafkaSource(kafka.servers, topic, format=Raw(), until="now")

    assert await values(await opened(source), 4) == [b"a", large, b"", b"b"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [b"0", b"1", b"2", b"new"]),
        ("latest", [b"new"]),
        (datetime.fromtimestamp(1.5, UTC), [b"2", b"new"]),
        (datetime(2200, 1, 1, tzinfo=UTC), [b"new"]),
    ],
    ids=["earliest", "latest", "time", "future"],
)
async def test_start_chooses_the_first_record(
    kafka: Cluster, start: Any, expected: list[bytes]
) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0", b"1", b"2"], timestamps=[0, 1000, 2000])

    reader = await opened(KafkaSource(kafka.servers, topic, format=Raw(), start=start))
    await kafka.produce(topic, [b"new"], timestamps=[3000])

    assert await values(reader, len(expected)) == expected


async def test_offsets_as_start_must_name_each_partition(kafka: Cluster) -> None:
    topic = await kafka.create(partitions=2)
    await kafka.produce(topic, [b"0", b"1", b"2"])
    source = KafkaSource(kafka.servers, topic, of=int, start={(topic, 0): 2}, until="now")

    assert await values(await opened(source), 9) == [2]
    with pytest.raises(SourceError, match="no offset for partition 1"):
        await opened(source, split=1)


async def test_the_first_position_keeps_the_start_for_a_restart(kafka: Cluster) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0"])
    source = KafkaSource(kafka.servers, topic, of=int, start="latest")
    reader = await opened(source)

    chunk = await reader.read(10)
    await reader.close()
    await kafka.produce(topic, [b"1"])

    assert chunk is not None
    assert chunk == Chunk([], 1)
    assert await values(await opened(source, chunk.position), 1) == [1]


async def test_a_restart_ends_where_the_first_run_would_have(kafka: Cluster) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0", b"1"])
    source = KafkaSource(kafka.servers, topic, of=int, until="now")
    reader = await opened(source)
    start = await reader.read(1)
    await reader.close()
    assert start is not None

    await kafka.produce(topic, [b"2"])

    assert await values(await opened(source, start.position), 9) == [0, 1]


async def test_a_compacted_topic_has_gaps(kafka: Cluster) -> None:
    topic = await kafka.create(
        cleanup_policy="compact", min_cleanable_dirty_ratio="0.0", segment_ms="100"
    )
    await kafka.produce(topic, [b"0", b"1", b"2"], key=b"k")
    await asyncio.sleep(0.15)  # the time of the broker, until the segment is closed
    await kafka.produce(topic, [b"3"], key=b"other")
    source = KafkaSource(kafka.servers, topic, of=int, messages=True, until="now")

    async with asyncio.timeout(300):
        while len(found := await values(await opened(source), 9)) > 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # until the broker has compacted it

    assert [(one.offset, one.value) for one in found] == [(2, 2), (3, 3)]


async def test_lost_records_are_an_error_with_the_offsets(kafka: Cluster) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0", b"1", b"2"])
    await kafka.delete_before(topic, 2)

    with pytest.raises(SourceError, match=r"offset 1 does not exist any more: .* has 2 to 3\."):
        await values(await opened(KafkaSource(kafka.servers, topic, of=int), 1), 1)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [2, 3]), ("latest", [3])])
async def test_a_policy_continues_after_lost_records(
    kafka: Cluster, policy: Any, expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0", b"1", b"2"])
    await kafka.delete_before(topic, 2)
    source = KafkaSource(
        kafka.servers, topic, of=int, on_lost_offsets=policy, idle_after=timedelta(milliseconds=1)
    )

    reader = await opened(source, 1)
    reading = asyncio.create_task(values(reader, len(expected)))
    async with asyncio.timeout(300):
        while not any(getattr(one, "event", "") == "offsets_lost" for one in caplog.records):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await kafka.produce(topic, [b"3"])

    assert await reading == expected


async def test_the_place_after_lost_records_is_in_a_chunk_before_there_are_more(
    kafka: Cluster,
) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0", b"1", b"2"])
    await kafka.delete_before(topic, 2)
    source = KafkaSource(kafka.servers, topic, of=int, on_lost_offsets="latest", idle_after=None)
    reader = await opened(source, 1)

    async with asyncio.timeout(300):
        chunk = await reader.read(10)
    await reader.close()
    await kafka.produce(topic, [b"3"])

    assert chunk == Chunk([], 3)
    assert await values(await opened(source, 3), 1) == [3]


async def test_a_shorter_topic_of_the_same_name_ends_at_its_own_end(kafka: Cluster) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0", b"1"])
    source = KafkaSource(kafka.servers, topic, of=int, on_lost_offsets="earliest", until="now")

    assert await values(await opened(source, (50, 100)), 9) == [0, 1]


async def test_a_broker_that_waits_for_longer_before_it_answers_is_not_lost(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aflow_connectors.kafka.partition.ANSWERS", 0.1)
    topic = await kafka.create()
    source = KafkaSource(kafka.servers, topic, of=int, client={"fetch_max_wait_ms": 600_000})

    reading = asyncio.create_task(values(await opened(source), 1))
    await asyncio.sleep(0.7)
    await kafka.produce(topic, [b"1"])

    assert await reading == [1]
    assert not [one for one in caplog.records if getattr(one, "event", "") == "connection_lost"]


async def test_a_partition_at_its_end_is_idle_once(kafka: Cluster) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0"])
    source = KafkaSource(kafka.servers, topic, of=int, idle_after=timedelta(milliseconds=1))
    reader = await opened(source)

    idle = await until_chunk(reader, lambda chunk: chunk.idle)
    waiting = asyncio.create_task(reader.read(10))
    await kafka.produce(topic, [b"1"])
    chunk = await waiting
    await reader.close()

    assert (idle.position, idle.values) == (1, [])
    assert chunk == Chunk([1], 2, chunk.timestamps if chunk else None, [])


async def test_a_pattern_finds_new_topics_and_partitions_from_their_first_record(
    kafka: Cluster,
) -> None:
    first = await kafka.create()
    second = f"{first}-second"
    source = KafkaSource(kafka.servers, re.compile(f"{first}.*"), of=int, start="latest")
    before = [split.id for split in await source.splits()]

    await kafka.create(name=second)
    await kafka.add_partitions(first, 2)
    await kafka.produce(first, [b"7"], partition=1)
    async with asyncio.timeout(300):
        while len(splits := await source.splits()) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    assert before == [f"{first}/0"]
    assert [split.id for split in splits] == [f"{first}/0", f"{first}/1", f"{second}/0"]
    assert await values(await source.reader(splits[1], None), 1) == [7]


async def test_a_topic_that_does_not_exist_is_an_error(kafka: Cluster) -> None:
    with pytest.raises(SourceError, match="no topic 'missing'"):
        await KafkaSource(kafka.servers, "missing").splits()
    with pytest.raises(SourceError, match=r"no topic that matches 'miss\.\*'"):
        await KafkaSource(kafka.servers, re.compile("miss.*"), until="now").splits()
    assert await KafkaSource(kafka.servers, re.compile("miss.*")).splits() == []


async def test_checkpoints_commit_the_offset_of_the_group(kafka: Cluster) -> None:
    topic = await kafka.create()
    await kafka.produce(topic, [b"0", b"1", b"2"])
    source = KafkaSource(kafka.servers, topic, of=int, group=f"{topic}-group")
    reader = await opened(source)
    chunk = await until_chunk(reader, lambda chunk: len(chunk.values) == 3)

    before = await kafka.committed(f"{topic}-group", topic)
    await reader.on_checkpoint_completed(chunk.position)
    await reader.close()

    assert (before, await kafka.committed(f"{topic}-group", topic)) == (None, 3)


async def test_a_position_of_another_source_is_refused(kafka: Cluster) -> None:
    topic = await kafka.create()

    with pytest.raises(SourceError, match="of another kind of source"):
        await opened(KafkaSource(kafka.servers, topic), {"line": 3})


async def test_wrong_credentials_fail_at_once(own_broker: Broker) -> None:
    def source(password: str) -> KafkaSource[Any]:
        client: dict[str, object] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "reader",
            "sasl_plain_password": password,
        }
        return KafkaSource(own_broker.sasl_servers, re.compile("none"), client=client)

    assert await source("right").splits() == []
    with pytest.raises(SourceError, match="refuses the connection") as caught:
        async with asyncio.timeout(300):
            await source("wrong-secret").splits()
    assert "wrong-secret" not in str(caught.value)


async def test_a_server_that_is_away_is_an_error_after_a_time() -> None:
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=20))

    with pytest.raises(
        SourceError, match=r"give_up_after.*127\.0\.0\.1:1 cannot be reached: ConnectionRefused"
    ):
        await KafkaSource("127.0.0.1:1", "t", reconnect=reconnect).splits()


async def test_two_subtasks_read_three_partitions_and_a_restart_may_have_one(
    kafka: Cluster, tmp_path: Any
) -> None:
    topic = await kafka.create(partitions=3)
    for partition in range(3):
        await kafka.produce(
            topic, [b"%d" % (partition * 100 + n) for n in range(50)], partition=partition
        )

    async def run(parallelism: int) -> list[int]:
        flow, out = af.Flow("three"), CollectSink[int]()
        flow.source(KafkaSource(kafka.servers, topic, of=int, until="now"), name="in").to(
            out, name="out"
        )
        await flow.run(parallelism=parallelism, checkpointing=af.Checkpointing(storage=tmp_path))
        return sorted(out.values)

    assert await run(2) == sorted(p * 100 + n for p in range(3) for n in range(50))
    assert await run(1) == []
