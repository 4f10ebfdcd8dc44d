"""``Poster``: sends requests until the service has taken or refused them.

**Key.** Each request has an idempotency key in the header ``Idempotency-Key``, the same one in each attempt. A service
that honours it applies a request once, although an attempt whose answer was lost is followed by another one.

**Status.** 2xx is success. Busy servers and lost connections are attempted again (``client.py``). So is 409 after an
attempt whose answer was lost: the service still processes that one (draft-ietf-httpapi-idempotency-key-header).
408 and 5xx without 503 do not tell whether the service has the request, so they count as a lost answer, and so does a
run before a crash. A 409 that lasts for ``Reconnect.give_up_after`` is a refusal.

Statuses that are about the records (``ABOUT_RECORDS``) hand the request to ``on_refused``, if there is one. All others
fail: no record is the reason for wrong credentials or a wrong address.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from aflow.connect import SinkError
from aflow.errors import described, shown
from aflow_connectors.http.client import (
    LOST,
    Endpoint,
    check_busy,
    client_timeout,
    closed,
    is_busy,
    quoted,
    request,
    retry_after,
)
from aflow_connectors.http.requests import RefusedRequest, Request
from aflow_connectors.reconnect import Reconnect, Retries, ServerBusy

ABOUT_RECORDS: Final = frozenset({400, 406, 409, 413, 415, 422})
"""Statuses with which a service refuses what was sent."""

_CONFLICT: Final = 409


class _AnswerLost(ServerBusy):
    """The service may process the request, or may have taken it."""


class _RequestInProgress(ServerBusy):
    """The service answers 409 to a repeated request; the message has its answer."""


@dataclass(frozen=True)
class PostSettings:
    """The settings of all requests of a sink."""

    endpoint: Endpoint
    content_type: str
    timeout: float
    """Seconds."""
    reconnect: Reconnect
    on_refused: Callable[[RefusedRequest[Any]], Awaitable[None] | None] | None


class Poster:
    """Sends the requests of the sink named ``sink``. See the theory at the top of the module."""

    def __init__(self, sink: str, settings: PostSettings) -> None:
        self._place = f"sink {sink!r}, {settings.endpoint.place}"
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def send(self, key: str, sent: Request, *, repeated: bool = False) -> None:
        """Send a request. Return when the service has taken it, or ``on_refused`` has. Raises ``SinkError``.

        ``repeated`` is True if an earlier run may have sent it.
        """
        retries = Retries(self._place, self._settings.reconnect, lost=LOST, failed=SinkError)
        now = asyncio.get_running_loop().time
        #: Loop time of the first of consecutive answers that an earlier attempt is in progress; None without them.
        conflict_since: float | None = None

        async def attempt() -> None:
            nonlocal repeated, conflict_since
            try:
                await self._attempt(key, sent, repeated=repeated)
            except LOST as exc:
                repeated = repeated or type(exc) is not ServerBusy
                if not isinstance(exc, _RequestInProgress):
                    conflict_since = None
                elif conflict_since is None:
                    conflict_since = now()
                raise

        try:
            await retries.run(attempt)
        except SinkError as exc:
            bound, conflict = self._settings.reconnect.give_up_after, exc.__cause__
            if bound is None or conflict_since is None:
                raise
            if now() - conflict_since < bound.total_seconds():
                raise  # the service may still process it
            await self._refused(key, sent, _CONFLICT, str(conflict))

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        await closed(session)

    async def _attempt(self, key: str, sent: Request, *, repeated: bool) -> None:
        settings = self._settings
        if self._session is None:
            self._session = settings.endpoint.open_session()
        async with request(
            settings.endpoint,
            self._session,
            "POST",
            settings.endpoint.url,
            failed=SinkError,
            timeout=client_timeout(settings.timeout),
            body=sent.body,
            headers={"Content-Type": settings.content_type, "Idempotency-Key": key},
        ) as response:
            if 200 <= response.status < 300:
                await response.release()  # the connection is used again
                return
            text = await quoted(settings.endpoint, response)
            status = response.status
            if _is_outcome_unknown(status):
                raise _AnswerLost(f"status {text}", retry_after=retry_after(response.headers))
            check_busy(status, text, response.headers)
            if status == _CONFLICT and repeated:
                raise _RequestInProgress(text)
        await self._refused(key, sent, status, text)

    async def _refused(self, key: str, sent: Request, status: int, text: str) -> None:
        settings = self._settings
        if settings.on_refused is None or status not in ABOUT_RECORDS:
            hint = "check the address"
            if status in (401, 403):
                hint = "credentials are settings of client="
            elif status in ABOUT_RECORDS:
                hint = "on_refused= takes such requests, and the job continues"
            raise SinkError(
                f"{self._place} answers {text} to a request of {len(sent.body):,} bytes that begins with "
                f"{shown(sent.body[:100])}; {hint}"
            )
        refused = RefusedRequest(
            settings.endpoint.place,
            status,
            text,
            key,
            sent.body,
            settings.content_type,
            sent.records,
        )
        try:
            done = settings.on_refused(refused)
            if inspect.isawaitable(done):
                await done
        except Exception as exc:
            raise SinkError(f"{self._place}: on_refused= failed: {described(exc)}") from exc


def _is_outcome_unknown(status: int) -> bool:
    """Return True for statuses of servers that may have passed the request on, and then lost its answer."""
    return is_busy(status) and (status == 408 or (status >= 500 and status != 503))
