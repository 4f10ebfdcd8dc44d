"""The adapter to ``aio-pika``: the only module that imports it.

Messages are published and consumed by ``aiormq``, the layer of aio-pika below its objects for each message. Its errors
are translated to two: ``ServerLost``, after which an operation is repeated, and the error of the connector.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described
from aflow_connectors.optional import load

_WANTED: Final = {
    "package": "aio-pika",
    "extra": "rabbitmq",
    "purpose": "aflow_connectors.rabbitmq",
}

aio_pika: Any = load("aio_pika", **_WANTED)
exceptions: Any = load("aiormq.exceptions", **_WANTED)
commands: Any = load("pamqp.commands", **_WANTED)
yarl: Any = load("yarl", **_WANTED)

T = TypeVar("T")

#: Time (s) after which an operation without an answer counts as a lost connection.
PATIENCE: Final = 30.0

#: Default interval (s) of heartbeats. A server that sends none for about three of them counts as lost.
_HEARTBEAT: Final = 10

#: Time (s) spent on telling the server that a connection is closed.
_CLOSING: Final = 3.0

#: Turns of the loop until the last tasks of a closed connection, which nothing waits for, have ended.
_LAST_TURNS: Final = 10


class ServerLost(ConnectionError):
    """The connection is lost, or the server cannot do now what it may do later."""

    def __str__(self) -> str:
        return str(self.args[0])


_REFUSED: Final[tuple[type[BaseException], ...]] = (
    exceptions.AuthenticationError,
    exceptions.ProbableAuthenticationError,
    exceptions.IncompatibleProtocolError,
    exceptions.ConnectionNotAllowed,
    ssl.SSLError,
)
"""Errors of a new connection that no further attempt can change."""

_IN_USE: Final = "exclusive use"

#: Text of the error for a queue on a server that has not started completely.
_NODE_DOWN: Final = "is down or inaccessible"


@dataclass(frozen=True)
class AmqpServer:
    """The URL of a server, and arguments of the client. Both may contain secrets, and are in no message."""

    url: str = field(repr=False)
    place: str
    """Host, port and virtual host."""
    client: Mapping[str, Any] = field(repr=False)

    async def open(self, failed: type[ConnectorError], *, confirms: bool = False) -> AmqpChannel:
        """Open a connection with a channel. Raises ``ServerLost``, or ``failed`` if the server refuses it."""
        try:
            with self._translated(failed):
                async with asyncio.timeout(PATIENCE):
                    connection = await aio_pika.connect(self.url, **self.client)
        except exceptions.ProtocolSyntaxError as exc:
            raise failed(
                f"RabbitMQ at {self.place} refuses the connection: does the virtual host exist, and may the user of "
                f"the URL use it? ({described(exc)})"
            ) from exc
        channel = AmqpChannel(self, failed, connection)
        try:
            await channel.open(confirms=confirms)
        except BaseException:
            await channel.close()
            raise
        return channel

    @contextmanager
    def _translated(self, failed: type[ConnectorError]) -> Generator[None]:
        try:
            yield
        except _REFUSED as exc:
            raise failed(
                f"RabbitMQ at {self.place} refuses the connection: {described(exc)}; see the user and the password of "
                f"the URL, and client= for TLS"
            ) from exc
        except (OSError, TimeoutError) as exc:
            raise ServerLost(
                f"RabbitMQ at {self.place} cannot be reached: {described(exc)}"
            ) from exc


class AmqpChannel:
    """A connection with one channel. ``failed`` is raised for what the server refuses."""

    def __init__(self, server: AmqpServer, failed: type[ConnectorError], connection: Any) -> None:
        self._server = server
        self._failed = failed
        self._connection = connection
        self._raw: Any = None
        #: Messages that were delivered and not taken.
        self.delivered: deque[Any] = deque()
        #: Set when a message was delivered, and when the channel is lost.
        self._woken = asyncio.Event()
        #: The reason why the server has ended the consumer.
        self._cancelled: str | None = None

    async def open(self, *, confirms: bool) -> None:
        transport = self._connection.transport.connection
        self._raw = await self._run(transport.channel(publisher_confirms=confirms), "the channel")
        self._raw.closing.add_done_callback(self._on_closed)

    @property
    def is_lost(self) -> bool:
        return bool(self._raw is None or self._raw.is_closed)

    @property
    def is_blocked(self) -> bool:
        """Return True while an alarm of the server (disk, memory) stops the messages of this connection."""
        if self.is_lost:
            return False
        ready = self._connection.transport.connection.ready()
        try:
            ready.send(None)  # it ends at once unless it has to wait
        except StopIteration:
            return False
        ready.close()
        return True

    async def check_queue(self, queue: str) -> int:
        """Return the number of messages in ``queue`` that are ready. Raises an error if it does not exist."""
        declared = await self._run(self._raw.queue_declare(queue, passive=True), f"queue {queue!r}")
        return int(declared.message_count)

    async def check_exchange(self, exchange: str) -> None:
        """Raise an error if ``exchange`` does not exist."""
        if exchange:  # the default exchange cannot be declared
            await self._run(
                self._raw.exchange_declare(exchange, passive=True), f"exchange {exchange!r}"
            )

    async def consume(
        self,
        queue: str,
        *,
        prefetch: int,
        exclusive: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> str:
        """Deliver messages of ``queue``, at most ``prefetch`` that are not acknowledged. Return the consumer's tag."""
        self._raw.on_consumer_cancel_callbacks.add(self._on_cancel)
        what = f"queue {queue!r}"
        await self._run(self._raw.basic_qos(prefetch_count=prefetch), what)
        consumed = await self._run(
            self._raw.basic_consume(
                queue, self._on_message, exclusive=exclusive, arguments=dict(arguments or {})
            ),
            what,
        )
        return str(consumed.consumer_tag)

    async def cancel(self, tag: str) -> None:
        """End a consumer. Messages that were delivered to it remain in ``delivered``."""
        await self._run(self._raw.basic_cancel(tag), "the consumer")

    async def wait(self, seconds: float) -> None:
        """Wait until a message was delivered, for at most ``seconds``. Raises ``ServerLost``."""
        if not self.delivered:
            self._woken.clear()
            self._check()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
            if not self.delivered:
                self._check()

    async def acknowledge(self, tag: int, *, multiple: bool) -> None:
        """Acknowledge a message, with ``multiple`` all before it, too."""
        await self._run(
            self._raw.basic_ack(tag, multiple=multiple, wait=False), "an acknowledgement"
        )

    async def publish(self, message: Publishing) -> None:
        """Publish a message, and wait for the confirmation of the server.

        Raises ``Unroutable`` if no queue is bound, and ``ServerLost`` if the server does not accept it now.
        """
        # Hot path (benchmark `connectors`): without a timeout of each message, the caller has one for many.
        with self._explained(f"exchange {message.exchange!r}"):
            await self._raw.basic_publish(
                message.body,
                exchange=message.exchange,
                routing_key=message.key,
                properties=commands.Basic.Properties(**message.properties),
                mandatory=True,
                wait=False,
            )

    async def close(self) -> None:
        """Close the connection; at most a moment is spent on telling the server."""
        with suppress(Exception):
            async with asyncio.timeout(_CLOSING):
                if not self.is_lost:
                    await self._raw.close()
        with suppress(Exception):
            async with asyncio.timeout(_CLOSING):
                await self._connection.close()
        # `close` raises if the server answers before it waits for the answer.
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)

    async def _on_message(self, message: Any) -> None:
        self.delivered.append(message)
        self._woken.set()

    def _on_closed(self, closing: object) -> None:
        self._woken.set()

    def _on_cancel(self, frame: object) -> None:
        self._cancelled = "the server has ended the consumer: was the queue deleted?"
        self._woken.set()

    def _check(self) -> None:
        if self._cancelled is not None:
            raise ServerLost(self._cancelled)
        if self.is_lost:
            # Raises the reason of the server, if there is one.
            with self._explained("the channel"):
                closing = self._raw.closing
                if closing.done() and not closing.cancelled() and closing.exception() is not None:
                    raise closing.exception()
            raise ServerLost("the connection is closed")

    async def _run(self, operation: Awaitable[T], what: str) -> T:
        try:
            async with asyncio.timeout(PATIENCE):
                with self._explained(what):
                    return await operation
        except TimeoutError as exc:
            raise ServerLost(f"no answer of the server for {PATIENCE:.0f} s") from exc

    @contextmanager
    def _explained(self, what: str) -> Generator[None]:
        """Translate errors of aiormq, which cancels operations under way when a connection is closed."""
        caller = asyncio.current_task()
        cancelled = 0 if caller is None else caller.cancelling()
        try:
            yield
        except asyncio.CancelledError as exc:
            if caller is not None and caller.cancelling() > cancelled:
                raise
            raise ServerLost("the connection was closed") from exc
        except exceptions.PublishError as exc:
            raise Unroutable(what) from exc
        except exceptions.DeliveryError as exc:
            raise ServerLost("the server does not accept the message: is a queue full?") from exc
        except exceptions.ChannelNotFoundEntity as exc:
            if _NODE_DOWN in str(exc):
                raise ServerLost(described(exc)) from exc
            raise self._refused(f"there is no {what}; create it first ({exc})") from exc
        except exceptions.ChannelAccessRefused as exc:
            if _IN_USE in str(exc):
                raise ServerLost(f"{what} has another consumer: {exc}") from exc
            raise self._refused(f"the user of the URL may not use {what} ({exc})") from exc
        except exceptions.ChannelPreconditionFailed as exc:
            raise self._refused(f"{what}: {exc}{_advice(str(exc))}") from exc
        except (exceptions.AMQPError, exceptions.ChannelInvalidStateError, OSError) as exc:
            if isinstance(exc, TimeoutError):
                raise
            raise ServerLost(described(exc)) from exc
        except Exception as exc:
            if (
                type(exc) is Exception
            ):  # of an operation that waited while the connection was closed
                raise ServerLost("the connection was closed") from exc
            raise

    def _refused(self, reason: str) -> ConnectorError:
        return self._failed(f"RabbitMQ at {self._server.place}: {reason}")


class Unroutable(Exception):
    """No queue is bound that takes a message."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """A message on its way to an exchange. ``properties`` are those of AMQP."""

    exchange: str
    key: str
    body: bytes
    properties: Mapping[str, Any]


def _advice(text: str) -> str:
    if "acknowledgement" in text and "timed out" in text:
        return ". No checkpoint was complete for so long: see consumer_timeout of RabbitMQ"
    return ""


def amqp_server(owner: str, url: object, client: Mapping[str, object] | None) -> AmqpServer:
    """Return the server. Raises ``FlowDefinitionError`` for an invalid URL, without showing it."""
    given: Mapping[str, object] = {} if client is None else client
    if not isinstance(given, Mapping):
        raise FlowDefinitionError(
            f"{owner}: client= must be a mapping of arguments of aio_pika.connect, not a {type(given).__name__}"
        )
    if reserved := sorted(set(given) & {"url", "loop", "connection_class"}):
        raise FlowDefinitionError(
            f"{owner}: client= has {', '.join(reserved)}, which the connector chooses"
        )
    try:
        parsed = yarl.URL(url) if isinstance(url, str) else yarl.URL()
    except ValueError:
        parsed = yarl.URL()
    if parsed.scheme not in ("amqp", "amqps") or not parsed.host:
        raise FlowDefinitionError(
            f"{owner}: the server must be a URL like 'amqp://user:password@localhost:5672/vhost'"
        )
    if "heartbeat" not in parsed.query:
        parsed = parsed.update_query(heartbeat=str(_HEARTBEAT))
    port = parsed.explicit_port or (5671 if parsed.scheme == "amqps" else 5672)
    return AmqpServer(str(parsed), f"{parsed.host}:{port}{parsed.path}", dict(given))
