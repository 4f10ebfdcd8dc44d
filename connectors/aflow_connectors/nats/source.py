"""``NatsSource``: streams of NATS JetStream."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
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
from aflow_connectors.formats import Format, Json, Text
from aflow_connectors.message import Message
from aflow_connectors.messages import MessageDecoder
from aflow_connectors.nats.client import TIMEOUT, JetStreamError, NatsLink, NatsServers
from aflow_connectors.nats.stream import (
    ConsumerSettings,
    JetStreamReader,
    LostMessages,
    StartSequence,
)
from aflow_connectors.reconnect import Reconnect

V = TypeVar("V")
T = TypeVar("T")

_DISCOVER_EVERY: Final = timedelta(minutes=1)
_IDLE_AFTER: Final = timedelta(seconds=5)


class NatsSourceOptions(TypedDict, total=False):
    """The arguments of ``NatsSource`` that have no influence on the type of its records."""

    start: StartSequence
    dead_letters: Tag[BadRecord] | None
    discover_every: timedelta | None
    reconnect: Reconnect
    until: Literal["now"] | None
    idle_after: timedelta | None
    on_lost_messages: LostMessages
    subject: str | None
    timeout: timedelta
    client: Mapping[str, object] | None


class NatsSource(Source[T]):
    """Read the messages of ``streams``: names, or a compiled regular expression that matches whole names.

    ``servers`` are like "nats://user:password@host:4222", several in a list or with commas. Values are JSON, decoded as
    ``of``, or in another ``format``. With ``messages=True`` the records are ``Message``, with the subject as key,
    headers, timestamp and sequence. The timestamp of each message is its event time. ``subject`` is a filter, which may
    have wildcards.

    Each stream is a split; its position is the sequence of the last message, so records are neither lost nor repeated
    after a restart. ``start`` is "earliest" (the default), "latest", a datetime, or the first sequences by stream; it
    counts for streams without a checkpoint. Streams that are found later (``discover_every``) are read from their first
    message. ``until="now"`` ends each stream at the end that it has when it is opened.

    If messages were discarded before they were read, or the server has lost data, ``on_lost_messages`` decides: "fail"
    (the default) raises ``SourceError``, the others continue at the "earliest" or "latest" message and log a warning.

    A stream that has been at its end for ``idle_after`` does not hold event time back. A server that does not answer
    for ``timeout`` is away. ``client`` are arguments of ``nats.connect``, as for TLS and credentials. Wrong credentials
    and unknown streams raise ``SourceError`` at once, while a lost connection is renewed (``reconnect``).
    """

    concurrency = None

    @overload
    def __init__(
        self: NatsSource[Any],
        servers: str | Sequence[str],
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        messages: Literal[False] = False,
        **options: Unpack[NatsSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: NatsSource[V],
        servers: str | Sequence[str],
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[V],
        messages: Literal[False] = False,
        **options: Unpack[NatsSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: NatsSource[V],
        servers: str | Sequence[str],
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        format: Format[V],
        messages: Literal[False] = False,
        **options: Unpack[NatsSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: NatsSource[Message[str, V]],
        servers: str | Sequence[str],
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[V],
        messages: Literal[True],
        **options: Unpack[NatsSourceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: NatsSource[Message[str, V]],
        servers: str | Sequence[str],
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        format: Format[V],
        messages: Literal[True],
        **options: Unpack[NatsSourceOptions],
    ) -> None: ...

    def __init__(
        self,
        servers: str | Sequence[str],
        streams: str | Sequence[str] | re.Pattern[str],
        *,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        messages: bool = False,
        start: StartSequence = "earliest",
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = _DISCOVER_EVERY,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        until: Literal["now"] | None = None,
        idle_after: timedelta | None = _IDLE_AFTER,
        on_lost_messages: LostMessages = "fail",
        subject: str | None = None,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "NatsSource"
        checked_dead_letters(owner, dead_letters)
        checked_interval(owner, discover_every)
        if of is not None and format is not None:
            raise FlowDefinitionError(f"{owner}: of= is for JSON; with format= leave it out")
        self.dead_letters = dead_letters
        self.bounded = checked_ending(owner, until)
        self.discover_every = None if self.bounded else discover_every
        self._streams = checked_names(owner, "streams", streams)
        self._format = (
            Json(of) if format is None else checked_format(owner, "format", format, Json())
        )
        self._messages = messages
        self._settings = ConsumerSettings(
            NatsServers(owner, servers, client, reconnect, timeout),
            checked_optional_name(owner, "subject", subject),
            _checked_start(owner, start),
            self.bounded,
            checked_idle_after(owner, idle_after),
            _checked_policy(owner, on_lost_messages),
        )
        #: The streams of the first call of ``splits``; the later ones are new.
        self._first: frozenset[str] | None = None

    async def splits(self) -> Sequence[Split]:
        link = NatsLink(self._settings.servers, "streams", SourceError)
        try:
            names = self._named(await _all_streams(link), link)
        finally:
            await link.close()
        if self._first is None:
            self._first = frozenset(names)
        return [Split(name) for name in names]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        settings, stream = self._settings, split.id
        link = NatsLink(settings.servers, f"stream {stream!r}", SourceError)
        decoder = MessageDecoder[T](
            stream,
            self._format,
            key_format=Text(),
            messages=self._messages,
            dead_letters=self.dead_letters,
            unit="message",
        )
        try:
            reader = JetStreamReader(settings, stream, link, decoder, position)
            await reader.open(later=self._first is not None and stream not in self._first)
        except BaseException:
            await link.close()
            raise
        return reader

    async def on_job_end(self) -> None:
        self._first = None

    def _named(self, found: Sequence[str], link: NatsLink) -> list[str]:
        """Return the streams to read. Raises ``SourceError`` if one of them, or each, is missing."""
        streams = self._streams
        if isinstance(streams, re.Pattern):
            names = [name for name in found if streams.fullmatch(name)]
            if not names and self.discover_every is None:
                raise link.error(
                    f"it has no stream that matches {streams.pattern!r}; it has {shown(list(found))}. With "
                    f"discover_every the source waits for one"
                )
            return names
        if missing := [name for name in streams if name not in found]:
            raise link.error(
                f"it has no stream {', '.join(map(repr, missing))}; it has {shown(list(found))}"
            )
        return list(streams)


async def _all_streams(link: NatsLink) -> list[str]:
    """Return the names of all streams."""
    names: list[str] = []
    while True:
        try:
            answer = await link.request("STREAM.NAMES", {"offset": len(names)})
        except JetStreamError as exc:
            raise link.error(f"its streams cannot be listed: {exc}") from exc
        page = cast("list[str] | None", answer.get("streams")) or []
        names += page
        if not page or len(names) >= int(answer["total"]):
            return sorted(names)


def _checked_start(owner: str, start: StartSequence) -> StartSequence:
    if isinstance(start, str) and start in ("earliest", "latest"):
        return start
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise FlowDefinitionError(
                f"{owner}: start= must be a datetime with a time zone, not {start}"
            )
        return start
    if isinstance(start, Mapping) and start:
        given = cast("Mapping[object, object]", start)
        if all(isinstance(name, str) for name in given) and all(
            type(sequence) is int and sequence > 0 for sequence in given.values()
        ):
            return cast("Mapping[str, int]", dict(given))
    raise FlowDefinitionError(
        f"{owner}: start= must be 'earliest', 'latest', a datetime with a time zone, or a dict of sequences like "
        f"{{'orders': 1000}}, not {shown(start)}"
    )


def _checked_policy(owner: str, policy: object) -> LostMessages:
    if policy not in get_args(LostMessages):
        raise FlowDefinitionError(
            f"{owner}: on_lost_messages= must be 'fail', 'earliest' or 'latest', not {shown(policy)}"
        )
    return cast(LostMessages, policy)
