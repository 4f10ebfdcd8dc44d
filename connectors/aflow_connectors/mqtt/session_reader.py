"""``SessionReader``: reads the messages of a persistent session, and acknowledges what a completed checkpoint covers.

**Session.** The broker keeps the subscriptions and the unacknowledged messages of a client id while no client is
connected. A reader that continues at a position and finds no session has lost messages: ``on_lost_session`` decides.

**Deliveries.** A broker sends an unacknowledged message again after each connect, flagged as a duplicate and with the
packet id of before. These and the topic and the payload identify it (``deliveries.py``). A packet id alone does not: a
broker uses it again once the message is acknowledged, and 65,535 later messages at the latest. A new message with the
packet id, topic and payload of an acknowledged one whose id is kept is dropped if it is sent again before it was read:
the page of the connector names this limit.

**Acknowledgements.** They are sent in the order of the deliveries, as MQTT demands. A round trip proves that they have
arrived.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow_connectors.deliveries import DeliveryLedger
from aflow_connectors.delivery_pause import DeliveryPause
from aflow_connectors.message_ids import hashed
from aflow_connectors.messages import Headers, MessageDecoder, RawMessage
from aflow_connectors.mqtt.client import BrokerLost, BrokerSession, MqttConnection, MqttServer
from aflow_connectors.reconnect import Retries

T = TypeVar("T")

LostSession: TypeAlias = Literal["fail", "continue"]

#: Name of the header of messages that the broker has retained.
RETAINED: Final = "mqtt-retained"

_logger = logging.getLogger("aflow.connectors")

#: Time (s) for which a read waits for messages before it looks at the limits of time.
_SLICE: Final = 0.2

#: Ids that are kept of acknowledged messages. Fewer than packet ids, which are used again.
_REMEMBER: Final = 10_000


@dataclass(frozen=True)
class SessionSettings:
    """The settings of the reader of a source."""

    server: MqttServer
    session: BrokerSession
    filters: tuple[str, ...]
    idle_after: float | None
    """Seconds."""
    on_lost_session: LostSession
    retained: bool


class SessionReader(Reader[T], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``."""

    def __init__(
        self,
        settings: SessionSettings,
        decoder: MessageDecoder[T],
        retries: Retries,
        position: Position | None,
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._retries = retries
        self._name = f"{settings.server.place}, client {settings.session.client_id!r}"
        self._ledger = DeliveryLedger(
            self._name, position, remember=_REMEMBER, prefetch=settings.session.prefetch
        )
        #: True once the broker must have the session.
        self._expects_session = position is not None
        #: True until a chunk tells a restart that there is a session.
        self._started_here = position is None
        self._connection: MqttConnection | None = None
        self._pause = DeliveryPause(
            self._name, prefetch=settings.session.prefetch, idle_after=settings.idle_after
        )

    async def open(self) -> None:
        """Connect. Raises ``SourceError``."""
        await self._retries.run(self._open)

    async def read(self, limit: int) -> Chunk[T] | None:
        if self._started_here:
            self._started_here = False
            return Chunk([], self._ledger.position())
        while True:
            connection = self._connection
            if connection is not None and connection.delivered:
                chunk = await self._chunk(connection, limit)
                if chunk is not None:
                    return chunk
                continue
            await self._retries.run(self._wait, renew=self._open)
            if self._becomes_idle():
                return Chunk([], self._ledger.position(), idle=True)

    async def on_checkpoint_completed(self, position: Position) -> None:
        covered = self._ledger.number_at(position)
        connection = self._connection
        if connection is None:
            return
        try:
            for tag in self._ledger.take_covered(covered):
                if tag:  # QoS 0
                    connection.acknowledge(tag)
            await connection.round_trip()
        except BrokerLost:
            return  # `read` connects again, and the next checkpoint acknowledges what is delivered again
        if connection is self._connection:
            self._ledger.settle(covered)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._ledger.on_connection_lost()
        if connection is not None:
            await connection.close()

    def _becomes_idle(self) -> bool:
        now = asyncio.get_running_loop().time()
        delivered = self._connection is not None and bool(self._connection.delivered)
        return self._pause.becomes_idle(self._ledger.unacknowledged, now, delivered=delivered)

    async def _chunk(self, connection: MqttConnection, limit: int) -> Chunk[T] | None:
        """Return the records of at most ``limit`` messages; None if all were read before."""
        taken = list(islice(connection.delivered, limit))
        # Hot path (benchmark `connectors`): once for each message.
        recognised = self._ledger.recognise([_id(one) for one in taken], [one.dup for one in taken])
        fresh = [
            _raw_message(taken[place], recognised.numbers[place]) for place in recognised.fresh
        ]
        decoded = await self._decoder.decode(fresh)  # may be cancelled: then they are still there
        self._ledger.read(recognised, [one.mid for one in taken])
        for _ in taken:
            connection.delivered.popleft()
        self._pause.on_messages()
        if not fresh:
            return None
        return Chunk(decoded.values, self._ledger.position(), decoded.timestamps, decoded.rejected)

    async def _open(self) -> None:
        """Connect and subscribe. Replaces a connection that was lost."""
        await self.close()
        settings = self._settings
        connection = MqttConnection(settings.server, SourceError, settings.session)
        try:
            await connection.open()
            if not connection.session_present:
                await self._on_new_session(connection)
            await connection.subscribe(list(settings.filters), retained=settings.retained)
        except BaseException:
            await connection.close()
            raise
        self._expects_session = True
        self._connection = connection
        self._pause.on_connected()

    async def _on_new_session(self, connection: MqttConnection) -> None:
        """Apply ``on_lost_session`` if there was a session. Raises ``SourceError`` if it is "fail"."""
        if not self._expects_session:
            return
        lost = (
            f"{self._name}: the broker does not have the session any more, so messages since the last connection are "
            f"lost. Did it expire (session_expiry), or does the broker not store sessions on disk?"
        )
        if self._settings.on_lost_session == "fail":
            # A restart must find no session either: else it would continue without an error.
            await connection.end_session()
            raise SourceError(f"{lost} on_lost_session='continue' continues with a new one")
        self._ledger.on_session_lost()
        extra = {"event": "session_lost", "place": self._name}
        _logger.warning("%s It continues with a new one.", lost, extra=extra)

    async def _wait(self) -> None:
        """Wait for a message, at most for ``_SLICE``. Raises ``BrokerLost``."""
        connection = self._connection
        if connection is None:
            raise BrokerLost("there is no connection")
        now = asyncio.get_running_loop().time()
        self._pause.begin(now)
        await connection.wait(_SLICE)
        if not connection.delivered:
            self._pause.warn_if_stalled(self._ledger.unacknowledged, now)


def _id(message: Any) -> bytes | None:
    """Return what identifies a message that is delivered again; None for one that never is."""
    if message.qos == 0:
        return None
    topic: bytes = message._topic
    return hashed(b"%d %d " % (message.mid, len(topic)) + topic + bytes(message.payload))


def _raw_message(message: Any, number: int) -> RawMessage:
    topic = bytes(message._topic)
    return RawMessage(bytes(message.payload), topic, _headers(message), None, number)


def _headers(message: Any) -> Headers:
    user = getattr(message.properties, "UserProperty", None)
    headers = () if user is None else tuple((name, value.encode()) for name, value in user)
    return (*headers, (RETAINED, b"1")) if message.retain else headers
