"""``PushedReader`` with a feed of the test, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aflow.connect import Chunk, Position, SourceError
from aflow.testing import virtual_time
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.formats import Raw
from aflow_connectors.http.pushed import PushedReader, Received
from aflow_connectors.messages import MessageDecoder, RawMessage
from aflow_connectors.reconnect import Reconnect, Retries


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


def test_a_message_of_the_last_moment_does_not_make_a_source_idle() -> None:
    async def read() -> Chunk[bytes] | None:
        feed = QueueFeed()
        reader = PushedReader[bytes](
            "the feed",
            feed,
            MessageDecoder("the feed", Raw()),
            BadRecords("the feed", None),
            Retries("the feed", Reconnect(), lost=(ConnectionError,), failed=SourceError),
            None,
            idle_after=5.0,
        )
        # Handled in the same pass of the loop as the end of the wait.
        asyncio.get_running_loop().call_later(5.0, feed.queue.put_nowait, RawMessage(b"1"))
        return await reader.read(10)

    chunk = virtual_time.run(read)

    assert chunk is not None
    assert (list(chunk.values), chunk.idle) == ([b"1"], False)
