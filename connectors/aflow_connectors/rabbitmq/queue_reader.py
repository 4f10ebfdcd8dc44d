"""``AcknowledgingReader``: reads a queue, and acknowledges what a completed checkpoint covers.

**Numbers.** Messages that are read are numbered from 1, also over restarts. A position is the number of the last
message before it, and the ids of messages that may be delivered again (``message_ids.py``).

**Deliveries.** A message with a known id was read before: by this reader, on a connection that was lost, or before the
restored checkpoint. It is dropped, and acknowledged with the checkpoint that covers its number. A message without an id
is read again, since nothing tells it from a new one.

**Acknowledgements.** A checkpoint acknowledges the deliveries up to the number of its position, and then asks the
server for something on the same channel. The answer proves that the acknowledgements have arrived: these messages are
settled. If the connection is lost before, the server delivers them again, and the next checkpoint acknowledges them.

**Backpressure.** The server delivers at most ``prefetch`` messages that are not acknowledged. A queue has a single
consumer: with a second one, the first would not get its messages again after a restart, and their order would change.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow.errors import shown
from aflow_connectors.messages import MessageDecoder, RawMessage
from aflow_connectors.rabbitmq.client import AmqpChannel, AmqpServer, ServerLost
from aflow_connectors.rabbitmq.message_ids import SIZE, Ids, MessageIds, hashed
from aflow_connectors.rabbitmq.raw_messages import raw_message
from aflow_connectors.reconnect import Retries

T = TypeVar("T")

_logger = logging.getLogger("aflow.connectors")

#: Time (s) for which a read waits for messages before it looks at the limits of time.
_SLICE: Final = 0.2

#: Time (s) of a wait for a checkpoint after which the reader warns, and between two warnings.
_STALLED: Final = 2.0
_WARN_EVERY: Final = 60.0


@dataclass(frozen=True)
class QueueSettings:
    """The settings of all readers of a source."""

    server: AmqpServer
    ends_now: bool
    idle_after: float | None
    """Seconds."""
    prefetch: int
    remember: int
    exactly_once: bool


class _Delivery(NamedTuple):
    """A delivery that is not acknowledged: the number of its message, and its tag on the channel."""

    number: int
    tag: int


class AcknowledgingReader(Reader[T], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``."""

    def __init__(
        self,
        settings: QueueSettings,
        queue: str,
        decoder: MessageDecoder[T],
        retries: Retries,
        position: Position | None,
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._decoder = decoder
        self._retries = retries
        self._name = f"{settings.server.place}, queue {queue!r}"
        #: The number of the last message that was read.
        self._last, ids = _decoded(position, self._name)
        self._ids = MessageIds(settings.remember, ids, self._last)
        self._channel: AmqpChannel | None = None
        #: In the order of their tags. Empty whenever there is no channel.
        self._unacknowledged: deque[_Delivery] = deque()
        #: With ``ends_now``, the deliveries that remain until the end.
        self._remaining = 0
        #: Loop time since which the reader waits for messages; None while there are some.
        self._waiting_since: float | None = None
        self._is_idle = False
        self._warned_at: float | None = None
        self._has_warned_of_ids = False

    async def open(self) -> None:
        """Connect. Raises ``SourceError``."""
        await self._retries.run(self._open)

    async def read(self, limit: int) -> Chunk[T] | None:
        while True:
            channel = self._channel
            if channel is not None and channel.delivered:
                chunk = await self._chunk(channel, limit)
                if chunk is not None:
                    return chunk
            elif self._settings.ends_now and not self._remaining:
                return None
            else:
                await self._retries.run(self._wait, renew=self._open)
                if self._becomes_idle():
                    return Chunk([], self._position(), idle=True)

    async def on_checkpoint_completed(self, position: Position) -> None:
        covered, _ = _decoded(position, self._name)
        channel = self._channel
        if channel is None:
            return
        try:
            for tag, multiple in self._take_covered(covered):
                await channel.acknowledge(tag, multiple=multiple)
            await channel.check_queue(self._queue)
        except ServerLost:
            return  # `read` connects again, and the next checkpoint acknowledges what is delivered again
        if channel is self._channel:
            self._ids.settle(covered)

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        self._unacknowledged.clear()
        if channel is not None:
            await channel.close()

    async def _chunk(self, channel: AmqpChannel, limit: int) -> Chunk[T] | None:
        """Return the records of at most ``limit`` messages; None if all were read before."""
        taken = list(islice(channel.delivered, limit))
        fresh: list[RawMessage] = []
        #: The new ids, with their numbers.
        ids: dict[bytes, int] = {}
        deliveries: list[_Delivery] = []
        number = self._last
        # Hot path (benchmark `connectors`): once for each message.
        for one in taken:
            text = one.header.properties.message_id
            id = self._id(text)
            known = None
            if id is not None:
                known = ids.get(id) or self._ids.number_of(id)
            if known is None:
                number += 1
                known = number
                fresh.append(raw_message(one, text or number))
                if id is not None:
                    ids[id] = number
            deliveries.append(_Delivery(known, one.delivery.delivery_tag))
        decoded = await self._decoder.decode(fresh)  # may be cancelled: then they are still there
        for id, of in ids.items():
            self._ids.add(id, of)
        self._last = number
        for _ in taken:
            channel.delivered.popleft()
        self._unacknowledged += deliveries
        self._remaining = max(0, self._remaining - len(taken))
        self._waiting_since, self._is_idle = None, False
        if not fresh:
            return None
        return Chunk(decoded.values, self._position(), decoded.timestamps, decoded.rejected)

    def _id(self, text: str | None) -> bytes | None:
        if not self._settings.exactly_once:
            return None
        if text:
            return hashed(text)
        if not self._has_warned_of_ids:
            self._has_warned_of_ids = True
            extra = {"event": "no_message_id", "place": self._name}
            _logger.warning(
                "%s: messages have no message_id, so they are read twice if they are delivered again. Let their "
                "publisher set one, or use exactly_once=False",
                self._name,
                extra=extra,
            )
        return None

    def _position(self) -> Position:
        return self._last, *self._ids.position()

    def _take_covered(self, covered: int) -> list[tuple[int, bool]]:
        """Remove the deliveries of messages up to ``covered``. Return tags to acknowledge, and True for all before."""
        waiting = self._unacknowledged
        taken: list[tuple[int, bool]] = []
        last = None
        while waiting and waiting[0].number <= covered:
            last = waiting.popleft()
        if last is not None:
            taken.append((last.tag, True))
        # Known messages after new ones: the order of a queue with priorities, or of one that has failed over.
        late = [one for one in waiting if one.number <= covered]
        if late:
            self._unacknowledged = deque(one for one in waiting if one.number > covered)
            taken += [(one.tag, False) for one in late]
        return taken

    async def _open(self) -> None:
        """Open a channel, and consume. Replaces one that was lost."""
        await self.close()
        settings = self._settings
        channel = await settings.server.open(SourceError)
        try:
            count = await channel.check_queue(self._queue)
            await channel.consume(self._queue, prefetch=settings.prefetch, exclusive=True)
        except BaseException:
            await channel.close()
            raise
        self._remaining = count
        self._channel = channel
        self._waiting_since = None

    async def _wait(self) -> None:
        """Wait for a message, at most for ``_SLICE``. Raises ``ServerLost``."""
        channel = self._channel
        if channel is None:
            raise ServerLost("there is no connection")
        now = asyncio.get_running_loop().time()
        if self._waiting_since is None:
            self._waiting_since = now
        await channel.wait(_SLICE)
        if not channel.delivered:
            self._warn_if_stalled(now)

    def _warn_if_stalled(self, now: float) -> None:
        """Warn if all messages of the prefetch wait for a checkpoint."""
        since, prefetch = self._waiting_since, self._settings.prefetch
        if len(self._unacknowledged) < prefetch or since is None or now - since < _STALLED:
            return
        if self._warned_at is None or now - self._warned_at >= _WARN_EVERY:
            self._warned_at = now
            extra = {"event": "prefetch_exhausted", "place": self._name, "prefetch": prefetch}
            _logger.warning(
                "%s: %d messages were read and wait for a checkpoint (prefetch=%d); no more are delivered until one is "
                "complete. Raise prefetch above the messages of an interval, or take checkpoints more often",
                self._name,
                len(self._unacknowledged),
                prefetch,
                extra=extra,
            )

    def _becomes_idle(self) -> bool:
        """Return True once the queue has had no message for ``idle_after``."""
        after, since = self._settings.idle_after, self._waiting_since
        if after is None or since is None or self._is_idle:
            return False
        # With an exhausted prefetch it is not known if there are messages.
        if len(self._unacknowledged) >= self._settings.prefetch:
            return False
        self._is_idle = asyncio.get_running_loop().time() - since >= after
        return self._is_idle


def _decoded(position: Position | None, name: str) -> tuple[int, Ids]:
    """Return the number of the last message and the ids of a position."""
    if position is None:
        return 0, ((), b"")
    if isinstance(position, (list, tuple)):
        parts = cast("Sequence[object]", position)
        if len(parts) == 3:
            last, blocks, tail = parts
            if type(last) is int and isinstance(blocks, (list, tuple)) and isinstance(tail, bytes):
                texts = tuple(cast("Sequence[Any]", blocks))
                if all(isinstance(one, bytes) and not len(one) % SIZE for one in (*texts, tail)):
                    return last, (texts, tail)
    raise SourceError(
        f"{name} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
    )
