"""``Poster``: sends requests until the service has taken or refused them.

**Key.** Each request has an idempotency key in the header ``Idempotency-Key``, the same one in each attempt. A service
that honours it applies a request once, although an attempt whose answer was lost is followed by another one.

**Status.** 2xx is success. Busy servers and lost connections are attempted again (``client.py``). So is 409 after an
attempt whose answer was lost: the service still processes that one (draft-ietf-httpapi-idempotency-key-header).
Statuses that are about the records (``ABOUT_RECORDS``) hand the request to ``on_refused``, if there is one. All others
fail: no record is the reason for wrong credentials or a wrong address.
"""

from __future__ import annotations

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
    quoted,
    request,
)
from aflow_connectors.http.requests import RefusedRequest, Request
from aflow_connectors.reconnect import Reconnect, Retries, ServerBusy

ABOUT_RECORDS: Final = frozenset({400, 406, 409, 413, 415, 422})
"""Statuses with which a service refuses what was sent."""

_CONFLICT: Final = 409


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

    async def send(self, key: str, sent: Request) -> None:
        """Send a request. Return when the service has taken it, or ``on_refused`` has. Raises ``SinkError``."""
        retries = Retries(self._place, self._settings.reconnect, lost=LOST, failed=SinkError)
        #: Attempts whose answer was lost.
        unknown: list[BaseException] = []

        async def attempt() -> None:
            try:
                await self._attempt(key, sent, repeated=bool(unknown))
            except ServerBusy:
                raise
            except LOST as exc:
                unknown.append(exc)
                raise

        await retries.run(attempt)

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
            check_busy(response.status, text, response.headers)
            if response.status == _CONFLICT and repeated:
                raise ServerBusy(f"status {text}")
            status = response.status
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
