"""``PushedReader`` with a feed of the test, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aflow.connect import Chunk, Position, SourceError
from aflow.testing import virtual_time
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.formats import Raw
from aflow_connectors.http.pushed import MessageFeed, PushedReader, Received, StreamEnded
from aflow_connectors.messages import MessageDecoder, RawMessage
from aflow_connectors.reconnect import Reconnect, Retries, ServerBusy


class QueueFeed:
    """A connection that never ends. Messages are those put into ``queue``."""

    pause: float | None = None

    def __init__(self) -> None:
        self.queue = asyncio.Queue[Received]()

    async def connect(self, position: Position | None) -> None:
        pass

    async def receive(self) -> Sequence[Received]:
        return [await self.queue.get()]

    async def close(self) -> None:
        pass


def reader_of(feed: MessageFeed, *, idle_after: float = 5.0) -> PushedReader[bytes]:
    return PushedReader[bytes](
        "the feed",
        feed,
        MessageDecoder("the feed", Raw()),
        BadRecords("the feed", None),
        Retries("the feed", Reconnect(), lost=(ConnectionError, ServerBusy), failed=SourceError),
        None,
        idle_after=idle_after,
    )


def test_a_message_of_the_last_moment_does_not_make_a_source_idle() -> None:
    async def read() -> Chunk[bytes] | None:
        feed = QueueFeed()
        reader = reader_of(feed)
        # Handled in the same pass of the loop as the end of the wait.
        asyncio.get_running_loop().call_later(5.0, feed.queue.put_nowait, RawMessage(b"1"))
        return await reader.read(10)

    chunk = virtual_time.run(read)

    assert chunk is not None
    assert (list(chunk.values), chunk.idle) == ([b"1"], False)


class FailingFeed(QueueFeed):
    """A connection that ends with ``end`` after a second. The server is away for a minute then."""

    def __init__(self, end: Exception) -> None:
        super().__init__()
        self.end: Exception | None = end
        self.back_at = 0.0

    async def connect(self, position: Position | None) -> None:
        if asyncio.get_running_loop().time() < self.back_at:
            raise ConnectionError("refused")

    async def receive(self) -> Sequence[Received]:
        end, self.end = self.end, None
        if end is None:
            return await super().receive()
        await asyncio.sleep(1)
        self.back_at = asyncio.get_running_loop().time() + 60
        raise end


@pytest.mark.parametrize(
    "end", [ConnectionError("reset"), StreamEnded()], ids=["lost", "ended in order"]
)
def test_an_outage_is_no_silence_of_the_source(end: Exception) -> None:
    async def read() -> tuple[Chunk[bytes] | None, float]:
        feed = FailingFeed(end)
        chunk = await reader_of(feed).read(10)
        return chunk, asyncio.get_running_loop().time() - feed.back_at

    chunk, seconds_after = virtual_time.run(read)

    assert chunk is not None
    assert chunk.idle
    assert seconds_after >= 2  # for records of the time without a connection


def test_a_source_is_idle_in_the_pause_that_the_server_has_asked_for() -> None:
    class PausingFeed(QueueFeed):
        pause = 60.0
        connects: int = 0

        async def connect(self, position: Position | None) -> None:
            self.connects += 1

        async def receive(self) -> Sequence[Received]:
            if self.connects:
                return await super().receive()
            raise StreamEnded

    async def read() -> tuple[list[bool], float]:
        loop = asyncio.get_running_loop()
        feed = PausingFeed()
        reader = reader_of(feed)
        found = [await reader.read(10)]
        loop.call_at(61.0, feed.queue.put_nowait, RawMessage(b"1"))
        found.append(await reader.read(10))
        return [chunk is not None and chunk.idle for chunk in found], loop.time()

    idle, ended_at = virtual_time.run(read)

    assert idle == [True, False]
    assert ended_at == 61.0  # the pause did not begin again
