"""``RedisSource``: streams of a Redis server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_interval
from aflow_connectors.broker_arguments import (
    checked_ending,
    checked_idle_after,
    checked_names,
    checked_optional_name,
)
from aflow_connectors.formats import Format
from aflow_connectors.message import Message
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.redis.client import TIMEOUT, RedisLink, RedisServer
from aflow_connectors.redis.entry_format import EntryFormat
from aflow_connectors.redis.entry_ids import (
    LostEntries,
    StartEntry,
    checked_lost_entries,
    checked_start_entry,
)
from aflow_connectors.redis.shared_reader import SharedEntryReader
from aflow_connectors.redis.stream import (
    EntryReader,
    GroupedEntryReader,
    GroupSharing,
    StreamSettings,
)
from aflow_connectors.redis.stream_names import stream_names

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_DISCOVER_EVERY: Final = timedelta(minutes=1)
_IDLE_AFTER: Final = timedelta(seconds=5)
_PREFETCH: Final = 10_000
_MOST_PREFETCH: Final = 65_535


class RedisSourceOptions(TypedDict, total=False):
    """The arguments of ``RedisSource`` that have no influence on the type of its records."""

    start: StartEntry
    dead_letters: Tag[BadRecord] | None
    discover_every: timedelta | None
    reconnect: Reconnect
    until: Literal["now"] | None
    idle_after: timedelta | None
    on_lost_entries: LostEntries
    group: str | None
    consumer: str | None
    prefetch: int | None
    claim_after: timedelta | None
    field: str
    key_field: str
    timeout: timedelta
    client: Mapping[str, object] | None


class RedisSource(Source[T]):
    """Read the entries of ``streams``: names, or a compiled regular expression that matches whole names.

    ``url`` is like "redis://user:password@host:6379/0"; "rediss" for TLS, "unix" for a socket. The fields of an entry
    are a dict of text, or a record of type ``of``, to whose types the text is converted. With a ``format``, the field
    named ``field`` has the encoded record. With ``messages=True`` the records are ``Message`` with timestamp and id;
    with a ``format`` also with the key in ``key_field`` (by ``key_format``; bytes by default), and all other fields
    as headers. The time in the id of an entry is its event time.

    Each stream is a split; its position is the id of the last entry, so records are neither lost nor repeated after a
    restart. ``start`` is "earliest" (the default), "latest", a datetime, or the first ids by stream; it counts for
    streams without a checkpoint. Streams that are found later (``discover_every``) are read from their first entry.
    ``until="now"`` ends each stream at the end that it has when it is opened.

    If entries were trimmed before they were read, or the server has lost data, ``on_lost_entries`` decides: "fail" (the
    default) raises ``SourceError``, the others continue at the "earliest" or "latest" entry and log a warning.

    ``group`` sets the last id of this consumer group after completed checkpoints, for monitoring only. With
    ``consumer`` as well, the group shares the entries: each new one is read by one of its consumers, at least once.
    Entries are acknowledged once a checkpoint covers them, and at most ``prefetch`` of a stream (10,000) wait for it.
    Those that another consumer has not acknowledged for ``claim_after`` are read as well (None, the default: never);
    choose it longer than any interval of checkpoints and any restart. Such a source needs checkpoints. A stream that
    has been at its end for ``idle_after`` does not hold event time back. A server that does not answer for ``timeout``
    is away. ``client`` are settings of ``redis.asyncio.Redis``. Wrong credentials and unknown streams raise
    ``SourceError`` at once, while a lost connection is renewed (``reconnect``). Needs Redis 7 or newer, not a cluster.
    """

    concurrency = None

    @overload
    def __init__(
        self: RedisSource[dict[str, str]],
        url: str,
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        messages: Literal[False] = False,
        **options: Unpack[RedisSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RedisSource[V],
        url: str,
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[V],
        messages: Literal[False] = False,
        **options: Unpack[RedisSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RedisSource[V],
        url: str,
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        format: Format[V],
        messages: Literal[False] = False,
        **options: Unpack[RedisSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RedisSource[Message[bytes, dict[str, str]]],
        url: str,
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        messages: Literal[True],
        **options: Unpack[RedisSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RedisSource[Message[bytes, V]],
        url: str,
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[V],
        messages: Literal[True],
        **options: Unpack[RedisSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RedisSource[Message[bytes, V]],
        url: str,
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        format: Format[V],
        messages: Literal[True],
        **options: Unpack[RedisSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: RedisSource[Message[K, V]],
        url: str,
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        format: Format[V],
        messages: Literal[True],
        key_format: Format[K],
        **options: Unpack[RedisSourceOptions],
    ) -> None: ...

    def __init__(
        self,
        url: str,
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        messages: bool = False,
        key_format: Format[Any] | None = None,
        start: StartEntry = "earliest",
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = _DISCOVER_EVERY,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        until: Literal["now"] | None = None,
        idle_after: timedelta | None = _IDLE_AFTER,
        on_lost_entries: LostEntries = "fail",
        group: str | None = None,
        consumer: str | None = None,
        prefetch: int | None = None,
        claim_after: timedelta | None = None,
        field: str = "value",
        key_field: str = "key",
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "RedisSource"
        checked_interval(owner, discover_every)
        self._format = EntryFormat.checked(
            owner,
            of=of,
            format=format,
            key_format=key_format,
            messages=messages,
            dead_letters=dead_letters,
            field=field,
            key_field=key_field,
        )
        self.dead_letters = dead_letters
        self.bounded = checked_ending(owner, until)
        self.discover_every = None if self.bounded else discover_every
        self._streams = checked_names(owner, "streams", streams)
        self._settings = StreamSettings(
            RedisServer(owner, url, client, reconnect, timeout),
            checked_start_entry(owner, start),
            self.bounded,
            checked_idle_after(owner, idle_after),
            checked_lost_entries(owner, on_lost_entries),
            checked_optional_name(owner, "group", group),
            _checked_sharing(owner, group, consumer, prefetch, claim_after),
        )
        if consumer is not None:
            self.needs_checkpoints = True
            self.repeats_records = True
            # Entries of before, and of other consumers, may be in another order.
            self.divides_chunks = False
        #: The streams of the first call of ``splits``; the later ones are new.
        self._first: frozenset[str] | None = None

    async def splits(self) -> Sequence[Split]:
        names = await stream_names(
            self._settings.server, self._streams, waits=self.discover_every is not None
        )
        if self._first is None:
            self._first = frozenset(names)
        return [Split(name) for name in names]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        settings, stream = self._settings, split.id
        link = RedisLink(
            settings.server, f"stream {stream!r}", SourceError, as_text=self._format.as_text
        )
        decoder = self._format.decoder(stream)
        reader: EntryReader[T] | SharedEntryReader[T]
        try:
            if settings.sharing is not None:
                reader = SharedEntryReader[T](settings, stream, link, decoder, position)
            elif settings.group is not None:
                reader = GroupedEntryReader[T](settings, stream, link, decoder, position)
            else:
                reader = EntryReader[T](settings, stream, link, decoder, position)
            await reader.open(later=self._first is not None and stream not in self._first)
        except BaseException:
            await link.close()
            raise
        return reader

    async def on_job_end(self) -> None:
        self._first = None


def _checked_sharing(
    owner: str,
    group: str | None,
    consumer: object,
    prefetch: object,
    claim_after: object,
) -> GroupSharing | None:
    """Return the settings of sharing; None without ``consumer``. Raises ``FlowDefinitionError``."""
    name = checked_optional_name(owner, "consumer", consumer)
    if name is None:
        if prefetch is not None or claim_after is not None:
            raise FlowDefinitionError(
                f"{owner}: prefetch= and claim_after= need consumer=, the name of a consumer of the group"
            )
        return None
    if group is None:
        raise FlowDefinitionError(
            f"{owner}: consumer= needs group=, the consumer group that shares the entries"
        )
    if prefetch is None:
        prefetch = _PREFETCH
    if type(prefetch) is not int or not 1 <= prefetch <= _MOST_PREFETCH:
        raise FlowDefinitionError(
            f"{owner}: prefetch= must be a number from 1 to {_MOST_PREFETCH:,}, not {shown(prefetch)}"
        )
    if claim_after is None:
        return GroupSharing(name, prefetch, None)
    if not isinstance(claim_after, timedelta) or claim_after <= timedelta(0):
        raise FlowDefinitionError(
            f"{owner}: claim_after= must be a positive timedelta or None, not {shown(claim_after)}"
        )
    return GroupSharing(name, prefetch, claim_after.total_seconds())
