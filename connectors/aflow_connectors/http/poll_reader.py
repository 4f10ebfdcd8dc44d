"""``PollReader``: repeats a GET, and knows which records of the responses are new.

**Position.** The cursor of the request, the number of entries of its response that were emitted, and the validators
(``ETag``, ``Last-Modified``) of that response.

**With a cursor function**, the address of a cursor is a list that grows at its end, until the function returns another
cursor. A response is read from the entry after the last emitted one. Once all are emitted, the function is asked for
the next cursor. As long as it is new, the following page is requested at once; else the same one after ``every``.

**Without one**, each response with other validators, or without any, is a new list, and is emitted as a whole. A job
that restarts in the middle of such a list continues there if the validators are still the same, or if there are none
and the list is not shorter than what was emitted. Else it emits the new one.

**Without the list**, a response is one bad record, and the position does not change: the next request is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeAlias, TypeGuard, TypeVar, cast

import aiohttp
from yarl import URL

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow.errors import described, shown
from aflow_connectors.http.client import (
    Endpoint,
    body_of,
    check_status,
    client_timeout,
    closed,
    joined_headers,
    place_of,
    request,
)
from aflow_connectors.http.pages import HttpPage, PageDecoder, PageRecords
from aflow_connectors.reconnect import Retries

T = TypeVar("T")

Cursor: TypeAlias = str | Mapping[str, str | int | float]
"""An address, absolute or relative to that of the source, or parameters of its query."""

CursorOf: TypeAlias = Callable[[HttpPage[T]], Cursor | None]
"""Maps a response with entries to the cursor of the following one; None if there is none yet."""


@dataclass(frozen=True)
class PollSettings:
    """The settings of a source."""

    endpoint: Endpoint
    start: Cursor | None
    every: float
    """Seconds."""
    cursor_of: CursorOf[Any] | None
    ends_now: bool
    timeout: float
    """Seconds."""
    max_bytes: int


@dataclass(frozen=True, slots=True)
class PollPosition:
    """See "Position" at the top of the module. ``whole`` is True once all entries of the response were emitted."""

    cursor: Cursor | None
    emitted: int = 0
    etag: str | None = None
    modified: str | None = None
    whole: bool = False

    def stored(self) -> Position:
        """Return it as plain data."""
        cursor = dict(self.cursor) if isinstance(self.cursor, Mapping) else self.cursor
        return {
            "cursor": cursor,
            "emitted": self.emitted,
            "etag": self.etag,
            "modified": self.modified,
            "whole": self.whole,
        }

    @property
    def has_validators(self) -> bool:
        """True if the response had an ``ETag`` or ``Last-Modified``."""
        return self.etag is not None or self.modified is not None

    def is_of_the_response_of(self, other: PollPosition) -> bool:
        """Return True if the validators say that both are positions of the same response."""
        if self.etag is None and other.etag is None:
            return self.modified is not None and self.modified == other.modified
        return self.etag == other.etag


class PollReader(Reader[T], Generic[T]):
    """See the theory at the top of the module."""

    def __init__(
        self,
        settings: PollSettings,
        decoder: PageDecoder,
        retries: Retries,
        position: Position | None,
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._retries = retries
        self._at = (
            PollPosition(settings.start)
            if position is None
            else _decoded(position, settings.endpoint.place)
        )
        self._session: aiohttp.ClientSession | None = None
        #: The response that is being emitted, its entries, and the number of those that were emitted; or None.
        self._page: HttpPage[Any] | None = None
        self._entries = PageRecords(0, [], None, [])
        #: Loop time of the next request.
        self._due = 0.0
        # A source that reads a single list may be restored after its end.
        self._has_ended = settings.ends_now and settings.cursor_of is None and self._at.whole
        #: True if the last chunk said so.
        self._is_idle = False

    async def read(self, limit: int) -> Chunk[T] | None:
        loop = asyncio.get_running_loop()
        while True:
            if self._page is not None:
                self._is_idle = False
                return self._chunk(limit)
            if self._has_ended:
                return None
            # Only a source that waits is idle: the next page of a list is requested at once.
            if loop.time() < self._due and not self._is_idle:
                self._is_idle = True
                return Chunk([], self._at.stored(), idle=True)
            await asyncio.sleep(max(0.0, self._due - loop.time()))
            await self._retries.run(self._poll)

    async def close(self) -> None:
        session, self._session = self._session, None
        await closed(session)

    # ------------------------------------------------------------------------------------------------- requests

    async def _poll(self) -> None:
        """Request the response of the cursor, and keep it if it has new entries."""
        settings, at = self._settings, self._at
        if self._session is None:
            self._session = settings.endpoint.open_session()
        url = self._url()
        async with request(
            settings.endpoint,
            self._session,
            "GET",
            url,
            failed=SourceError,
            timeout=client_timeout(settings.timeout),
            headers=_conditions(at) if at.whole else None,
        ) as response:
            await check_status(settings.endpoint, response, SourceError)
            headers = joined_headers(response.headers)
            if response.status in (204, 304):
                self._wait()
                return
            body = await body_of(settings.endpoint, response, settings.max_bytes, SourceError)
        entries = await self._decoder.decode(body)
        # No await from here on, so that a cancelled read has either the whole response or nothing of it.
        self._entries = entries
        if entries.rejected and not entries.count:  # without the list
            self._page = HttpPage(entries.values, url, headers, body)
            return
        new = replace(at, etag=headers.get("etag"), modified=headers.get("last-modified"))
        new = replace(new, emitted=self._emitted_of(at, new, entries.count), whole=False)
        self._at = new
        if entries.count > new.emitted:
            self._page = HttpPage(entries.values, url, headers, body)
        else:
            self._at = replace(new, whole=True)
            self._wait()

    def _emitted_of(self, before: PollPosition, now: PollPosition, count: int) -> int:
        """Return the number of entries, of the ``count`` of the new response, that were emitted earlier."""
        if self._settings.cursor_of is not None:
            return before.emitted
        if not (before.has_validators or now.has_validators):
            is_same = not before.whole and before.emitted <= count
        else:
            is_same = before.is_of_the_response_of(now)
        return before.emitted if is_same else 0

    def _url(self) -> str:
        endpoint, cursor = self._settings.endpoint, self._at.cursor
        if cursor is None:
            return endpoint.url
        if isinstance(cursor, str):
            try:
                return endpoint.joined(cursor)
            except ValueError:
                raise SourceError(
                    f"{endpoint.place}: the cursor {shown(place_of(cursor))} is no address of the same scheme, host "
                    f"and port, to which alone the headers of client= may be sent"
                ) from None
        return str(URL(endpoint.url).update_query(dict(cursor)))

    def _wait(self) -> None:
        self._due = asyncio.get_running_loop().time() + self._settings.every
        self._has_ended = self._settings.ends_now

    # --------------------------------------------------------------------------------------------------- chunks

    def _chunk(self, limit: int) -> Chunk[T]:
        entries, start = self._entries, self._at.emitted
        if not entries.count:  # without the list: the position is that of the last list
            self._page = None
            self._wait()
            rejected = [bad for _, bad in entries.rejected]
            return Chunk([], self._at.stored(), rejected=rejected)
        stop = min(entries.count, start + limit)
        values, rejected = entries.between(start, stop)
        self._at = replace(self._at, emitted=stop)
        if stop >= entries.count:
            self._finish_page()
        return Chunk(cast("list[T]", values), self._at.stored(), rejected=rejected)

    def _finish_page(self) -> None:
        page, self._page = self._page, None
        assert page is not None
        self._at = replace(self._at, whole=True)
        following = self._following(page) if self._entries.count else None
        if following is None or following == self._at.cursor:
            self._wait()
        else:
            self._at = PollPosition(following)
            self._due = 0.0

    def _following(self, page: HttpPage[Any]) -> Cursor | None:
        cursor_of, place = self._settings.cursor_of, self._settings.endpoint.place
        if cursor_of is None:
            return None
        try:
            found: object = cursor_of(page)
        except Exception as exc:
            raise SourceError(f"{place}: cursor= failed: {described(exc)}") from exc
        if not is_cursor(found):
            raise SourceError(
                f"{place}: cursor= must return an address, parameters of the query, or None, not {shown(found)}"
            )
        return found


def is_cursor(value: object) -> TypeGuard[Cursor | None]:
    """Return True for a ``Cursor`` and for None."""
    if value is None or (isinstance(value, str) and value):
        return True
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(one, (str, int, float)) and not isinstance(one, bool)
        for name, one in cast("Mapping[object, object]", value).items()
    )


_FIELDS: Final = {"cursor", "emitted", "etag", "modified", "whole"}


def _decoded(position: Position, place: str) -> PollPosition:
    stored: dict[str, Any] = position if _is_dict(position) else {}
    if set(stored) == _FIELDS and is_cursor(stored["cursor"]) and stored["emitted"] >= 0:
        return PollPosition(**stored)
    raise SourceError(
        f"{place} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
    )


def _is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _conditions(at: PollPosition) -> dict[str, str]:
    conditions = {"If-None-Match": at.etag, "If-Modified-Since": at.modified}
    return {name: value for name, value in conditions.items() if value is not None}
