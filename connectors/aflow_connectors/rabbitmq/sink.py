"""``RabbitmqSink``: an exchange of a RabbitMQ server as a destination."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from aflow.connect import Delivery, Sink, SinkError, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.broker_arguments import checked_format, checked_function
from aflow_connectors.formats import Format, Json, Text
from aflow_connectors.messages import HeadersOf, MessageEncoder
from aflow_connectors.rabbitmq.client import ServerLost, amqp_server
from aflow_connectors.rabbitmq.writer import ConfirmedWriter, MessageMapper
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")

_DEFAULT_EXCHANGE: Final = ""


class RabbitmqSink(Sink[T], Generic[T]):
    """Publish each record to ``exchange``, a name or a function of the record; by default to the default exchange.

    ``url`` is as for ``RabbitmqSource``. Records are encoded as JSON, or in another ``format``. ``key`` is the routing
    key: a text for all records, or a function of the record; on the default exchange the name of a queue. ``headers``
    maps a record to its headers. A ``Message`` brings its own key, headers and timestamp. The event time of a record is
    the timestamp of its message, unless ``timestamps`` is False.

    At least once: each batch waits for the confirmations of the server, and records since the last checkpoint are
    published again after a restart. ``message_id`` maps a record to its id, by which consumers can recognise
    repetitions; by default each publication has a random one. Messages are stored on disk, unless ``persistent`` is
    False. ``client`` are arguments of ``aio_pika.connect``.

    Raises ``SinkError`` for wrong credentials, missing exchanges, records that cannot be encoded, and messages that no
    queue takes. A lost connection is renewed (``reconnect``).
    """

    delivery = Delivery.AT_LEAST_ONCE

    def __init__(
        self,
        url: str,
        exchange: str | Callable[[T], str] = _DEFAULT_EXCHANGE,
        *,
        format: Format[Any] | None = None,
        key: str | Callable[[T], str] | None = None,
        headers: HeadersOf[T] | None = None,
        timestamps: bool = True,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        message_id: Callable[[T], str] | None = None,
        persistent: bool = True,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "RabbitmqSink"
        self._server = amqp_server(owner, url, client)
        self._exchange = _checked_exchange(owner, exchange)
        self._format = checked_format(owner, "format", format, Json())
        self._key = _checked_key(owner, key)
        self._headers = checked_function(owner, "headers", headers)
        self._timestamps = timestamps
        self._reconnect = checked_reconnect(owner, reconnect)
        self._message_id = checked_function(owner, "message_id", message_id)
        self._persistent = persistent

    async def writer(self, context: WriterContext) -> Writer[T]:
        place = f"sink {context.name!r}"
        encoder = MessageEncoder[T](
            place, self._format, key=self._key, key_format=Text(), headers=self._headers
        )
        mapper = MessageMapper(
            place,
            encoder,
            self._exchange,
            timestamps=self._timestamps,
            message_id=self._message_id,
            persistent=self._persistent,
        )
        retries = Retries(
            f"{place}, {self._server.place}", self._reconnect, lost=(ServerLost,), failed=SinkError
        )
        writer = ConfirmedWriter(place, self._server, mapper, retries)
        await writer.open()
        return writer


def _checked_exchange(owner: str, exchange: Any) -> Any:
    if callable(exchange) or isinstance(exchange, str):
        return exchange
    raise FlowDefinitionError(
        f"{owner}: the exchange must be a name or a function of the record, not {shown(exchange)}"
    )


def _checked_key(owner: str, key: Any) -> Any:
    if isinstance(key, str):

        def constant(record: object) -> str:
            return key

        return constant
    if key is None or callable(key):
        return key
    raise FlowDefinitionError(
        f"{owner}: key= must be a routing key or a function of the record, not {shown(key)}"
    )
