"""``ConfirmedWriter``: publishes batches, and waits for the confirmation of each message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

from aflow.connect import Batch, SinkError, Writer
from aflow.errors import described, shown
from aflow_connectors.in_flight import parts
from aflow_connectors.messages import Headers, MessageEncoder, RawMessage
from aflow_connectors.rabbitmq.client import (
    PATIENCE,
    AmqpChannel,
    AmqpServer,
    Publishing,
    ServerLost,
    Unroutable,
)
from aflow_connectors.rabbitmq.raw_messages import MILLISECONDS
from aflow_connectors.reconnect import Retries

T = TypeVar("T")

_logger = logging.getLogger("aflow.connectors")

#: Time (s) between two looks at the confirmations.
_SLICE: Final = 1.0

_ALARM: Final = "an alarm of the server for its disk or memory stops publishers"

#: Bytes of a routing key, by the protocol.
_LONGEST: Final = 255

#: Bytes of the name of a header that the client does not cut off.
_LONGEST_NAME: Final = 128

_PERSISTENT, _TRANSIENT = 2, 1


@dataclass(frozen=True)
class MessageMapper(Generic[T]):
    """Maps records to messages."""

    place: str
    encoder: MessageEncoder[T]
    exchange: str | Callable[[T], str]
    timestamps: bool
    message_id: Callable[[T], str] | None
    persistent: bool

    async def of(self, batch: Batch[T]) -> list[Publishing]:
        """Return the messages. Raises ``SinkError`` with the record for one that is none."""
        times = batch.timestamps if self.timestamps else None
        messages = await self.encoder.encode(batch.values, times)
        return [
            self._publishing(record, message)
            for record, message in zip(batch.values, messages, strict=True)
        ]

    def _publishing(self, record: T, message: RawMessage) -> Publishing:
        exchange = self.exchange
        if not isinstance(exchange, str):
            exchange = self._text("exchange", exchange, record)
        key = message.key
        if key is None:
            raise self._refused(record, "has no routing key; set key=")
        if len(key) > _LONGEST:
            raise self._refused(
                record, f"has a routing key of {len(key)} bytes, and AMQP takes {_LONGEST}"
            )
        if message.value is None:
            raise self._refused(record, "has no value, and RabbitMQ has no tombstones")
        properties: dict[str, Any] = {
            "delivery_mode": _PERSISTENT if self.persistent else _TRANSIENT,
            "message_id": uuid4().hex
            if self.message_id is None
            else self._text("message_id", self.message_id, record),
        }
        if long := [name for name, _ in message.headers if len(name.encode()) > _LONGEST_NAME]:
            raise self._refused(
                record, f"has a header {shown(long[0])}; AMQP takes names of {_LONGEST_NAME} bytes"
            )
        headers = _table(message.headers)
        time = message.timestamp if self.timestamps else None
        if time is not None:
            if time < 0:
                raise self._refused(
                    record, "is older than 1970, which AMQP cannot hold; use timestamps=False"
                )
            properties["timestamp"] = datetime.fromtimestamp(time // 1000, UTC)
            headers[MILLISECONDS] = time
        if headers:
            properties["headers"] = headers
        return Publishing(exchange, key.decode(), message.value, properties)

    def _text(self, argument: str, fn: Callable[[T], str], record: T) -> str:
        try:
            text = fn(record)
        except Exception as exc:
            raise SinkError(
                f"{self.place}: {argument} failed for record {shown(record)}: {described(exc)}"
            ) from exc
        if isinstance(text, str) and len(text.encode("utf-8", "replace")) <= _LONGEST:
            return text
        raise self._refused(
            record, f"has {argument} {shown(text)}; it must be a text of at most {_LONGEST} bytes"
        )

    def _refused(self, record: T, reason: str) -> SinkError:
        return SinkError(f"{self.place}: record {shown(record)} {reason}")


class ConfirmedWriter(Writer[T]):
    """Publishes each batch at once. ``write`` returns when the server has confirmed all of it."""

    def __init__(
        self, place: str, server: AmqpServer, mapper: MessageMapper[T], retries: Retries
    ) -> None:
        self._place = place
        self._server = server
        self._mapper = mapper
        self._retries = retries
        self._channel: AmqpChannel | None = None
        #: True from the report of an alarm of the server to that of its end.
        self._is_blocked = False

    async def open(self) -> None:
        """Connect. Raises ``SinkError``."""
        await self._retries.run(self._open)

    async def write(self, batch: Batch[T]) -> None:
        messages = await self._mapper.of(batch)
        for waiting in parts(messages, _size):
            # Removes from `waiting` what is confirmed, so a repetition publishes the others.
            await self._retries.run(partial(self._publish, waiting))

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _open(self) -> AmqpChannel:
        await self.close()
        channel = await self._server.open(SinkError, confirms=True)
        try:
            if isinstance(self._mapper.exchange, str):
                await channel.check_exchange(self._mapper.exchange)
        except BaseException:
            await channel.close()
            raise
        self._channel = channel
        return channel

    async def _publish(self, waiting: list[Publishing]) -> None:
        """Publish messages, if need be on a new channel. Raises ``ServerLost`` without a confirmation of each.

        A new channel alone is no success: a server with an alarm accepts connections and confirms nothing.
        """
        channel = self._channel or await self._open()
        try:
            await self._publish_on(channel, waiting)
        except ServerLost:
            await self.close()
            raise

    async def _publish_on(self, channel: AmqpChannel, waiting: list[Publishing]) -> None:
        unconfirmed = ServerLost(f"no confirmations for {PATIENCE:.0f} s")
        results: list[BaseException | None] = [unconfirmed] * len(waiting)
        publishing = asyncio.gather(
            *(_publish(channel, message, results, n) for n, message in enumerate(waiting)),
            return_exceptions=True,
        )
        publishing.add_done_callback(_mark_retrieved)
        try:
            await self._wait_while_confirmed(channel, publishing, results)
        finally:
            publishing.cancel()  # no effect if all are done
        await asyncio.wait([publishing])
        if channel.is_blocked:
            unconfirmed.args = (f"no confirmations for {PATIENCE:.0f} s: {_ALARM}",)
        errors = _errors(waiting, results)
        waiting[:] = [message for message, _ in errors]
        for message, error in errors:
            if isinstance(error, Unroutable):
                raise SinkError(
                    f"{self._place}: exchange {message.exchange!r} has no queue for routing key {message.key!r}: the "
                    f"message would be lost; bind one"
                ) from error
        if errors:
            raise errors[0][1]

    async def _wait_while_confirmed(
        self,
        channel: AmqpChannel,
        publishing: asyncio.Future[Any],
        results: Sequence[BaseException | None],
    ) -> None:
        """Wait for all of ``publishing``, or until no further message was confirmed for ``PATIENCE``."""
        now = asyncio.get_running_loop().time
        confirmed, since = 0, now()
        while not publishing.done() and now() - since < PATIENCE:
            await asyncio.wait([publishing], timeout=_SLICE)
            count = results.count(None)
            if count and not confirmed:
                self._retries.connected()
            if count > confirmed:
                confirmed, since = count, now()
            self._report_alarm(channel, is_confirmed=count > 0)

    def _report_alarm(self, channel: AmqpChannel, *, is_confirmed: bool) -> None:
        """Log the begin of an alarm, and the first confirmation after it."""
        place = f"{self._place}, {self._server.place}"
        if channel.is_blocked:
            if not self._is_blocked:
                self._is_blocked = True
                extra = {"event": "publishers_blocked", "place": place}
                _logger.warning("%s: the sink waits: %s", place, _ALARM, extra=extra)
        elif self._is_blocked and is_confirmed:
            self._is_blocked = False
            extra = {"event": "publishers_unblocked", "place": place}
            _logger.info("%s: the server takes messages again", place, extra=extra)


def _mark_retrieved(publishing: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging that the publications were cancelled."""
    if not publishing.cancelled():
        publishing.exception()


def _size(message: Publishing) -> int:
    return len(message.body)


async def _publish(
    channel: AmqpChannel, message: Publishing, results: list[BaseException | None], place: int
) -> None:
    """Set the result at ``place``: the error of the message, or None when it is confirmed."""
    try:
        await channel.publish(message)
    except Exception as exc:
        results[place] = exc
    else:
        results[place] = None


def _errors(
    messages: Sequence[Publishing], results: Sequence[BaseException | None]
) -> list[tuple[Publishing, BaseException]]:
    return [
        (message, result)
        for message, result in zip(messages, results, strict=True)
        if result is not None
    ]


def _table(headers: Headers) -> dict[str, Any]:
    """Return headers as AMQP has them: text where the bytes are UTF-8."""
    table: dict[str, Any] = {}
    for name, data in headers:
        try:
            table[name] = data.decode()
        except UnicodeDecodeError:
            table[name] = bytearray(data)  # for bytes, pamqp has no type
    return table
