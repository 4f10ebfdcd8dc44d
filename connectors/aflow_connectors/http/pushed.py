"""``PushedReader``: reads what a server sends by itself, over a connection that is renewed.

A ``MessageFeed`` is the connection: server-sent events or a WebSocket. The reader keeps what was received and not yet
returned, and the position after the last returned record, at which a new connection begins.

**Silence.** Time in which the connection is lost is an outage, and no silence of the source. The pause after an orderly
end is silence, since the server has chosen it.

**Ends.** A server that ends the stream in order gets another connection after a short delay, without a warning: many do
so regularly. A lost connection is logged, and renewed as ``Reconnect`` says, with growing delays if connections bring
no messages. If such connections are lost for ``give_up_after``, none of them after more than ``most``, the reader
fails. Received records are returned first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow.errors import described
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.http.client import LOST
from aflow_connectors.messages import MessageDecoder, RawMessage
from aflow_connectors.reconnect import Retries, ServerBusy
from aflow_connectors.silence import Silence

T = TypeVar("T")

#: Time (s) in which a message that has arrived is received before the source is idle.
_GRACE: Final = 0.01

#: Delay (s) before the next connection after an orderly end, if the server asks for none.
PAUSE: Final = 1.0

#: The least delays (s) after lost connections that have brought no message: half of the first one, and the bound.
_FRUITLESS: Final = 0.05
_MOST_FRUITLESS: Final = 10.0


class BadMessage(NamedTuple):
    """A message that is a bad record, and the reason; ``offset`` is the position after it."""

    data: bytes
    reason: str
    offset: str | None = None


class SkippedMessage(NamedTuple):
    """A message that is no record; only the position after it counts."""

    offset: str


Received: TypeAlias = RawMessage | BadMessage | SkippedMessage
"""A message. ``offset`` is the position after it; None: that of the preceding one, or by a function of the record."""


class StreamEnded(Exception):
    """The server has ended the stream in order; ``for_good``: it wants no further connection."""

    def __init__(self, *, for_good: bool = False) -> None:
        super().__init__()
        self.for_good = for_good


class MessageFeed(Protocol):
    """A connection to a server, and its successors."""

    @property
    def pause(self) -> float | None:
        """The least delay (s) before the next connection, if the server asked for one."""
        ...

    async def connect(self, position: Position | None) -> None:
        """Connect, instead of an earlier connection. Raises ``SourceError``, lost connections and ``StreamEnded``."""
        ...

    async def receive(self) -> Sequence[Received]:
        """Wait for messages and return them; none if only the connection gave a sign of life.

        Raises lost connections, ``StreamEnded`` and ``SourceError``. May be cancelled, and loses nothing then.
        """
        ...

    async def close(self) -> None:
        """Close the connection, if there is one."""
        ...


class PushedReader(Reader[T], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``.

    ``position_of`` maps a record to the position after it, for feeds that have none of their own.
    """

    def __init__(
        self,
        place: str,
        feed: MessageFeed,
        decoder: MessageDecoder[T],
        bad: BadRecords,
        retries: Retries,
        position: Position | None,
        *,
        idle_after: float | None,
        position_of: Callable[[T], Position | None] | None = None,
    ) -> None:
        self._place = place
        self._feed = feed
        self._decoder = decoder
        self._bad = bad
        self._retries = retries
        self._position = position
        self._silence = Silence(idle_after)
        self._position_of = position_of
        #: Received messages that no chunk has returned yet.
        self._received: list[Received] = []
        #: The end of the connection, an error; None while there is one.
        self._end: Exception | None = None
        #: Consecutive lost connections without messages, and the loop time of the first loss.
        self._fruitless = 0
        self._fruitless_since = 0.0
        #: Loop time of the last successful connect.
        self._connected_at = 0.0
        #: Loop time of the next connection after an orderly end.
        self._connects_at = 0.0

    async def open(self) -> None:
        """Connect. Raises ``SourceError``."""
        try:
            await self._retries.run(self._connect)
        except StreamEnded as end:
            self._on_orderly_end(end)

    async def read(self, limit: int) -> Chunk[T] | None:
        while not self._received:
            if isinstance(self._end, StreamEnded) and self._end.for_good:
                return None
            if self._end is not None and not isinstance(self._end, StreamEnded):
                await self._connect_after_loss(self._end)
                continue
            self._silence.begin(self._now())
            if await self._receive_within(self._silence.remaining(self._now())):
                continue
            # A message may have arrived at the last moment, or while other code held the event loop.
            is_silent = self._end is not None or not await self._receive_within(_GRACE)
            if is_silent and self._silence.becomes_idle(self._now()):
                return Chunk([], self._position, idle=True)
        return await self._chunk(limit)

    async def close(self) -> None:
        await self._feed.close()

    async def _receive_within(self, seconds: float | None) -> bool:
        """Call ``_receive``. Return False if it takes longer than ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._receive()
        except TimeoutError:
            return False
        return True

    async def _receive(self) -> None:
        """Receive messages, over a new connection if the server has ended the last one."""
        try:
            if self._end is not None:
                await asyncio.sleep(max(0.0, self._connects_at - self._now()))
                await self._connect()
                self._end = None
            received = await self._feed.receive()
        except StreamEnded as end:
            self._on_orderly_end(end)
        except LOST as exc:
            self._end = cast(Exception, exc)
            self._on_loss(self._end)
        else:
            if received:
                self._received.extend(received)
                self._fruitless = 0
            if any(not isinstance(one, SkippedMessage) for one in received):
                self._silence.on_records()

    def _on_orderly_end(self, end: StreamEnded) -> None:
        pause = self._feed.pause
        self._end, self._fruitless = end, 0
        self._connects_at = self._now() + (PAUSE if pause is None else pause)

    def _on_loss(self, loss: Exception) -> None:
        """Count the loss. Raises ``SourceError`` if none of the last connections was of use for too long."""
        now = self._now()
        if not self._fruitless or now - self._connected_at > self._retries.most:
            self._fruitless, self._fruitless_since = 0, now
        self._fruitless += 1
        self._retries.give_up_if_late(now - self._fruitless_since, self._fruitless, loss)

    async def _connect_after_loss(self, end: Exception) -> None:
        """Connect again after the lost connection ``end``. The time until then is no silence."""
        began = self._now()
        least = self._feed.pause or 0.0
        if self._fruitless > 1:
            bound = min(_FRUITLESS * 2.0 ** min(self._fruitless - 1, 10), _MOST_FRUITLESS)
            least = max(least, bound)
        if self._retries.give_up_after is not None:
            least = min(least, self._retries.give_up_after / 2)  # so that there is an attempt
        losses = [ServerBusy(described(end), retry_after=least)]

        async def connect() -> None:
            # The first attempt is the connection that was lost: so the loss is logged, and delays the next one.
            if losses:
                raise losses.pop() from end
            await self._connect()

        try:
            await self._retries.run(connect)
            self._end = None
        except StreamEnded as ended:
            self._on_orderly_end(ended)
        self._silence.on_outage(began, self._now())

    async def _connect(self) -> None:
        await self._feed.connect(self._position)
        self._connected_at = self._now()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _chunk(self, limit: int) -> Chunk[T]:
        taken, rest = self._received[:limit], self._received[limit:]
        # Hot path (benchmark `connectors`): nearly always all are messages.
        if set(map(type, taken)) == {RawMessage}:
            good, bad = cast("list[RawMessage]", taken), list[BadMessage]()
        else:
            good = [one for one in taken if isinstance(one, RawMessage)]
            bad = [one for one in taken if isinstance(one, BadMessage)]
        decoded = await self._decoder.decode(good)  # may be cancelled: then they are still there
        rejected = [
            *decoded.rejected,
            *(self._bad.bad(f"offset {one.offset}", one.reason, one.data) for one in bad),
        ]
        position = self._after(taken, decoded.values)
        self._received, self._position = rest, position
        return Chunk(cast("list[T]", decoded.values), position, rejected=rejected)

    def _after(self, taken: Sequence[Received], values: Sequence[Any]) -> Position | None:
        if self._position_of is None:
            for one in reversed(taken):
                if one.offset is not None:
                    return one.offset
            return self._position
        try:
            found = map(self._position_of, reversed(values))
            return next((one for one in found if one is not None), self._position)
        except Exception as exc:
            raise SourceError(f"{self._place}: position= failed: {described(exc)}") from exc
