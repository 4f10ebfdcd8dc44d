"""``KafkaSink`` against a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from aflow.connect import Batch, Committable, SinkError, Writer, WriterContext
from aflow.errors import RestoreError
from aflow.testing import check_sink
from aflow_connectors.formats import Raw
from aflow_connectors.kafka import KafkaSink
from aflow_connectors.message import Message
from aflow_connectors.reconnect import Reconnect
from tests.connectors.kafka.broker import Broker, Cluster

pytestmark = pytest.mark.asyncio

#: A password that the broker of the tests does not ask for.
SECRET = "s3cret"


async def opened(
    sink: KafkaSink[Any], *, subtask: int = 0, checkpoints: bool = True
) -> Writer[Any]:
    return await sink.writer(WriterContext("out", subtask=subtask, checkpoints=checkpoints))


async def prepared(writer: Writer[Any], values: Sequence[Any], checkpoint: int) -> Committable:
    """Write ``values``, and return what ``prepare`` returns."""
    if values:  # a batch is never empty
        writing = writer.write(Batch(list(values)))
        if writing is not None:
            await writing
    return await writer.prepare(checkpoint)


async def seen(kafka: Cluster, topic: str) -> list[Any]:
    return [json.loads(message.value) for message in await kafka.contents(topic)]


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [True, False], ids=["transactions", "at least once"])
async def test_it_keeps_the_contract_of_sinks(kafka: Cluster, *, exactly_once: bool) -> None:
    topics = [await kafka.create() for _ in range(20)]
    names: dict[int, str] = {}

    def fresh() -> KafkaSink[int]:
        topic = topics.pop()
        sink = KafkaSink[int](
            kafka.servers, topic, exactly_once=exactly_once, client={"sasl_plain_password": SECRET}
        )
        names[id(sink)] = topic
        kept.append(sink)
        return sink

    async def visible(sink: KafkaSink[int]) -> list[Any]:
        return await seen(kafka, names[id(sink)])

    kept: list[object] = []
    await check_sink(fresh, visible, list(range(8)), secrets=[SECRET])


async def test_a_message_has_key_headers_and_time_of_its_record(kafka: Cluster) -> None:
    topic = await kafka.create()
    sink = KafkaSink[dict[str, Any]](
        kafka.servers,
        topic,
        key=lambda one: one["id"],
        headers=lambda one: {"kind": "order", "raw": b"\x00"},
        exactly_once=False,
    )
    writer = await opened(sink)
    await writer.write(Batch([{"id": "é"}], [1234]))  # type: ignore[misc]  # it is a coroutine
    await writer.close()

    (message,) = await kafka.contents(topic)
    assert (message.key, message.value) == ("é".encode(), '{"id":"é"}'.encode())
    assert (message.timestamp, message.headers) == (1234, (("kind", b"order"), ("raw", b"\x00")))


async def test_tombstones_and_empty_messages_are_written(kafka: Cluster) -> None:
    topic = await kafka.create()
    sink = KafkaSink[Message[bytes, bytes]](kafka.servers, topic, format=Raw())
    writer = await opened(sink)
    output: list[Message[bytes, bytes]] = [
        Message(b"k", None),
        Message(None, b""),
        Message(b"", b"v", timestamp=5),
    ]

    await writer.commit(await prepared(writer, output, 1))
    await writer.close()

    found = await kafka.contents(topic)
    assert [(one.key, one.value) for one in found] == [(b"k", None), (None, b""), (b"", b"v")]
    assert found[2].timestamp == 5


async def test_large_and_many_messages_are_written_in_order(kafka: Cluster) -> None:
    topic = await kafka.create()
    sink = KafkaSink[bytes](kafka.servers, topic, format=Raw())
    writer = await opened(sink)
    output = [b"x" * (900_000 if n % 50 == 0 else 3_000) + b"%d" % n for n in range(101)]

    await writer.commit(await prepared(writer, output, 1))
    await writer.close()

    assert [one.value for one in await kafka.contents(topic)] == output


async def test_a_message_of_ten_megabytes_is_written(kafka: Cluster) -> None:
    topic = await kafka.create(max_message_bytes="20000000")
    sink = KafkaSink[bytes](
        kafka.servers, topic, format=Raw(), client={"max_request_size": 20_000_000}
    )
    writer = await opened(sink)
    large = b"x" * 10_000_000

    await writer.commit(await prepared(writer, [large, b"y"], 1))
    await writer.close()

    assert [one.value for one in await kafka.contents(topic)] == [large, b"y"]


async def test_keys_are_in_the_partitions_of_other_clients(kafka: Cluster) -> None:
    topic = await kafka.create(partitions=5)
    keys = [b"", b"a", "é".encode(), b"order-4711", *(b"%d" % n for n in range(50))]
    writer = await opened(KafkaSink(kafka.servers, topic, exactly_once=False))

    await prepared(writer, [Message(key, "ours") for key in keys], 1)
    await writer.close()
    for key in keys[:8]:
        await kafka.produce(topic, [b'"theirs"'], partition=None, key=key)

    places: dict[bytes, set[int]] = {}
    for message in await kafka.contents(topic):
        places.setdefault(message.key, set()).add(message.partition)
    assert {len(found) for found in places.values()} == {1}
    assert len({number for found in places.values() for number in found}) == 5


async def test_equal_keys_are_in_one_partition_and_a_function_chooses_the_topic(
    kafka: Cluster,
) -> None:
    odd, even, marks = [await kafka.create(partitions=2) for _ in range(3)]
    sink = KafkaSink[int](
        kafka.servers,
        lambda n: odd if n % 2 else even,
        key=lambda n: str(n // 10),
        offsets_topic=marks,
    )
    writer = await opened(sink)

    await writer.commit(await prepared(writer, range(100), 1))
    await writer.close()

    for topic, first in ((odd, 1), (even, 0)):
        found = await kafka.contents(topic)
        places = {(one.key, one.partition) for one in found}
        assert sorted(int(one.value) for one in found) == list(range(first, 100, 2))
        assert len(places) == len({key for key, _ in places})


_Any = Message[Any, Any]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (_Any(None, None), "neither key nor value"),
        (_Any(7, 1), "a key is bytes or str, not int"),
        (_Any(b"k", 1, timestamp=-5), "older than 1970"),
        (_Any(b"k", "x" * 2_000_000), "message of 2,000,1.. bytes, and max_request_size"),
        (object(), "JSON cannot hold it"),
    ],
    ids=["empty", "key", "time", "size", "type"],
)
async def test_what_is_no_message_is_refused_before_the_checkpoint(
    kafka: Cluster, record: object, message: str
) -> None:
    writer = await opened(KafkaSink(kafka.servers, await kafka.create()))

    with pytest.raises(SinkError, match=message):
        await prepared(writer, [record], 1)
    await writer.close()


async def test_a_topic_that_does_not_exist_is_an_error(kafka: Cluster) -> None:
    there = await kafka.create()
    with pytest.raises(SinkError, match="no topic 'missing'"):
        await opened(KafkaSink(kafka.servers, "missing"))
    by_record = await opened(KafkaSink(kafka.servers, lambda _: "gone", offsets_topic=there))
    with pytest.raises(SinkError, match="no topic 'gone'"):
        await prepared(by_record, [1], 1)
    await by_record.close()


async def test_a_crash_between_checkpoint_and_commit_loses_and_repeats_nothing(
    kafka: Cluster,
) -> None:
    topic = await kafka.create()
    writer = await opened(KafkaSink(kafka.servers, topic))
    first = await prepared(writer, [1], 1)
    await writer.commit(first)
    second = await prepared(writer, [2], 2)
    await writer.close()

    restored = KafkaSink[Any](kafka.servers, topic)
    for _ in range(2):
        await restored.recover("out", [second])
    writer = await opened(restored)
    await writer.commit(second)
    await writer.commit(await prepared(writer, [3], 3))
    await writer.close()

    assert await seen(kafka, topic) == [1, 2, 3]


async def test_a_sink_that_is_no_longer_exactly_once_writes_what_its_checkpoint_has(
    kafka: Cluster,
) -> None:
    topic = await kafka.create()
    writer = await opened(KafkaSink(kafka.servers, topic))
    stored = await prepared(writer, [1], 1)
    await writer.close()

    sink = KafkaSink[Any](kafka.servers, topic, exactly_once=False)
    for _ in range(2):
        await sink.recover("out", [stored])

    assert await seen(kafka, topic) == [1]


async def test_fewer_writers_recover_the_output_of_all(kafka: Cluster) -> None:
    topic = await kafka.create()
    sink = KafkaSink[Any](kafka.servers, topic)
    writers = [await opened(sink, subtask=number) for number in range(3)]
    stored = [await prepared(writer, [number], 1) for number, writer in enumerate(writers)]
    await writers[1].commit(stored[1])
    for writer in writers:
        await writer.close()

    await KafkaSink[Any](kafka.servers, topic).recover("out", stored)

    assert sorted(await seen(kafka, topic)) == [0, 1, 2]


async def test_a_job_that_was_taken_over_is_fenced(kafka: Cluster) -> None:
    topic = await kafka.create()
    zombie = await opened(KafkaSink(kafka.servers, topic))
    first = await prepared(zombie, [1], 1)
    await zombie.commit(first)
    late = await prepared(zombie, [2], 2)

    successor = KafkaSink[Any](kafka.servers, topic)
    await successor.recover("out", [first])
    with pytest.raises(SinkError, match="fenced: another job"):
        await zombie.commit(late)
    await zombie.close()

    assert await seen(kafka, topic) == [1]


@pytest.mark.parametrize("has_written", [False, True], ids=["at its start", "after its output"])
async def test_a_job_that_was_taken_over_while_it_had_no_connection_is_fenced(
    kafka: Cluster, *, has_written: bool
) -> None:
    topic = await kafka.create()
    zombie: Any = await opened(KafkaSink(kafka.servers, topic))
    first = await prepared(zombie, [1], 1)
    await zombie.commit(first)
    late = await prepared(zombie, [2], 2)
    await zombie._committer.close()  # a lost connection: it needs a new producer

    successor = KafkaSink[Any](kafka.servers, topic)
    await successor.recover("out", [first])
    writer = await opened(successor)
    if has_written:
        await writer.commit(await prepared(writer, [20], 2))
    with pytest.raises(SinkError, match="fenced: another job"):
        await zombie.commit(late)
    await zombie.close()
    await writer.commit(await prepared(writer, [30], 3))  # it was not fenced in turn
    await writer.close()

    assert await seen(kafka, topic) == [1, *[20] * has_written, 30]


async def test_a_writer_without_output_keeps_its_number_from_expiring(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await kafka.create()
    writer: Any = await opened(KafkaSink(kafka.servers, topic))
    await writer.commit(await prepared(writer, [1], 4))
    group = writer._committer.id.name
    await kafka.commit(group, topic, 99)  # a sign that it is not written at each checkpoint

    await writer.commit(await prepared(writer, [], 5))
    early = await kafka.committed(group, topic)
    monkeypatch.setattr("aflow_connectors.kafka.transactions._REFRESH", 0.0)
    await writer.commit(await prepared(writer, [], 6))
    await writer.close()

    assert (early, await kafka.committed(group, topic)) == (99, 4)


@pytest.mark.parametrize("subtasks", [1, 2], ids=["same writers", "more writers since"])
async def test_an_older_checkpoint_than_the_output_is_refused(
    kafka: Cluster, subtasks: int
) -> None:
    topic = await kafka.create()
    sink = KafkaSink[Any](kafka.servers, topic)
    writer = await opened(sink)
    old = await prepared(writer, [1], 1)
    await writer.commit(old)
    for number in range(subtasks):
        last = await opened(sink, subtask=number)
        output = [2] if number == subtasks - 1 else []
        await last.commit(await prepared(last, output, 2))
        await last.close()
    await writer.close()

    with pytest.raises(SinkError, match=r"resumes from checkpoint 1, but .* checkpoint 2"):
        await KafkaSink[Any](kafka.servers, topic).recover("out", [old])


async def test_another_cluster_is_refused_since_it_does_not_know_the_job(kafka: Cluster) -> None:
    topic, other = await kafka.create(), await kafka.create()
    writer = await opened(KafkaSink(kafka.servers, topic))
    stored: Any = await prepared(writer, [1], 1)
    await writer.close()

    with pytest.raises(RestoreError, match="does not know which checkpoints were written"):
        await KafkaSink[Any](kafka.servers, topic).recover("out", [{**stored, "topic": other}])


async def test_a_number_that_was_used_before_is_refused(kafka: Cluster) -> None:
    writer = await opened(KafkaSink(kafka.servers, await kafka.create()))
    await writer.commit(await prepared(writer, [1], 5))

    with pytest.raises(SinkError, match="checkpoint 5 of this sink was written already"):
        await writer.prepare(5)
    await writer.close()


async def test_a_topic_that_refuses_a_message_is_an_error_with_the_remedy(kafka: Cluster) -> None:
    topic = await kafka.create(max_message_bytes="2000")
    writer = await opened(KafkaSink(kafka.servers, topic))
    stored = await prepared(writer, ["x" * 5000], 1)

    with pytest.raises(SinkError, match=r"raise max\.message\.bytes of the topic"):
        await writer.commit(stored)
    await writer.close()


async def test_a_frozen_broker_is_backpressure(own_broker: Broker) -> None:
    cluster = Cluster(own_broker.servers)
    topic = await cluster.create()
    sink = KafkaSink[int](own_broker.servers, topic, reconnect=Reconnect(most=timedelta(seconds=1)))
    writer = await opened(sink)
    stored = await prepared(writer, [1, 2, 3], 1)

    own_broker.pause()
    committing = asyncio.create_task(writer.commit(stored))
    await asyncio.sleep(0.3)
    was_done = committing.done()
    own_broker.resume()
    async with asyncio.timeout(300):
        await committing
    await writer.close()

    assert not was_done
    assert await seen(cluster, topic) == [1, 2, 3]
