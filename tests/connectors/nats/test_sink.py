"""``NatsSink`` against a server."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest

from aflow.connect import Batch, SinkError
from aflow.errors import RestoreError
from aflow.testing import check_sink
from aflow_connectors.formats import Json, Raw
from aflow_connectors.message import Message
from aflow_connectors.nats import NatsSink
from aflow_connectors.nats.client import NatsLink, NatsServers
from aflow_connectors.nats.publications import ids_after
from tests.connectors.nats.server import NatsServer
from tests.connectors.postgres.writing import QUICK, opened, prepared, put, written
from tests.connectors.proxy import Proxy

pytestmark = pytest.mark.asyncio


async def numbers(server: NatsServer, stream: str) -> list[int]:
    return [int(body) for body in await server.bodies(stream)]


def to(server: NatsServer, subject: str, **options: Any) -> NatsSink[Any]:
    given: dict[str, Any] = {"reconnect": QUICK, **options}
    return NatsSink[Any](server.url, subject, **given)


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [True, False], ids=["epochs", "at least once"])
async def test_it_keeps_the_contract_of_sinks(
    nats_server: NatsServer, stream: str, *, exactly_once: bool
) -> None:
    names = [await nats_server.create(f"{stream}-{n}") for n in range(18)]
    made: dict[int, str] = {}
    kept: list[object] = []

    def fresh() -> NatsSink[int]:
        name = names.pop()
        sink = NatsSink[int](nats_server.url, name, exactly_once=exactly_once)
        made[id(sink)] = name
        kept.append(sink)
        return sink

    async def visible(sink: NatsSink[int]) -> list[int]:
        return await numbers(nats_server, made[id(sink)])

    await check_sink(fresh, visible, list(range(8)))


async def test_a_message_has_subject_and_headers_of_its_record(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    sink = NatsSink[Any](
        nats_server.url,
        lambda one: f"{stream}.{one['id']}",
        stream=stream,
        headers=lambda one: {"kind": "order", "é": "x"} if one["id"] > 1 else {"kind": "é"},
    )
    writer = await opened(sink)
    await writer.commit(await prepared(writer, 1, {"id": 1}))
    with pytest.raises(SinkError, match="has a header 'é', which is no name"):
        await put(writer, {"id": 2})
    await writer.close()

    (message,) = await nats_server.contents(stream)
    assert (message.subject, message.data) == (f"{stream}.1", b'{"id":1}')
    assert message.headers["kind"] == "é"
    assert message.headers["Nats-Msg-Id"].endswith("-0-1-0")


async def test_headers_of_a_message_are_published_without_those_of_the_server(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    sink = to(nats_server, stream, format=Raw(), exactly_once=False)

    await written(
        sink,
        Message("any", b"", (("h", b"1"), ("Nats-Msg-Id", b"7"))),
        Message("any", b"", (("Nats-Msg-Id", b"7"),)),
    )

    first, second = await nats_server.contents(stream)
    assert (first.data, first.headers, second.headers) == (b"", {"h": "1"}, None)


async def test_large_empty_and_many_messages_are_published_in_order(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream, format=Raw()))
    output = [b"x" * 10_000_000, b"", *(b"%d" % n for n in range(1500))]

    await writer.commit(await prepared(writer, 1, *output))
    await writer.close()

    assert await nats_server.bodies(stream) == output


_Any = Message[Any, Any]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (_Any("k", None), "is a tombstone, which NATS does not have"),
        (_Any("k", 1, (("h", b"\xff"),)), "a header 'h' that is not UTF-8"),
        (_Any("k", 1, (("h", b"a\r\nb"),)), "with several lines"),
        (_Any("k", 1, (("h", b"1"), ("h", b"2"))), "two headers 'h'"),
        ("x" * 17_000_000, "message of 17,000,0.. bytes, and the server"),
        (object(), "JSON cannot hold it"),
    ],
    ids=["tombstone", "header", "lines", "twice", "size", "type"],
)
async def test_what_is_no_message_is_refused_before_the_checkpoint(
    nats_server: NatsServer, stream: str, record: object, message: str
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream))

    with pytest.raises(SinkError, match=message):
        await prepared(writer, 1, record)
    await writer.close()


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ("other", "which stream .* does not capture"),
        (1, "has 1 as subject, which is no name"),
        ("a b", "'a b' as subject"),
        (None, "the function failed: KeyError"),
    ],
    ids=["other", "type", "space", "failure"],
)
async def test_a_record_without_subject_of_the_stream_is_refused(
    nats_server: NatsServer, stream: str, subject: Any, message: str
) -> None:
    await nats_server.create(stream)
    subjects = {} if subject is None else {1: subject}
    sink = NatsSink[Any](nats_server.url, lambda one: subjects[one], stream=stream)

    with pytest.raises(SinkError, match=message):
        await written(sink, 1)


async def test_a_subject_or_stream_that_does_not_exist_is_an_error(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    for sink, message in (
        (to(nats_server, "missing"), "no stream captures the subject 'missing'"),
        (to(nats_server, "x", stream="missing"), "there is no stream 'missing'"),
        (to(nats_server, "x", stream=stream), "does not capture the subject 'x'"),
    ):
        with pytest.raises(SinkError, match=message):
            await opened(sink)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retention": "workqueue"}, "removes messages that were read"),
        ({"max_msgs_per_subject": 5}, "keeps 5 messages of a subject only"),
        ({"duplicate_window": 2}, r"duplicate window is 2 s.*--dupe-window 2m"),
    ],
    ids=["queue", "per subject", "window"],
)
async def test_a_stream_that_cannot_have_exactly_once_output_is_refused(
    nats_server: NatsServer, stream: str, settings: Any, message: str
) -> None:
    await nats_server.create(stream, **settings)

    with pytest.raises(SinkError, match=message):
        await opened(to(nats_server, stream))
    await written(to(nats_server, stream, exactly_once=False), 1)


async def test_a_stream_of_another_kind_is_refused_for_the_progress(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)

    with pytest.raises(SinkError, match="is not for the progress of sinks"):
        await opened(to(nats_server, stream, progress=stream))


async def test_a_crash_between_checkpoint_and_commit_loses_and_repeats_nothing(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream))
    await writer.commit(await prepared(writer, 1, 1))
    second = await prepared(writer, 2, *range(2, 600))
    await writer.close()

    restored = to(nats_server, stream)
    for _ in range(2):
        await restored.recover("out", [second])
    writer = await opened(restored)
    await writer.commit(second)
    await writer.commit(await prepared(writer, 3, 600))
    await writer.close()

    assert await numbers(nats_server, stream) == list(range(1, 601))


async def begun(server: NatsServer, stream: str, published: int) -> Any:
    """Publish the first messages of a checkpoint without ids, as if the server had forgotten them, and "crash".

    Return the committable.
    """
    await server.create(stream)
    await server.publish(stream, b"100")
    writer: Any = await opened(to(server, stream))
    stored = await prepared(writer, 1, *range(5))
    publisher = writer._publisher

    async def crash(*_: Any, **__: Any) -> None:
        raise SinkError("crash")

    publisher._publish = crash
    with pytest.raises(SinkError, match="crash"):
        await writer.commit(stored)
    await writer.close()
    prefix = f"{publisher.owner}-0-1-"
    for n in range(published):
        await server.publish(stream, b"%d" % n, headers={"Nats-Msg-Id": f"{prefix}{n}"})
    await server.publish(stream, b"100")
    return stored


@pytest.mark.parametrize("published", [0, 3, 5])
async def test_messages_that_were_published_before_a_crash_are_found_after_the_window(
    nats_server: NatsServer, stream: str, published: int
) -> None:
    stored = await begun(nats_server, stream, published)
    # Ids are remembered for a moment only, and the sink refuses such a stream: it is changed behind its back.
    await nats_server.administer(
        lambda context: context._jsm.update_stream(
            name=stream, subjects=[stream], duplicate_window=0.1
        )
    )
    await asyncio.sleep(0.2)  # time of the server

    await to(nats_server, stream).recover("out", [stored])

    found = await numbers(nats_server, stream)
    assert sorted(found) == [0, 1, 2, 3, 4, 100, 100]


async def test_a_stream_that_has_discarded_the_messages_in_doubt_is_refused(
    nats_server: NatsServer, stream: str
) -> None:
    stored = await begun(nats_server, stream, 3)
    await nats_server.administer(lambda context: context._jsm.purge_stream(stream, keep=1))

    with pytest.raises(RestoreError, match=r"not known which of its messages were published"):
        await to(nats_server, stream).recover("out", [stored])


async def test_messages_of_an_ended_checkpoint_may_be_discarded(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream))
    stored = await prepared(writer, 1, 1, 2)
    await writer.commit(stored)
    await writer.close()
    await nats_server.administer(lambda context: context._jsm.purge_stream(stream))

    await to(nats_server, stream).recover("out", [stored])

    assert await numbers(nats_server, stream) == []


async def test_a_sink_that_is_no_longer_exactly_once_publishes_what_its_checkpoint_has(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream))
    stored = await prepared(writer, 1, 1)
    await writer.close()

    sink = to(nats_server, stream, exactly_once=False)
    for _ in range(2):
        await sink.recover("out", [stored])

    assert await numbers(nats_server, stream) == [1]


async def test_fewer_writers_recover_the_output_of_all(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    sink = to(nats_server, stream)
    writers = [await opened(sink, subtask=number) for number in range(3)]
    stored = [await prepared(writer, 1, number) for number, writer in enumerate(writers)]
    await writers[1].commit(stored[1])
    for writer in writers:
        await writer.close()

    await to(nats_server, stream).recover("out", stored)

    assert sorted(await numbers(nats_server, stream)) == [0, 1, 2]


async def test_a_job_that_was_taken_over_is_fenced(nats_server: NatsServer, stream: str) -> None:
    await nats_server.create(stream)
    sink = to(nats_server, stream)
    zombie = await opened(sink)
    first = await prepared(zombie, 1, 1)
    await zombie.commit(first)
    late = await prepared(zombie, 2, 2)

    await to(nats_server, stream).recover("out", [first])
    with pytest.raises(SinkError, match="fenced: another job"):
        await zombie.commit(late)
    with pytest.raises(SinkError, match="fenced: another job"):
        await opened(sink)
    await zombie.close()

    assert await numbers(nats_server, stream) == [1]


@pytest.mark.parametrize("subtasks", [1, 2], ids=["same writers", "more writers since"])
async def test_an_older_checkpoint_than_the_output_is_refused(
    nats_server: NatsServer, stream: str, subtasks: int
) -> None:
    await nats_server.create(stream)
    sink = to(nats_server, stream)
    writer = await opened(sink)
    old = await prepared(writer, 1, 1)
    await writer.commit(old)
    await writer.close()
    for number in range(subtasks):
        last = await opened(sink, subtask=number)
        output = [2] if number == subtasks - 1 else []
        await last.commit(await prepared(last, 2, *output))
        await last.close()

    with pytest.raises(SinkError, match=r"resumes from checkpoint 1, but .* checkpoint 2"):
        await to(nats_server, stream).recover("out", [old])


async def test_a_server_that_does_not_know_the_output_is_refused(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream))
    stored: Any = await prepared(writer, 1, 1)
    await writer.close()

    other = f"{stream}-progress"
    with pytest.raises(RestoreError, match="not known which checkpoints were published"):
        await to(nats_server, stream).recover("out", [{**stored, "progress": other}])


async def test_progress_that_the_server_has_lost_is_an_error(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream))
    await writer.commit(await prepared(writer, 1, 1))
    stored: Any = await prepared(writer, 2, 2)
    await writer.close()

    with pytest.raises(SinkError, match=r"had published checkpoint 7 before 9.* server has 1"):
        await to(nats_server, stream).recover("out", [{**stored, "previous": 7, "checkpoint": 9}])


async def test_a_number_that_was_used_before_is_refused(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream))
    await writer.commit(await prepared(writer, 5, 1))

    with pytest.raises(SinkError, match="checkpoint 5 of this sink was written already"):
        await writer.prepare(5)
    await put(writer, 2)
    with pytest.raises(SinkError, match="no checkpoint covers the last records"):
        await writer.flush()
    await writer.close()


@pytest.mark.parametrize(
    "change",
    [{"owner": "me"}, {"writer": -1}, {"messages": ["x"]}, {"previous": None}, {"stream": 1}],
    ids=str,
)
async def test_a_foreign_committable_is_refused(
    nats_server: NatsServer, stream: str, change: dict[str, object]
) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream))
    stored: Any = await prepared(writer, 1, 1)
    await writer.close()

    with pytest.raises(RestoreError, match="another kind of sink"):
        await to(nats_server, stream).recover("out", [{**stored, **change}])
    with pytest.raises(RestoreError, match="damaged"):
        await to(nats_server, stream).recover("out", [{**stored, "messages": [b"\xc1"]}])


async def test_a_full_stream_is_an_error_and_continues_after_the_cure(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream, max_msgs=3, discard="new")
    writer = await opened(to(nats_server, stream))
    stored = await prepared(writer, 1, *range(5))

    with pytest.raises(SinkError, match="maximum messages exceeded"):
        await writer.commit(stored)
    await writer.close()
    await nats_server.administer(
        lambda context: context._jsm.update_stream(name=stream, subjects=[stream], max_msgs=100)
    )
    await to(nats_server, stream).recover("out", [stored])

    assert sorted(await numbers(nats_server, stream)) == list(range(5))


@pytest.mark.slow
async def test_connections_that_are_cut_anywhere_lose_and_repeat_nothing(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)
    expected: list[int] = []

    async with Proxy(*nats_server.host_and_port) as proxy:
        url = nats_server.url_via(proxy.address)
        writer = await opened(NatsSink[Any](url, stream, reconnect=QUICK))
        for checkpoint in range(1, 30):
            proxy.cut_after = checkpoint * 97
            output = range(checkpoint * 10, checkpoint * 10 + 5)
            expected += output
            await writer.commit(await prepared(writer, checkpoint, *output))
        accepted = proxy.accepted
        await writer.close()

    assert accepted > 10
    assert await numbers(nats_server, stream) == expected


async def test_messages_whose_acknowledgements_are_lost_are_not_repeated(
    nats_server: NatsServer, stream: str
) -> None:
    await nats_server.create(stream)

    async with Proxy(*nats_server.host_and_port) as proxy:
        url = nats_server.url_via(proxy.address)
        writer: Any = await opened(NatsSink[Any](url, stream, reconnect=QUICK))
        stored = await prepared(writer, 1, 1, 2, 3)
        begin = writer._publisher._advance

        async def advance(progress: Any) -> None:
            await begin(progress)
            if progress.after is not None:
                proxy.lose_answers()

        writer._publisher._advance = advance
        committing = asyncio.create_task(writer.commit(stored))
        async with asyncio.timeout(300):
            while len(await nats_server.bodies(stream)) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        proxy.cut()
        proxy.thaw()
        await committing
        await writer.close()

    assert await numbers(nats_server, stream) == [1, 2, 3]


@pytest.mark.slow
async def test_a_server_that_is_killed_and_restarted_has_each_message_once(
    own_nats: NatsServer, stream: str
) -> None:
    await own_nats.create(stream)
    writer = await opened(to(own_nats, stream))
    first = await prepared(writer, 1, *range(1500))
    own_nats.kill()
    own_nats.start()
    await writer.commit(first)
    second = await prepared(writer, 2, *range(1500, 3000))
    await writer.commit(second)
    own_nats.kill()
    own_nats.start()
    await writer.commit(second)
    await writer.close()

    assert await numbers(own_nats, stream) == list(range(3000))


async def test_a_frozen_server_is_backpressure(own_nats: NatsServer, stream: str) -> None:
    await own_nats.create(stream)
    writer = await opened(to(own_nats, stream, timeout=timedelta(milliseconds=200)))
    stored = await prepared(writer, 1, 1, 2, 3)
    assert own_nats.process is not None

    own_nats.process.pause()
    committing = asyncio.create_task(writer.commit(stored))
    await asyncio.sleep(0.4)
    was_done = committing.done()
    own_nats.process.resume()
    async with asyncio.timeout(300):
        await committing
    await writer.close()

    assert not was_done
    assert await numbers(own_nats, stream) == [1, 2, 3]


async def test_wrong_credentials_fail_at_once(own_nats: NatsServer, stream: str) -> None:
    await own_nats.create(stream)

    sink = NatsSink[Any](own_nats.url_of("tester:wrong-secret"), stream)
    with pytest.raises(SinkError, match="access is denied") as caught:
        async with asyncio.timeout(300):
            await written(sink, 1)
    assert "wrong-secret" not in str(caught.value)


async def test_ids_are_read_over_several_pages(nats_server: NatsServer, stream: str) -> None:
    await nats_server.create(stream)
    writer = await opened(to(nats_server, stream, format=Json()))
    await writer.write(Batch(list(range(5000))))  # type: ignore[misc]  # it is a coroutine
    await writer.commit(await writer.prepare(1))
    await writer.close()
    link = NatsLink(NatsServers("test", nats_server.url), uuid.uuid4().hex, SinkError)

    found = await link.run(lambda session: ids_after(session, stream, 100, 5000))
    await link.close()

    assert len(found) == 4900
