"""``RabbitmqSource`` and ``RabbitmqStreamSource``: queues and streams of a RabbitMQ server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, cast, get_args, overload

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_dead_letters
from aflow_connectors.broker_arguments import (
    checked_ending,
    checked_idle_after,
    checked_names,
)
from aflow_connectors.formats import Format, Text
from aflow_connectors.message import Message
from aflow_connectors.messages import MessageDecoder
from aflow_connectors.rabbitmq.client import AmqpServer, ServerLost, amqp_server
from aflow_connectors.rabbitmq.queue_reader import AcknowledgingReader, QueueSettings
from aflow_connectors.rabbitmq.stream_reader import (
    LostMessages,
    OffsetReader,
    StreamQueueSettings,
    StreamStart,
)
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect
from aflow_connectors.value_format import checked_value_format

V = TypeVar("V")
T = TypeVar("T")

_IDLE_AFTER: Final = timedelta(seconds=5)

#: Default of ``prefetch`` for queues: messages of an interval between two checkpoints.
_PREFETCH: Final = 10_000
#: The same for streams, where reading alone frees it.
_STREAM_PREFETCH: Final = 2_000
_MOST_PREFETCH: Final = 65_535

_REMEMBER: Final = 10_000


class QueueOptions(TypedDict, total=False):
    """The arguments of ``RabbitmqSource`` that have no influence on the type of its records."""

    dead_letters: Tag[BadRecord] | None
    reconnect: Reconnect
    until: Literal["now"] | None
    idle_after: timedelta | None
    exactly_once: bool
    prefetch: int
    remember: int
    client: Mapping[str, object] | None


class StreamOptions(TypedDict, total=False):
    """The arguments of ``RabbitmqStreamSource`` that have no influence on the type of its records."""

    start: StreamStart
    dead_letters: Tag[BadRecord] | None
    reconnect: Reconnect
    until: Literal["now"] | None
    idle_after: timedelta | None
    on_lost_offsets: LostMessages
    prefetch: int
    client: Mapping[str, object] | None


class RabbitmqSource(Source[T]):
    """Read the messages of ``queues``, a name or several, and acknowledge them after checkpoints.

    ``url`` is like "amqp://user:password@host:5672/vhost", or "amqps". Bodies are JSON, decoded as ``of``, or in
    another ``format``. With ``messages=True`` the records are ``Message``, with the routing key, headers, timestamp and
    message id. Queues must exist. Each is a split, and this source must be its only consumer. Needs checkpoints.

    A message that is delivered again after a failure is dropped if it has the ``message_id`` of one that was read; of
    those that are acknowledged, the last ``remember`` are known, at least ``prefetch``. So each message is processed
    once. Messages without an id, and all with ``exactly_once=False``, are processed at least once.

    At most ``prefetch`` messages (1 to 65,535) wait for their checkpoint: then no more are delivered until it is
    complete. ``until="now"`` ends a queue after as many messages as it has when it is opened. A queue that has had no
    message for ``idle_after`` does not hold event time back. ``client`` are arguments of ``aio_pika.connect``, as for
    TLS. Wrong credentials and missing queues raise ``SourceError`` at once, while a lost connection is renewed
    (``reconnect``).
    """

    concurrency = None
    needs_checkpoints = True
    #: Redelivered messages may be in another order.
    divides_chunks = False

    @overload
    def __init__(
        self: RabbitmqSource[Any],
        url: str,
        queues: str | Sequence[str],
        *,
        messages: Literal[False] = False,
        **options: Unpack[QueueOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RabbitmqSource[V],
        url: str,
        queues: str | Sequence[str],
        *,
        of: type[V],
        messages: Literal[False] = False,
        **options: Unpack[QueueOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RabbitmqSource[V],
        url: str,
        queues: str | Sequence[str],
        *,
        format: Format[V],
        messages: Literal[False] = False,
        **options: Unpack[QueueOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RabbitmqSource[Message[str, V]],
        url: str,
        queues: str | Sequence[str],
        *,
        of: type[V],
        messages: Literal[True],
        **options: Unpack[QueueOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RabbitmqSource[Message[str, V]],
        url: str,
        queues: str | Sequence[str],
        *,
        format: Format[V],
        messages: Literal[True],
        **options: Unpack[QueueOptions],
    ) -> None: ...

    def __init__(
        self,
        url: str,
        queues: str | Sequence[str],
        *,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        messages: bool = False,
        dead_letters: Tag[BadRecord] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        until: Literal["now"] | None = None,
        idle_after: timedelta | None = _IDLE_AFTER,
        exactly_once: bool = True,
        prefetch: int = _PREFETCH,
        remember: int = _REMEMBER,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "RabbitmqSource"
        checked_dead_letters(owner, dead_letters)
        self.dead_letters = dead_letters
        self.bounded = checked_ending(owner, until)
        self.repeats_records = not exactly_once
        self._queues = _checked_queues(owner, queues)
        self._format = checked_value_format(owner, of, format)
        self._messages = messages
        self._reconnect = checked_reconnect(owner, reconnect)
        self._settings = QueueSettings(
            amqp_server(owner, url, client),
            self.bounded,
            checked_idle_after(owner, idle_after),
            _checked_number(owner, "prefetch", prefetch, 1, _MOST_PREFETCH),
            _checked_number(owner, "remember", remember, 0, 1_000_000),
            exactly_once,
        )

    async def splits(self) -> Sequence[Split]:
        return [Split(queue) for queue in self._queues]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        decoder = _decoder(self, split.id, self._format, "message", messages=self._messages)
        retries = _retries(self._settings.server, split.id, self._reconnect)
        reader = AcknowledgingReader[T](self._settings, split.id, decoder, retries, position)
        await reader.open()
        return reader


class RabbitmqStreamSource(Source[T]):
    """Read the messages of ``streams``, queues of the type "stream": a name or several.

    ``url``, ``of``, ``format``, ``messages``, ``idle_after``, ``client`` and ``reconnect`` are as for
    ``RabbitmqSource``. Streams must exist.

    Each stream is a split; its position is the next offset, so records are neither lost nor repeated after a restart.
    ``start`` is "earliest" (the default), "latest", an offset, or a datetime, which starts at the first message of the
    chunk of the server's log that has the time; it counts for streams without a checkpoint. ``until="now"`` ends each
    stream at the end that it has when it is opened.

    If the server has removed messages before they were read, ``on_lost_offsets`` decides: "fail" (the default) raises
    ``SourceError``, the others continue at the "earliest" or "latest" message and log a warning. ``prefetch`` messages
    (1 to 65,535) are delivered ahead.
    """

    concurrency = None

    @overload
    def __init__(
        self: RabbitmqStreamSource[Any],
        url: str,
        streams: str | Sequence[str],
        *,
        messages: Literal[False] = False,
        **options: Unpack[StreamOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RabbitmqStreamSource[V],
        url: str,
        streams: str | Sequence[str],
        *,
        of: type[V],
        messages: Literal[False] = False,
        **options: Unpack[StreamOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RabbitmqStreamSource[V],
        url: str,
        streams: str | Sequence[str],
        *,
        format: Format[V],
        messages: Literal[False] = False,
        **options: Unpack[StreamOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RabbitmqStreamSource[Message[str, V]],
        url: str,
        streams: str | Sequence[str],
        *,
        of: type[V],
        messages: Literal[True],
        **options: Unpack[StreamOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RabbitmqStreamSource[Message[str, V]],
        url: str,
        streams: str | Sequence[str],
        *,
        format: Format[V],
        messages: Literal[True],
        **options: Unpack[StreamOptions],
    ) -> None: ...

    def __init__(
        self,
        url: str,
        streams: str | Sequence[str],
        *,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        messages: bool = False,
        start: StreamStart = "earliest",
        dead_letters: Tag[BadRecord] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        until: Literal["now"] | None = None,
        idle_after: timedelta | None = _IDLE_AFTER,
        on_lost_offsets: LostMessages = "fail",
        prefetch: int = _STREAM_PREFETCH,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "RabbitmqStreamSource"
        checked_dead_letters(owner, dead_letters)
        self.dead_letters = dead_letters
        self.bounded = checked_ending(owner, until)
        self._streams = _checked_queues(owner, streams)
        self._format = checked_value_format(owner, of, format)
        self._messages = messages
        self._reconnect = checked_reconnect(owner, reconnect)
        self._settings = StreamQueueSettings(
            amqp_server(owner, url, client),
            _checked_start(owner, start),
            self.bounded,
            checked_idle_after(owner, idle_after),
            _checked_lost(owner, on_lost_offsets),
            _checked_number(owner, "prefetch", prefetch, 1, _MOST_PREFETCH),
        )

    async def splits(self) -> Sequence[Split]:
        return [Split(stream) for stream in self._streams]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        decoder = _decoder(self, split.id, self._format, "offset", messages=self._messages)
        retries = _retries(self._settings.server, split.id, self._reconnect)
        reader = OffsetReader[T](self._settings, split.id, decoder, retries, position)
        await reader.open()
        return reader


def _decoder(
    source: Source[T], queue: str, format: Format[Any], unit: str, *, messages: bool
) -> MessageDecoder[T]:
    return MessageDecoder[T](
        queue,
        format,
        key_format=Text(),
        messages=messages,
        dead_letters=source.dead_letters,
        unit=unit,
    )


def _retries(server: AmqpServer, queue: str, reconnect: Reconnect) -> Retries:
    place = f"{server.place}, queue {queue!r}"
    return Retries(place, reconnect, lost=(ServerLost,), failed=SourceError)


def _checked_queues(owner: str, queues: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(queues, (str, list, tuple)):
        return cast("tuple[str, ...]", checked_names(owner, "queues", queues))
    raise FlowDefinitionError(
        f"{owner}: the queues must be a name or several names, not {shown(queues)}"
    )


def _checked_start(owner: str, start: object) -> StreamStart:
    if isinstance(start, datetime) and start.tzinfo is not None:
        return start
    if (type(start) is int and start >= 0) or start in ("earliest", "latest"):
        return start
    raise FlowDefinitionError(
        f"{owner}: start= must be 'earliest', 'latest', an offset, or a datetime with a time zone, not {shown(start)}"
    )


def _checked_lost(owner: str, policy: object) -> LostMessages:
    if policy not in get_args(LostMessages):
        raise FlowDefinitionError(
            f"{owner}: on_lost_offsets= must be 'fail', 'earliest' or 'latest', not {shown(policy)}"
        )
    return cast(LostMessages, policy)


def _checked_number(owner: str, argument: str, number: object, least: int, most: int) -> int:
    if type(number) is int and least <= number <= most:
        return number
    raise FlowDefinitionError(
        f"{owner}: {argument}= must be a number from {least} to {most:,}, not {shown(number)}"
    )
