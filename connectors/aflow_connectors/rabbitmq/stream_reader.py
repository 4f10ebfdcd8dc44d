"""``OffsetReader``: reads a stream queue by offset.

**Position.** The next offset; with ``until="now"`` the pair of it and the end, so that a restarted job ends at the same
message. The first chunk of a reader that was opened without a position has no records: it only stores where the reader
has started, so that a restart does not look for "latest" again.

**Bounds.** AMQP does not tell the first and the last offset of a stream. A consumer that starts at "first" gets the
first message, and one that starts at "last" those of the last chunk of the stream's log, before the answer to a later
request on its channel. If that chunk has none, the end is found by bisection.

**Lost messages.** A server that does not have the wanted offset any more starts at the first one that it has, silently.
So the reader compares the bounds with its offset, whenever it opens a connection, and applies ``on_lost_offsets``.

Acknowledgements of a stream only let the server send more: they remove nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow.errors import shown
from aflow_connectors.messages import MessageDecoder
from aflow_connectors.rabbitmq.client import AmqpChannel, AmqpServer, ServerLost
from aflow_connectors.rabbitmq.raw_messages import raw_message
from aflow_connectors.reconnect import Retries
from aflow_connectors.silence import Silence

T = TypeVar("T")

StreamStart: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""The first or the next message of the stream, an offset, or the first message of a time."""

LostMessages: TypeAlias = Literal["fail", "earliest", "latest"]

_logger = logging.getLogger("aflow.connectors")

_OFFSET: Final = "x-stream-offset"

#: Time (s) for which a read waits for messages before it looks at the limits of time.
_SLICE: Final = 0.2

#: Attempts to read the last chunk of a stream, and the time (s) between them.
_ATTEMPTS: Final = 3
_PAUSE: Final = 0.02

#: More messages than a chunk of the stream's log has.
_CHUNK: Final = 60_000


@dataclass(frozen=True)
class StreamQueueSettings:
    """The settings of all readers of a source."""

    server: AmqpServer
    start: StreamStart
    ends_now: bool
    idle_after: float | None
    """Seconds."""
    on_lost_offsets: LostMessages
    prefetch: int


class OffsetReader(Reader[T], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``."""

    def __init__(
        self,
        settings: StreamQueueSettings,
        queue: str,
        decoder: MessageDecoder[T],
        retries: Retries,
        position: Position | None,
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._decoder = decoder
        self._retries = retries
        self._name = f"{settings.server.place}, stream {queue!r}"
        #: The next offset, -1 if it must be looked up, and the end.
        self._next, self._end = _decoded(position, self._name)
        if not settings.ends_now:
            self._end = None
        #: True until the start is in a chunk.
        self._started_here = position is None
        self._channel: AmqpChannel | None = None
        self._silence = Silence(settings.idle_after)
        #: The end of the stream when the connection was opened.
        self._known_end = 0

    async def open(self) -> None:
        """Connect. Raises ``SourceError``."""
        await self._retries.run(self._open)

    async def read(self, limit: int) -> Chunk[T] | None:
        if self._started_here:
            self._started_here = False
            return Chunk([], self._position())
        while True:
            if self._end is not None and self._next >= self._end:
                return None
            channel = self._channel
            if channel is not None and channel.delivered:
                chunk = await self._chunk(channel, limit)
                if chunk is not None:
                    return chunk
                continue
            await self._retries.run(self._wait, renew=self._open)
            if self._becomes_idle():
                return Chunk([], self._position(), idle=True)

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _chunk(self, channel: AmqpChannel, limit: int) -> Chunk[T] | None:
        """Return the records of at most ``limit`` messages; None if all are before the position or after the end."""
        taken = list(islice(channel.delivered, limit))
        raw = [raw_message(one, _offset_of(one)) for one in taken]
        end = self._end
        # A start within a chunk of the log delivers the messages before it, too.
        raw = [
            one
            for one in raw
            if cast(int, one.offset) >= self._next and (end is None or cast(int, one.offset) < end)
        ]
        decoded = await self._decoder.decode(raw)  # may be cancelled: then they are still there
        for _ in taken:
            channel.delivered.popleft()
        self._next = max(self._next, _offset_of(taken[-1]) + 1)
        self._silence.on_records()
        with suppress(ServerLost):  # the next wait finds it
            await channel.acknowledge(taken[-1].delivery.delivery_tag, multiple=True)
        if not raw:
            return None
        return Chunk(decoded.values, self._position(), decoded.timestamps, decoded.rejected)

    def _position(self) -> Position:
        return self._next if self._end is None else (self._next, self._end)

    async def _open(self) -> None:
        """Open a channel, and consume at the position. Replaces one that was lost."""
        await self.close()
        settings = self._settings
        channel = await settings.server.open(SourceError)
        try:
            await channel.check_queue(self._queue)
            first, end = await self._bounds(channel)
            self._known_end = end
            if self._next < 0:
                self._next = await self._first_offset(channel, first, end)
            elif not first <= self._next <= end:
                self._go_on_after_loss(first, end)
            if settings.ends_now and self._end is None:
                self._end = max(end, self._next)
            await channel.consume(
                self._queue, prefetch=settings.prefetch, arguments={_OFFSET: self._next}
            )
        except BaseException:
            await channel.close()
            raise
        self._channel = channel
        self._silence.restart()

    async def _bounds(self, channel: AmqpChannel) -> tuple[int, int]:
        """Return the first offset of the stream, and the one after the last."""
        firsts = await self._probe(channel, "first", 1)
        if not firsts:
            return 0, 0
        for _ in range(_ATTEMPTS):
            if lasts := await self._probe(channel, "last", _CHUNK):
                return firsts[0], lasts[-1] + 1
            await asyncio.sleep(_PAUSE)
        return firsts[0], await self._end_after(channel, firsts[0])

    async def _end_after(self, channel: AmqpChannel, known: int) -> int:
        """Return the offset after the last message, found by bisection; there is a message at ``known``.

        For a stream whose last chunk has no messages: the server writes such chunks, too.
        """
        step = 1
        while found := await self._probe(channel, known + step, 1):
            known = found[0]
            step *= 2
        end = known + step
        while end - known > 1:
            middle = (known + end) // 2
            if found := await self._probe(channel, middle, 1):
                known = found[0]
            else:
                end = middle
        return known + 1

    async def _first_offset(self, channel: AmqpChannel, first: int, end: int) -> int:
        start = self._settings.start
        if start == "earliest":
            return first
        if start == "latest":
            return end
        if isinstance(start, int):
            if not first <= start <= end:
                self._next = start
                self._go_on_after_loss(first, end)
                return self._next
            return start
        found = await self._probe(channel, start, 1)
        return found[0] if found else end

    async def _probe(self, channel: AmqpChannel, start: object, count: int) -> list[int]:
        """Return the offsets of at most ``count`` messages that the server sends at once, from ``start`` on."""
        tag = await channel.consume(self._queue, prefetch=count, arguments={_OFFSET: start})
        await channel.check_queue(self._queue)
        await channel.cancel(tag)
        await asyncio.sleep(0)  # until the tasks of the client have added what it has received
        offsets = [_offset_of(one) for one in channel.delivered]
        if channel.delivered:
            await channel.acknowledge(channel.delivered[-1].delivery.delivery_tag, multiple=True)
        channel.delivered.clear()
        return offsets

    def _go_on_after_loss(self, first: int, end: int) -> None:
        """Apply ``on_lost_offsets``. Raises ``SourceError`` if it is "fail"."""
        policy = self._settings.on_lost_offsets
        lost = (
            f"{self._name}: offset {self._next} does not exist: the stream has {first} to {end}. Were its messages "
            f"removed by retention before they were read, or the stream created again?"
        )
        if policy == "fail":
            raise SourceError(
                f"{lost} on_lost_offsets='earliest' or 'latest' continues without the lost messages"
            )
        target = first if policy == "earliest" else end
        extra = {"event": "offsets_lost", "place": self._name, "asked": self._next, "next": target}
        _logger.warning("%s It continues at %s.", lost, target, extra=extra)
        self._next = target

    async def _wait(self) -> None:
        """Wait for a message, at most for ``_SLICE``. Raises ``ServerLost``."""
        channel = self._channel
        if channel is None:
            raise ServerLost("there is no connection")
        self._silence.begin(asyncio.get_running_loop().time())
        await channel.wait(_SLICE)

    def _becomes_idle(self) -> bool:
        """Return True once the stream has been at its end for ``idle_after``."""
        has_messages = self._channel is not None and bool(self._channel.delivered)
        if self._next < self._known_end or has_messages:
            return False
        return self._silence.becomes_idle(asyncio.get_running_loop().time())


def _offset_of(delivered: Any) -> int:
    return int(delivered.header.properties.headers[_OFFSET])


def _decoded(position: Position | None, name: str) -> tuple[int, int | None]:
    """Return the next offset, -1 if it must be looked up, and the end if there is one."""
    if position is None:
        return -1, None
    if type(position) is int and position >= 0:
        return position, None
    if type(position) in (list, tuple):
        pair = [one for one in cast("Sequence[object]", position) if type(one) is int and one >= 0]
        if len(pair) == 2:
            return pair[0], pair[1]
    raise SourceError(
        f"{name} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
    )
