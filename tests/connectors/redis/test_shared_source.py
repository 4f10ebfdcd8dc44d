"""``RedisSource`` as a consumer of a group, against a server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError
from aflow.model.codecs import PLAIN
from aflow.testing import check_source
from aflow_connectors.formats import Raw
from aflow_connectors.redis import RedisSource
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


@pytest.mark.asyncio
async def test_it_keeps_the_contract_of_sources(redis_server: TestServer, stream: str) -> None:
    fill(redis_server, stream, *range(6))

    await check_source(
        lambda: shared(redis_server, stream, until="now"),
        expected=[{"n": str(n)} for n in range(6)],
    )


@pytest.mark.asyncio
async def test_consumers_of_a_group_share_the_entries(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(10))
    first = await opened(shared(redis_server, stream, "a", prefetch=4))
    second = await opened(shared(redis_server, stream, "b"))

    of_first, _ = await read(first, 4)
    of_second, _ = await read(second, 6)
    await first.close()
    await second.close()

    assert of_first == [0, 1, 2, 3]
    assert of_second == [4, 5, 6, 7, 8, 9]


@pytest.mark.asyncio
async def test_only_a_completed_checkpoint_acknowledges(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(10))
    reader = await opened(shared(redis_server, stream))

    _, position = await read(reader, 4)
    await read(reader, 3)
    before = pending(redis_server, stream)
    await reader.on_checkpoint_completed(position)
    after = pending(redis_server, stream)
    await reader.close()

    assert before - after == 4
    assert await read_all(shared(redis_server, stream, until="now")) == [4, 5, 6, 7, 8, 9]


@pytest.mark.asyncio
async def test_entries_before_the_restored_position_are_dropped_and_then_acknowledged(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(100))
    reader = await opened(shared(redis_server, stream))
    _, position = await read(reader, 40)
    await reader.close()  # the acknowledgement is lost

    restored = await opened(
        shared(redis_server, stream, prefetch=10, until="now"), PLAIN.decode(PLAIN.encode(position))
    )
    rest: list[int] = []
    end = position
    async with asyncio.timeout(300):
        while (chunk := await next_chunk(restored, end)) is not None:
            rest += [int(one["n"]) for one in chunk.values]
            end = chunk.position
    await restored.on_checkpoint_completed(end)
    await restored.close()

    assert rest == list(range(40, 100))
    assert pending(redis_server, stream) == 0


@pytest.mark.asyncio
async def test_entries_of_a_consumer_that_does_not_return_are_claimed(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(10))
    gone = await opened(shared(redis_server, stream, "gone"))
    await read(gone, 6)
    await gone.close()
    patient = shared(redis_server, stream, "patient", until="now")
    eager = shared(redis_server, stream, "eager", claim_after=timedelta(milliseconds=20))

    left = await read_all(patient)
    await asyncio.sleep(0.03)
    reader = await opened(eager)
    claimed, _ = await read(reader, 10)
    await asyncio.sleep(0.03)  # its own entries are claimed, too, and known
    fill(redis_server, stream, 10)
    more, position = await read(reader, 1)
    await reader.on_checkpoint_completed(position)
    await reader.close()

    assert left == []
    assert claimed == list(range(10))
    assert more == [10]


@pytest.mark.asyncio
async def test_connections_that_are_cut_anywhere_lose_and_repeat_nothing(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(400))
    found: list[int] = []

    async with Proxy(*redis_server.host_and_port) as proxy:
        url = redis_server.url_via(proxy.address)
        source = shared(redis_server, stream, url=url, reconnect=QUICK, until="now")
        reader = await opened(source)
        position: Any = None
        while (chunk := await reader.read(10)) is not None:
            found += [int(one["n"]) for one in chunk.values]
            position = chunk.position
            proxy.cut_after = (7 * len(found)) % 400
            await reader.on_checkpoint_completed(position)
        await reader.close()
        accepted = proxy.accepted

    assert accepted > 10
    assert found == list(range(400))
    assert await read_all(shared(redis_server, stream, until="now"), position) == []


@pytest.mark.asyncio
async def test_all_of_the_prefetch_waits_for_a_checkpoint(
    redis_server: TestServer,
    stream: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aflow_connectors.delivery_pause._STALLED", 0.01)
    fill(redis_server, stream, *range(6))
    reader = await opened(shared(redis_server, stream, prefetch=4))
    _, position = await read(reader, 4)

    waiting = asyncio.create_task(read(reader, 2))
    async with asyncio.timeout(300):
        while "prefetch_exhausted" not in events(caplog):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not waiting.done()
    await reader.on_checkpoint_completed(position)

    assert (await waiting)[0] == [4, 5]
    await reader.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [0, 1, 2, 3]),
        ("latest", [3]),
        (datetime.fromtimestamp(1.5, UTC), [2, 3]),
        ({"STREAM": "1000-1"}, [1, 2, 3]),
    ],
    ids=["earliest", "latest", "time", "id"],
)
async def test_start_is_where_a_new_group_begins(
    redis_server: TestServer, stream: str, start: Any, expected: list[int]
) -> None:
    redis_server.add(stream, {"n": 0}, {"n": 1}, {"n": 2}, ids=["1000-0", "1000-1", "2000-0"])
    by_stream = start == {"STREAM": "1000-1"}
    given: Any = {stream: "1000-1"} if by_stream else start
    reader = await opened(shared(redis_server, stream, start=given))
    redis_server.add(stream, {"n": 3}, ids=["3000-0"])

    found, _ = await read(reader, len(expected))
    await reader.close()

    assert found == expected


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("policy", "expected"), [("fail", None), ("earliest", [6, 7, 8, 9, 10]), ("latest", [10])]
)
async def test_entries_that_were_removed_undelivered_are_not_passed_over(
    redis_server: TestServer,
    stream: str,
    policy: Any,
    expected: list[int] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(redis_server, stream, *range(10))
    reader = await opened(shared(redis_server, stream, prefetch=3, on_lost_entries=policy))
    _, position = await read(reader, 3)
    await reader.on_checkpoint_completed(position)

    redis_server.command("XTRIM", stream, "MAXLEN", 4)
    if expected is None:
        with pytest.raises(SourceError, match=r"3 entries that follow .* were removed before they"):
            await read(reader, 1)
        await reader.close()
        return
    reading = asyncio.create_task(read(reader, min(len(expected), 3)))
    async with asyncio.timeout(300):
        while "entries_lost" not in events(caplog):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    fill(redis_server, stream, 10)
    found, position = await reading
    await reader.on_checkpoint_completed(position)
    found += (await read(reader, len(expected) - len(found)))[0]
    await reader.close()

    assert found == expected
    assert events(caplog).count("entries_lost") == 1


@pytest.mark.asyncio
async def test_pending_entries_that_were_removed_are_lost_unless_they_were_read(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(10))
    reader = await opened(shared(redis_server, stream))
    _, position = await read(reader, 4)  # all are pending
    await reader.close()

    redis_server.command("XTRIM", stream, "MAXLEN", 6)
    assert await read_all(shared(redis_server, stream, until="now"), position) == [4, 5, 6, 7, 8, 9]
    redis_server.command("XTRIM", stream, "MAXLEN", 4)
    with pytest.raises(SourceError, match="2 entries that were pending were removed"):
        await read_all(shared(redis_server, stream, until="now"), position)
    tolerant = shared(redis_server, stream, until="now", on_lost_entries="earliest")
    assert await read_all(tolerant, position) == [6, 7, 8, 9]


@pytest.mark.asyncio
async def test_a_group_that_does_not_exist_any_more_is_an_error(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, 0, 1)
    reader = await opened(shared(redis_server, stream))
    _, position = await read(reader, 2)
    redis_server.command("XGROUP", "DESTROY", stream, "group")

    with pytest.raises(SourceError, match="consumer group 'group' does not exist any more"):
        await read(reader, 1)
    await reader.close()
    with pytest.raises(SourceError, match="consumer group 'group' does not exist any more"):
        await opened(shared(redis_server, stream), position)


@pytest.mark.asyncio
async def test_large_and_empty_entries_are_read(redis_server: TestServer, stream: str) -> None:
    large = b"x" * 10_000_000
    redis_server.add(stream, {"value": b""}, {"value": large})
    source = RedisSource[bytes](
        redis_server.url, stream, format=Raw(), group="g", consumer="a", until="now"
    )

    reader = await opened(source)
    found: list[bytes] = []
    while (chunk := await reader.read(10)) is not None:
        found += chunk.values
    await reader.close()

    assert found == [b"", large]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no group": ({"consumer": "a"}, "consumer= needs group="),
    "no consumer": ({"group": "g", "prefetch": 5}, "prefetch= and claim_after= need consumer="),
    "prefetch": (
        {"group": "g", "consumer": "a", "prefetch": 0},
        "prefetch= must be a number from 1 to 65,535",
    ),
    "claim_after": (
        {"group": "g", "consumer": "a", "claim_after": 5},
        "claim_after= must be a positive timedelta",
    ),
}


@pytest.mark.parametrize(("options", "reason"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_an_error(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(FlowDefinitionError, match=reason):
        RedisSource("redis://localhost", "t", **options)


def test_a_shared_source_is_at_least_once_and_needs_checkpoints() -> None:
    plain = RedisSource("redis://localhost", "t", group="g")
    one = RedisSource("redis://localhost", "t", group="g", consumer="a")

    assert (plain.needs_checkpoints, plain.repeats_records, plain.divides_chunks) == (
        False,
        False,
        True,
    )
    assert (one.needs_checkpoints, one.repeats_records, one.divides_chunks) == (True, True, False)
