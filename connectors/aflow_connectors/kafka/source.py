"""``KafkaSource``: topics of a Kafka cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, cast, get_args, overload

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_dead_letters, checked_interval
from aflow_connectors.broker_arguments import (
    checked_ending,
    checked_format,
    checked_idle_after,
    checked_names,
    checked_optional_name,
)
from aflow_connectors.formats import Format, Json, Raw
from aflow_connectors.kafka.client import LOST, aiokafka, connection
from aflow_connectors.kafka.partition import CommittingReader, PartitionReader, PartitionSettings
from aflow_connectors.kafka.start import LostOffsets, Start, checked_policy, checked_start
from aflow_connectors.message import Message
from aflow_connectors.messages import MessageDecoder
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Isolation = Literal["read_committed", "read_uncommitted"]

_DISCOVER_EVERY: Final = timedelta(minutes=1)
_IDLE_AFTER: Final = timedelta(seconds=5)


class SourceOptions(TypedDict, total=False):
    """The arguments of ``KafkaSource`` that have no influence on the type of its records."""

    start: Start
    dead_letters: Tag[BadRecord] | None
    discover_every: timedelta | None
    reconnect: Reconnect
    until: Literal["now"] | None
    idle_after: timedelta | None
    on_lost_offsets: LostOffsets
    group: str | None
    isolation: Isolation
    client: Mapping[str, object] | None


class KafkaSource(Source[T]):
    """Read the messages of ``topics``: names, or a compiled regular expression that matches whole names.

    ``servers`` are "host:port", several in a list or with commas. Values are JSON, decoded as ``of``, or in another
    ``format``. With ``messages=True`` the records are ``Message``, with key (by ``key_format``; bytes by default),
    headers, timestamp and place, and tombstones are records too. The timestamp of each message is its event time.

    Each partition is a split; its position is the next offset, so records are neither lost nor repeated after a
    restart. ``start`` is "earliest" (the default), "latest", a datetime, or offsets by topic and partition; it counts
    for partitions without a checkpoint. Partitions and topics that are found later (``discover_every``) are read from
    their first record. ``until="now"`` ends each partition at the end that it has when it is opened.

    If the broker has removed records before they were read, ``on_lost_offsets`` decides: "fail" (the default) raises
    ``SourceError``, the others continue at the "earliest" or "latest" record and log a warning.

    ``group`` commits the offsets of completed checkpoints to this consumer group, for monitoring only. A partition that
    has been at its end for ``idle_after`` does not hold event time back. ``client`` are settings of
    ``AIOKafkaConsumer``, as for TLS and SASL. Wrong credentials and unknown topics raise ``SourceError`` at once, while
    a lost connection is renewed (``reconnect``).
    """

    concurrency = None

    @overload
    def __init__(
        self: KafkaSource[Any],
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        messages: Literal[False] = False,
        **options: Unpack[SourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaSource[V],
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[V],
        messages: Literal[False] = False,
        **options: Unpack[SourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaSource[V],
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        format: Format[V],
        messages: Literal[False] = False,
        **options: Unpack[SourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaSource[Message[bytes, V]],
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[V],
        messages: Literal[True],
        **options: Unpack[SourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaSource[Message[bytes, V]],
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        format: Format[V],
        messages: Literal[True],
        **options: Unpack[SourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaSource[Message[K, V]],
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[V],
        messages: Literal[True],
        key_format: Format[K],
        **options: Unpack[SourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaSource[Message[K, V]],
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        format: Format[V],
        messages: Literal[True],
        key_format: Format[K],
        **options: Unpack[SourceOptions],
    ) -> None: ...

    def __init__(
        self,
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        messages: bool = False,
        key_format: Format[Any] | None = None,
        start: Start = "earliest",
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = _DISCOVER_EVERY,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        until: Literal["now"] | None = None,
        idle_after: timedelta | None = _IDLE_AFTER,
        on_lost_offsets: LostOffsets = "fail",
        group: str | None = None,
        isolation: Isolation = "read_committed",
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "KafkaSource"
        checked_dead_letters(owner, dead_letters)
        checked_interval(owner, discover_every)
        self.dead_letters = dead_letters
        self.bounded = checked_ending(owner, until)
        self.discover_every = None if self.bounded else discover_every
        self._topics = checked_names(owner, "topics", topics)
        self._format = _checked_format(owner, of, format)
        self._key_format = _checked_key_format(owner, key_format, messages=messages)
        self._messages = messages
        self._reconnect = checked_reconnect(owner, reconnect)
        self._settings = PartitionSettings(
            connection(owner, servers, client, aiokafka.AIOKafkaConsumer),
            checked_start(owner, start),
            self.bounded,
            checked_idle_after(owner, idle_after),
            checked_policy(owner, on_lost_offsets),
            _checked_isolation(owner, isolation),
            checked_optional_name(owner, "group", group),
        )
        #: The splits of the first call; the later ones are new.
        self._first: frozenset[str] | None = None

    async def splits(self) -> Sequence[Split]:
        place = f"{self._settings.connection.place}, topics"
        retries = Retries(place, self._reconnect, lost=LOST, failed=SourceError)
        found = await retries.run(partial(self._settings.connection.topics, SourceError))
        names = self._named(found)
        splits = [Split(f"{name}/{number}") for name in names for number in found[name]]
        if self._first is None:
            self._first = frozenset(split.id for split in splits)
        return splits

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        topic, _, number = split.id.rpartition("/")
        place = aiokafka.TopicPartition(topic, int(number))
        decoder = MessageDecoder[T](
            topic,
            self._format,
            key_format=self._key_format,
            messages=self._messages,
            partition=place.partition,
            dead_letters=self.dead_letters,
        )
        settings = self._settings
        name = f"{settings.connection.place}, {split.id}"
        retries = Retries(name, self._reconnect, lost=LOST, failed=SourceError)
        if settings.group is None:
            reader = PartitionReader(settings, place, decoder, retries, position)
        else:
            reader = CommittingReader(settings, place, decoder, retries, position)
        await reader.open(later=self._first is not None and split.id not in self._first)
        return reader

    async def on_job_end(self) -> None:
        self._first = None

    def _named(self, found: Mapping[str, Sequence[int]]) -> list[str]:
        """Return the topics to read. Raises ``SourceError`` if one of them, or each, is missing."""
        topics = self._topics
        where = f"Kafka at {self._settings.connection.place}"
        if isinstance(topics, re.Pattern):
            names = [name for name in found if topics.fullmatch(name)]
            if not names and self.discover_every is None:
                raise SourceError(
                    f"{where} has no topic that matches {topics.pattern!r}; it has {shown(list(found))}. With "
                    f"discover_every the source waits for one"
                )
            return names
        if missing := [name for name in topics if not found.get(name)]:
            raise SourceError(
                f"{where} has no topic {', '.join(map(repr, missing))}, or the user of client= may not see it; it has "
                f"{shown(list(found))}"
            )
        return list(topics)


def _checked_format(owner: str, of: type[Any] | None, format: Format[Any] | None) -> Format[Any]:
    if format is None:
        return Json(of)
    if of is not None:
        raise FlowDefinitionError(f"{owner}: of= is for JSON; with format= leave it out")
    return checked_format(owner, "format", format, Json())


def _checked_key_format(owner: str, format: Format[Any] | None, *, messages: bool) -> Format[Any]:
    if format is not None and not messages:
        raise FlowDefinitionError(f"{owner}: key_format= needs messages=True, which keeps the keys")
    return checked_format(owner, "key_format", format, Raw())


def _checked_isolation(owner: str, isolation: object) -> str:
    if isolation not in get_args(Isolation):
        raise FlowDefinitionError(
            f"{owner}: isolation= must be 'read_committed' or 'read_uncommitted', not {shown(isolation)}"
        )
    return cast(str, isolation)
