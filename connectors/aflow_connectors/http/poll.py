"""``HttpPoll``: a list of records at an address, requested repeatedly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_dead_letters
from aflow_connectors.formats import Format
from aflow_connectors.http.arguments import (
    checked_count,
    checked_format,
    checked_function,
    checked_seconds,
)
from aflow_connectors.http.client import LOST, endpoint_of
from aflow_connectors.http.pages import PageDecoder, checked_records_path
from aflow_connectors.http.poll_reader import (
    Cursor,
    CursorOf,
    PollReader,
    PollSettings,
    is_cursor,
)
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")
V = TypeVar("V")

_EVERY: Final = timedelta(minutes=1)
_TIMEOUT: Final = timedelta(seconds=30)


class PollOptions(TypedDict, total=False):
    """The arguments of ``HttpPoll`` that have no influence on the type of its records."""

    start: Cursor | None
    dead_letters: Tag[BadRecord] | None
    reconnect: Reconnect
    every: timedelta
    records: str | Sequence[str] | None
    until: Literal["now"] | None
    timeout: timedelta
    max_bytes: int
    client: Mapping[str, object] | None


class HttpPoll(Source[T]):
    """Request ``url`` every ``every`` (1 minute), and read the list of records in each new response.

    The list is at the path ``records`` of the JSON, like "data.items"; by default the body is the list. Records are
    decoded as ``of``, or in another ``format``, which gets the JSON of each.

    ``cursor`` maps a response with entries (``HttpPage``) to what the following request needs: an address of the same
    origin, as ``page.link("next")`` returns, parameters of the query, or None at the present end. Following pages are
    requested at once until one has no entries or the cursor stays the same. The records at one cursor may only grow
    at their end. Without ``cursor`` each response is emitted as a whole unless the service says by ``ETag`` or
    ``Last-Modified`` that it has not changed. ``start`` is the first cursor. ``until="now"`` ends the source at the
    present end.

    The cursor is in the checkpoint, so each record is read again after a crash, or never if its result was
    committed, as far as the service repeats its answers. A request takes ``timeout`` (30 seconds) at most and a
    response has ``max_bytes`` (64 MiB) at most. Busy servers (429, 5xx) and lost connections are repeated
    (``reconnect``), not before ``Retry-After``; other statuses raise ``SourceError``. ``client`` are settings of
    ``aiohttp.ClientSession`` such as ``headers`` and ``auth``, and ``ssl``.
    """

    @overload
    def __init__(
        self: HttpPoll[Any],
        url: str,
        *,
        cursor: CursorOf[Any] | None = None,
        **options: Unpack[PollOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: HttpPoll[V],
        url: str,
        *,
        of: type[V],
        cursor: CursorOf[V] | None = None,
        **options: Unpack[PollOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: HttpPoll[V],
        url: str,
        *,
        format: Format[V],
        cursor: CursorOf[V] | None = None,
        **options: Unpack[PollOptions],
    ) -> None: ...

    def __init__(
        self,
        url: str,
        *,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        start: Cursor | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        every: timedelta = _EVERY,
        records: str | Sequence[str] | None = None,
        cursor: CursorOf[Any] | None = None,
        until: Literal["now"] | None = None,
        timeout: timedelta = _TIMEOUT,
        max_bytes: int = 64 << 20,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "HttpPoll"
        checked_dead_letters(owner, dead_letters)
        if until not in (None, "now"):
            raise FlowDefinitionError(f"{owner}: until= must be 'now' or None, not {shown(until)}")
        if not is_cursor(start):
            raise FlowDefinitionError(
                f"{owner}: start= must be an address or parameters of the query, not {shown(start)}"
            )
        self.dead_letters = dead_letters
        self.bounded = until == "now"
        self._format = checked_format(owner, of, format)
        self._path = checked_records_path(owner, records)
        self._reconnect = checked_reconnect(owner, reconnect)
        self._settings = PollSettings(
            endpoint_of(owner, url, client),
            start,
            checked_seconds(owner, "every", every),
            checked_function(owner, "cursor", cursor),
            self.bounded,
            checked_seconds(owner, "timeout", timeout),
            checked_count(owner, "max_bytes", max_bytes),
        )

    async def splits(self) -> Sequence[Split]:
        return [Split("url")]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        place = self._settings.endpoint.place
        decoder = PageDecoder(place, self._format, self._path, self.dead_letters)
        retries = Retries(place, self._reconnect, lost=LOST, failed=SourceError)
        return PollReader(self._settings, decoder, retries, position)
