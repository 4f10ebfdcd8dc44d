"""A consumer of a group that claims entries of others."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aflow.connect import SourceError
from tests.connectors.redis.server import TestServer
from tests.connectors.redis.shared_streams import (
    events,
    fill,
    opened,
    pending,
    read,
    read_all,
    shared,
)

HOUR = timedelta(hours=1)


@pytest.mark.asyncio
async def test_removed_entries_of_a_consumer_that_reads_are_not_touched(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(5))
    first = await opened(shared(redis_server, stream, "first"))
    _, position = await read(first, 5)
    redis_server.command("XTRIM", stream, "MAXLEN", 0)
    fill(redis_server, stream, 5, 6)

    second = await opened(shared(redis_server, stream, "second", claim_after=HOUR))
    found, _ = await read(second, 2)
    of_both = pending(redis_server, stream)
    await first.on_checkpoint_completed(position)
    of_second = pending(redis_server, stream)
    await first.close()
    await second.close()

    assert found == [5, 6]
    assert (of_both, of_second) == (7, 2)


@pytest.mark.asyncio
async def test_removed_entries_of_a_consumer_that_does_not_return_are_lost(
    redis_server: TestServer, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(redis_server, stream, *range(5))
    gone = await opened(shared(redis_server, stream, "gone"))
    await read(gone, 1)  # all are pending
    await gone.close()
    redis_server.command("XTRIM", stream, "MAXLEN", 3)
    await asyncio.sleep(0.03)
    soon = timedelta(milliseconds=20)

    for _ in range(2):  # a restart is no remedy
        with pytest.raises(SourceError, match="2 entries that were claimed were removed"):
            await read_all(shared(redis_server, stream, "b", claim_after=soon, until="now"))
    tolerant = await opened(
        shared(redis_server, stream, "b", claim_after=soon, on_lost_entries="earliest")
    )
    found, _ = await read(tolerant, 3)
    fill(redis_server, stream, 5)
    await read(tolerant, 1)
    await tolerant.close()

    assert found == [2, 3, 4]
    assert events(caplog) == ["entries_lost"]
    assert pending(redis_server, stream) == 4


@pytest.mark.asyncio
async def test_claims_reach_entries_after_many_that_are_not_due(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(1_500))
    gone = await opened(shared(redis_server, stream, "gone"))
    await read(gone, 1_500)
    await gone.close()
    [[last, _]] = redis_server.command("XREVRANGE", stream, "+", "-", "COUNT", 1)
    due = ["IDLE", 2 * 3_600_000]
    redis_server.command("XCLAIM", stream, "group", "gone", 0, last, *due)

    source = shared(redis_server, stream, "b", claim_after=HOUR, until="now")
    assert await read_all(source) == [1_499]


@pytest.mark.asyncio
async def test_claims_reach_entries_after_many_of_the_consumer_itself(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, *range(1_100))
    soon = timedelta(milliseconds=20)
    reader = await opened(shared(redis_server, stream, "b", claim_after=soon))
    await read(reader, 1_100)
    fill(redis_server, stream, 1_100)
    gone = await opened(shared(redis_server, stream, "gone"))
    await read(gone, 1)
    await gone.close()
    await asyncio.sleep(0.03)

    found, position = await read(reader, 1)
    await reader.on_checkpoint_completed(position)
    await reader.close()

    assert found == [1_100]
    assert pending(redis_server, stream) == 0


@pytest.mark.asyncio
async def test_a_reader_that_claims_notices_a_missing_group(
    redis_server: TestServer, stream: str
) -> None:
    fill(redis_server, stream, 0)
    reader = await opened(shared(redis_server, stream, claim_after=timedelta(milliseconds=1)))
    await read(reader, 1)
    redis_server.command("XGROUP", "DESTROY", stream, "group")

    with pytest.raises(SourceError, match="consumer group 'group' does not exist any more"):
        await read(reader, 1)
    await reader.close()
