"""``RedisSource``: streams of a Redis server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

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
from aflow_connectors.formats import Format, Raw
from aflow_connectors.message import Message
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.redis.arguments import checked_field, checked_fields_type
from aflow_connectors.redis.client import TIMEOUT, RedisLink, RedisServer
from aflow_connectors.redis.entries import FieldsDecoder, PayloadDecoder
from aflow_connectors.redis.entry_ids import (
    LostEntries,
    StartEntry,
    checked_lost_entries,
    checked_start_entry,
)
from aflow_connectors.redis.stream import (
    EntriesDecoder,
    EntryReader,
    GroupedEntryReader,
    StreamSettings,
)

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_DISCOVER_EVERY: Final = timedelta(minutes=1)
_IDLE_AFTER: Final = timedelta(seconds=5)


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

    ``group`` sets the last id of this consumer group after completed checkpoints, for monitoring only. A stream that
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
        field: str = "value",
        key_field: str = "key",
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "RedisSource"
        checked_dead_letters(owner, dead_letters)
        checked_interval(owner, discover_every)
        if key_format is not None and (format is None or not messages):
            raise FlowDefinitionError(
                f"{owner}: key_format= needs format= and messages=True, which keeps the keys"
            )
        self.dead_letters = dead_letters
        self.bounded = checked_ending(owner, until)
        self.discover_every = None if self.bounded else discover_every
        self._streams = checked_names(owner, "streams", streams)
        self._of = checked_fields_type(owner, of, format)
        self._format = None if format is None else checked_format(owner, "format", format, Raw())
        self._key_format = checked_format(owner, "key_format", key_format, Raw())
        self._messages = messages
        self._field = checked_field(owner, "field", field)
        self._key_field = checked_field(owner, "key_field", key_field)
        self._settings = StreamSettings(
            RedisServer(owner, url, client, reconnect, timeout),
            checked_start_entry(owner, start),
            self.bounded,
            checked_idle_after(owner, idle_after),
            checked_lost_entries(owner, on_lost_entries),
            checked_optional_name(owner, "group", group),
        )
        #: The streams of the first call of ``splits``; the later ones are new.
        self._first: frozenset[str] | None = None

    async def splits(self) -> Sequence[Split]:
        link = RedisLink(self._settings.server, "streams", SourceError, as_text=True)
        try:
            await link.check()
            names = await self._named(link)
        finally:
            await link.close()
        if self._first is None:
            self._first = frozenset(names)
        return [Split(name) for name in names]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        settings, stream = self._settings, split.id
        link = RedisLink(
            settings.server, f"stream {stream!r}", SourceError, as_text=self._format is None
        )
        kind = EntryReader[T] if settings.group is None else GroupedEntryReader[T]
        try:
            reader = kind(settings, stream, link, self._decoder(stream), position)
            await reader.open(later=self._first is not None and stream not in self._first)
        except BaseException:
            await link.close()
            raise
        return reader

    async def on_job_end(self) -> None:
        self._first = None

    def _decoder(self, stream: str) -> EntriesDecoder:
        if self._format is None:
            return FieldsDecoder[T](
                stream, self._of, messages=self._messages, dead_letters=self.dead_letters
            )
        return PayloadDecoder[T](
            stream,
            self._format,
            key_format=self._key_format,
            messages=self._messages,
            value_field=self._field,
            key_field=self._key_field,
            dead_letters=self.dead_letters,
        )

    async def _named(self, link: RedisLink) -> list[str]:
        """Return the streams to read. Raises ``SourceError`` if one of them, or each, is missing."""
        streams = self._streams
        if isinstance(streams, re.Pattern):
            found = await _all_streams(link)
            names = [name for name in found if streams.fullmatch(name)]
            if not names and self.discover_every is None:
                raise link.error(
                    f"it has no stream that matches {streams.pattern!r}; it has {shown(found)}. With discover_every "
                    f"the source waits for one"
                )
            return names
        for name in streams:
            kind = await link.command("TYPE", name)
            if kind == "none":
                raise link.error(
                    f"it has no stream {name!r}; create it first, or use a regular expression, which waits for it"
                )
            if kind != "stream":
                raise link.error(f"the key {name!r} is a {kind}, not a stream")
        return list(streams)


async def _all_streams(link: RedisLink) -> list[str]:
    """Return the names of all streams. The server looks at all its keys for it, some at a time."""
    found: set[str] = set()
    cursor: Any = 0
    while True:
        cursor, names = await link.command("SCAN", cursor, "TYPE", "stream", "COUNT", 1000)
        found.update(names)
        if not int(cursor):
            # A name that is not UTF-8 cannot be the id of a split.
            return sorted(name for name in found if name.isascii() or _is_text(name))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
