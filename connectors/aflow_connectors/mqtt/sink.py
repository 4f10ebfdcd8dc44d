"""``MqttSink``: topics of an MQTT broker as a destination."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from aflow.connect import Batch, Delivery, Sink, SinkError, Writer, WriterContext
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.broker_arguments import checked_format, checked_function
from aflow_connectors.formats import Format, Json, Raw
from aflow_connectors.in_flight import parts
from aflow_connectors.messages import Headers, HeadersOf, MessageEncoder, RawMessage
from aflow_connectors.mqtt.client import (
    PATIENCE,
    BrokerLost,
    MqttConnection,
    MqttServer,
    mqtt_server,
)
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")

#: Bytes of a topic, and of a payload, by the protocol.
_LONGEST_TOPIC: Final = 65_535
_LARGEST: Final = 268_435_455 - _LONGEST_TOPIC


class MqttSink(Sink[T], Generic[T]):
    """Publish each record to ``topic``, a name or a function of the record, with QoS 1.

    ``url`` is as for ``MqttSource``. Records are encoded as JSON, or in another ``format``. ``headers`` maps a record
    to its user properties, which are text. A ``Message`` brings its own headers; one without value is an empty message.
    With ``retain``, the broker keeps the last message of each topic for later subscribers.

    At least once: each batch waits for the confirmations of the broker, and records since the last checkpoint are
    published again after a restart. ``client`` are arguments of ``aiomqtt.Client``. Raises ``SinkError`` for wrong
    credentials, and for records that cannot be encoded or that the broker refuses; a lost connection is renewed
    (``reconnect``). Needs a broker of MQTT 5.
    """

    delivery = Delivery.AT_LEAST_ONCE

    def __init__(
        self,
        url: str,
        topic: str | Callable[[T], str],
        *,
        format: Format[Any] | None = None,
        headers: HeadersOf[T] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        retain: bool = False,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "MqttSink"
        self._server = mqtt_server(owner, url, client)
        self._topic = _checked_topic(owner, topic)
        self._format = checked_format(owner, "format", format, Json())
        self._headers = checked_function(owner, "headers", headers)
        self._reconnect = checked_reconnect(owner, reconnect)
        self._retain = retain

    async def writer(self, context: WriterContext) -> Writer[T]:
        place = f"sink {context.name!r}"
        # It writes no keys: `Raw` does not see the one of a `Message`.
        encoder = MessageEncoder[T](
            place, self._format, key=_no_key, key_format=Raw(), headers=self._headers
        )
        retries = Retries(
            f"{place}, {self._server.place}", self._reconnect, lost=(BrokerLost,), failed=SinkError
        )
        writer = TopicWriter(place, self._server, TopicMapper(place, encoder, self._topic), retries)
        writer.retain = self._retain
        await writer.open()
        return writer


class Publication(NamedTuple):
    """A message on its way to a topic."""

    topic: str
    payload: bytes
    headers: Headers


@dataclass(frozen=True)
class TopicMapper(Generic[T]):
    """Maps records to messages."""

    place: str
    encoder: MessageEncoder[T]
    topic: str | Callable[[T], str]

    async def of(self, batch: Batch[T]) -> list[Publication]:
        """Return the messages. Raises ``SinkError`` with the record for one that is none."""
        messages = await self.encoder.encode(batch.values)
        return [
            self._publication(record, message)
            for record, message in zip(batch.values, messages, strict=True)
        ]

    def _publication(self, record: T, message: RawMessage) -> Publication:
        topic = self.topic if isinstance(self.topic, str) else self._topic_of(self.topic, record)
        payload = message.value or b""
        if len(payload) > _LARGEST:
            raise self._refused(
                record, f"is a payload of {len(payload):,} bytes; MQTT takes {_LARGEST:,}"
            )
        for name, data in message.headers:
            try:
                data.decode()
            except UnicodeDecodeError:
                raise self._refused(
                    record, f"has a header {name!r} that is not UTF-8, as MQTT demands"
                ) from None
        return Publication(topic, payload, message.headers)

    def _topic_of(self, fn: Callable[[T], str], record: T) -> str:
        try:
            topic = fn(record)
        except Exception as exc:
            raise SinkError(
                f"{self.place}: topic failed for record {shown(record)}: {described(exc)}"
            ) from exc
        if not _is_topic(topic):
            raise self._refused(record, f"has topic {shown(topic)}, {_RULE}")
        return topic

    def _refused(self, record: T, reason: str) -> SinkError:
        return SinkError(f"{self.place}: record {shown(record)} {reason}")


class TopicWriter(Writer[T]):
    """Publishes each batch at once. ``write`` returns when the broker has confirmed all of it."""

    #: True if the broker keeps the last message of each topic.
    retain = False

    def __init__(
        self, place: str, server: MqttServer, mapper: TopicMapper[T], retries: Retries
    ) -> None:
        self._place = place
        self._server = server
        self._mapper = mapper
        self._retries = retries
        self._connection: MqttConnection | None = None
        #: Messages of the present part that were confirmed in one attempt, at most.
        self._confirmed = 0

    async def open(self) -> None:
        """Connect. Raises ``SinkError``."""
        await self._retries.run(self._open)

    async def write(self, batch: Batch[T]) -> None:
        messages = await self._mapper.of(batch)
        for part in parts(messages, _size):
            self._confirmed = 0
            # All of it is published again after a lost connection, so the order of each topic is kept.
            await self._retries.run(partial(self._publish, part))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> MqttConnection:
        await self.close()
        connection = MqttConnection(self._server, SinkError)
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return connection

    async def _publish(self, messages: Sequence[Publication]) -> None:
        """Publish messages, if need be on a new connection. Raises ``BrokerLost`` without a confirmation of each.

        A new connection alone is no success, and neither are confirmations of messages that an earlier attempt had
        confirmed, too: a broker may accept connections, confirm some messages, and stall.
        """
        connection = self._connection or await self._open()
        try:
            await self._publish_on(connection, messages)
        except BrokerLost:
            await self.close()
            raise

    async def _publish_on(
        self, connection: MqttConnection, messages: Sequence[Publication]
    ) -> None:
        confirmed = [
            connection.publish(topic, payload, retain=self.retain, headers=headers)
            for topic, payload, headers in messages
        ]
        try:
            async with asyncio.timeout(PATIENCE) as patience:
                before = self._confirmed
                for number, (message, waiting) in enumerate(
                    zip(messages, confirmed, strict=True), start=1
                ):
                    must_wait = not waiting.done()
                    connection.check_confirmation(await waiting, message.topic)
                    if number > before:
                        if number == before + 1:
                            self._retries.connected()
                        self._confirmed = number
                    if must_wait:  # the broker makes progress
                        patience.reschedule(asyncio.get_running_loop().time() + PATIENCE)
        except TimeoutError as exc:
            raise BrokerLost(f"no confirmations for {PATIENCE:.0f} s") from exc


_RULE: Final = f"and a topic has 1 to {_LONGEST_TOPIC:,} bytes without '+', '#' and NUL"


def _is_topic(topic: object) -> bool:
    if not isinstance(topic, str) or {"+", "#", "\0"} & set(topic):
        return False
    return 0 < len(topic.encode("utf-8", "replace")) <= _LONGEST_TOPIC


def _checked_topic(owner: str, topic: Any) -> Any:
    if callable(topic) or _is_topic(topic):
        return topic
    raise FlowDefinitionError(
        f"{owner}: the topic must be a name or a function of the record, not {shown(topic)}, {_RULE}"
    )


def _size(message: Publication) -> int:
    return len(message.payload)


def _no_key(record: object) -> None:
    return None
