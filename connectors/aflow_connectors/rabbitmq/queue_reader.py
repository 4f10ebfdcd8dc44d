"""``AcknowledgingReader``: reads a queue, and acknowledges what a completed checkpoint covers.

**Deliveries.** The ``message_id`` that the publisher has set identifies a message that is delivered again
(``deliveries.py``): AMQP has no number of a message that is the same then.

**Acknowledgements.** A checkpoint acknowledges the deliveries up to the number of its position, and then asks the
server for something on the same channel. The answer proves that the acknowledgements have arrived: these messages are
settled. If the connection is lost before, the server delivers them again, and the next checkpoint acknowledges them.

**Backpressure.** The server delivers at most ``prefetch`` messages that are not acknowledged. A queue has a single
consumer: with a second one, the first would not get its messages again after a restart, and their order would change.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow_connectors.deliveries import DeliveryLedger
from aflow_connectors.delivery_pause import DeliveryPause
from aflow_connectors.message_ids import hashed
from aflow_connectors.messages import MessageDecoder
from aflow_connectors.rabbitmq.client import AmqpChannel, AmqpServer, ServerLost
from aflow_connectors.rabbitmq.raw_messages import raw_message
from aflow_connectors.reconnect import Retries

T = TypeVar("T")

_logger = logging.getLogger("aflow.connectors")

#: Time (s) for which a read waits for messages before it looks at the limits of time.
_SLICE: Final = 0.2


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
        self._ledger = DeliveryLedger(
            self._name, position, remember=settings.remember, prefetch=settings.prefetch
        )
        self._channel: AmqpChannel | None = None
        #: With ``ends_now``, the deliveries that remain until the end.
        self._remaining = 0
        self._pause = DeliveryPause(
            self._name, prefetch=settings.prefetch, idle_after=settings.idle_after
        )
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
                    return Chunk([], self._ledger.position(), idle=True)

    async def on_checkpoint_completed(self, position: Position) -> None:
        covered = self._ledger.number_at(position)
        channel = self._channel
        if channel is None:
            return
        try:
            if tags := self._ledger.take_covered(covered):
                await channel.acknowledge(tags[-1], multiple=True)
            for tag in self._ledger.take_late(covered):
                await channel.acknowledge(tag, multiple=False)
            await channel.check_queue(self._queue)
        except ServerLost:
            return  # `read` connects again, and the next checkpoint acknowledges what is delivered again
        if channel is self._channel:
            self._ledger.settle(covered)

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        self._ledger.on_connection_lost()
        if channel is not None:
            await channel.close()

    def _becomes_idle(self) -> bool:
        now = asyncio.get_running_loop().time()
        delivered = self._channel is not None and bool(self._channel.delivered)
        return self._pause.becomes_idle(self._ledger.unacknowledged, now, delivered=delivered)

    async def _chunk(self, channel: AmqpChannel, limit: int) -> Chunk[T] | None:
        """Return the records of at most ``limit`` messages; None if all were read before."""
        taken = list(islice(channel.delivered, limit))
        # Hot path (benchmark `connectors`): once for each message.
        texts = [one.header.properties.message_id for one in taken]
        recognised = self._ledger.recognise([self._id(text) for text in texts])
        fresh = [
            raw_message(taken[place], texts[place] or recognised.numbers[place])
            for place in recognised.fresh
        ]
        decoded = await self._decoder.decode(fresh)  # may be cancelled: then they are still there
        self._ledger.read(recognised, [one.delivery.delivery_tag for one in taken])
        for _ in taken:
            channel.delivered.popleft()
        self._remaining = max(0, self._remaining - len(taken))
        self._pause.on_messages()
        if not fresh:
            return None
        return Chunk(decoded.values, self._ledger.position(), decoded.timestamps, decoded.rejected)

    def _id(self, text: str | None) -> bytes | None:
        if not self._settings.exactly_once:
            return None
        if text:
            return hashed(text.encode("utf-8", "surrogatepass"))
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
        self._pause.on_connected()

    async def _wait(self) -> None:
        """Wait for a message, at most for ``_SLICE``. Raises ``ServerLost``."""
        channel = self._channel
        if channel is None:
            raise ServerLost("there is no connection")
        now = asyncio.get_running_loop().time()
        self._pause.begin(now)
        await channel.wait(_SLICE)
        if not channel.delivered:
            self._pause.warn_if_stalled(self._ledger.unacknowledged, now)
