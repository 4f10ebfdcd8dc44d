"""The adapter to ``aiohttp``: settings of users, redirects, and the meaning of each status.

**Status.** 2xx and 304 are answers. 408, 425, 429 and 5xx without 501 and 505 mean a server that is busy or about to be
back: the request is repeated, not before ``Retry-After``. All others, such as 401 and 404, fail at once.

**Redirects.** They are followed within the origin (scheme, host and port), since headers with credentials must not
reach another one. A redirect to another origin is an error that names it.

**Secrets.** Credentials are settings of the client. A URL with a user name is refused. Messages have the URL without
its query, and where they quote the server, values of headers and cookies, and passwords, are replaced.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookies import Morsel
from inspect import signature
from io import BytesIO
from typing import Any, Final, cast
from urllib.parse import urljoin

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from aflow.connect import ConnectorError, SourceError
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.reconnect import ServerBusy

LOST: Final[tuple[type[BaseException], ...]] = (
    ServerBusy,
    aiohttp.ClientConnectionError,
    aiohttp.ClientPayloadError,
    TimeoutError,
    ConnectionError,
)
"""Errors that mean a lost connection, or a server that is about to be back."""

#: Statuses of servers that are busy or about to be back, beside 5xx.
_BUSY: Final = frozenset({408, 425, 429})
#: Statuses above 500 that no repetition changes.
_FINAL: Final = frozenset({501, 505})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: Redirects that keep the method and the body.
_KEEPING: Final = frozenset({307, 308})
_MOST_REDIRECTS: Final = 10

#: Settings that the connector chooses, or that have an argument of their own.
_RESERVED: Final = frozenset(
    {
        "base_url",
        "connector",
        "connector_owner",
        "loop",
        "json_serialize",
        "json_serialize_bytes",
        "raise_for_status",
        "read_timeout",
        "conn_timeout",
        "timeout",
        "request_class",
        "response_class",
        "ws_response_class",
        "auto_decompress",
        "fallback_charset_resolver",
    }
)

#: Bytes of a body that are sent at once, at most.
_PIECE: Final = 1 << 18

#: Digits of a delay; one of more is invalid.
_MOST_DIGITS: Final = 10

#: Characters of the body of an error in its message, at most.
_QUOTED: Final = 200


@dataclass(frozen=True)
class Endpoint:
    """A URL, and the settings of its client, which may contain secrets and are in no message."""

    url: str
    settings: Mapping[str, Any] = field(repr=False)
    place: str
    """The URL without its query, for messages."""

    def open_session(self, *, refuses_redirects: bool = False) -> aiohttp.ClientSession:
        """Return a client, which the caller closes.

        ``refuses_redirects`` raises ``SourceError`` for each redirect that the client would follow by itself.
        """
        settings = dict(self.settings)
        ssl = settings.pop("ssl", True)
        if refuses_redirects:
            traces = aiohttp.TraceConfig()
            traces.on_request_redirect.append(self._refuse_redirect)
            settings["trace_configs"] = [*(settings.get("trace_configs") or ()), traces]
        # One connector for each reader and writer: no shared limit, which would delay one because of another.
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=ssl, limit=0), **settings)

    async def _refuse_redirect(
        self,
        session: aiohttp.ClientSession,
        context: object,
        redirect: aiohttp.TraceRequestRedirectParams,
    ) -> None:
        target = place_of(redirect.response.headers.get("Location", ""))
        raise SourceError(
            f"{self.place}: redirect {redirect.response.status} to {target}; use that address"
        )

    def joined(self, reference: str) -> str:
        """Return ``reference`` as an absolute URL. Raises ``ValueError`` unless it is of the same origin."""
        return _within_origin(self.url, reference)

    def without_secrets(self, text: str) -> str:
        """Return ``text`` without the values of headers, cookies and passwords that the client sends."""
        headers = CIMultiDict[str](self.settings.get("headers") or {})
        values = [str(value) for value in headers.values()]
        values += _cookie_values(self.settings.get("cookies"))
        auths: list[object] = [self.settings.get("auth"), self.settings.get("proxy_auth")]
        for auth in auths:
            if isinstance(auth, aiohttp.BasicAuth):
                login, password, _ = cast("tuple[str, str, str]", auth)
                values += [b64encode(f"{login}:{password}".encode()).decode(), password]
        proxy: object = self.settings.get("proxy")
        if isinstance(proxy, (str, URL)):
            values.append(URL(proxy).password or "")
        for value in values:
            for part in {value, value.rpartition(" ")[2]}:
                if len(part) >= _SECRET:
                    text = text.replace(part, "…")
        return text


def _cookie_values(cookies: Any) -> list[str]:
    pairs: Any = cookies.items() if hasattr(cookies, "items") else cookies or ()
    return [str(value.value if isinstance(value, Morsel) else value) for _, value in pairs]


#: Least characters of a value that is taken for a secret.
_SECRET: Final = 6


@asynccontextmanager
async def request(
    endpoint: Endpoint,
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    failed: type[ConnectorError],
    timeout: aiohttp.ClientTimeout,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> AsyncGenerator[aiohttp.ClientResponse]:
    """Send a request, follow redirects within the origin, and yield the response of any other status.

    Raises ``failed`` for other redirects and certificates that are not valid, and lost connections.
    """
    try:
        for _ in range(_MOST_REDIRECTS):
            async with session.request(
                method,
                URL(url),
                allow_redirects=False,
                timeout=timeout,
                headers=headers,
                # In pieces, so that a large body does not block the event loop.
                data=BytesIO(body) if body is not None and len(body) > _PIECE else body,
            ) as response:
                target = response.headers.get("Location")
                if response.status not in _REDIRECTS or target is None:
                    yield response
                    return
            url = _redirected(endpoint, method, response.status, url, target, failed)
    except aiohttp.ClientConnectorCertificateError as exc:
        raise failed(f"{endpoint.place}: the certificate is not valid: {exc}") from exc
    except aiohttp.ConnectionTimeoutError:  # its text has the query of the URL
        raise TimeoutError(f"no connection to {endpoint.place} in time") from None
    except aiohttp.ClientResponseError as exc:  # no HTTP
        raise aiohttp.ClientPayloadError(f"the answer is no HTTP: {exc.message}") from exc
    raise failed(f"{endpoint.place}: more than {_MOST_REDIRECTS} redirects")


def _redirected(
    endpoint: Endpoint,
    method: str,
    status: int,
    url: str,
    target: str,
    failed: type[ConnectorError],
) -> str:
    if method != "GET" and status not in _KEEPING:
        raise failed(
            f"{endpoint.place}: redirect {status} to {place_of(target)} would drop the records; use that address"
        )
    try:
        return _within_origin(url, target)
    except ValueError:
        raise failed(
            f"{endpoint.place}: redirect to another origin, {place_of(urljoin(url, target))}, which would get the "
            f"headers of this one; use that address if it is right"
        ) from None


async def check_status(
    endpoint: Endpoint, response: aiohttp.ClientResponse, failed: type[ConnectorError]
) -> None:
    """Return for 2xx and 304. Raises ``ServerBusy`` if a later request may succeed, else ``failed``."""
    status = response.status
    if 200 <= status < 300 or status == 304:
        return
    text = await quoted(endpoint, response)
    check_busy(status, text, response.headers)
    hint = "; credentials are settings of client=" if status in (401, 403) else ""
    raise failed(f"{endpoint.place} answers {text}{hint}")


def check_busy(status: int, text: str, headers: Mapping[str, str]) -> None:
    """Raise ``ServerBusy`` for a status that means a busy server."""
    if is_busy(status):
        raise ServerBusy(f"status {text}", retry_after=retry_after(headers))


def is_busy(status: int) -> bool:
    """Return True for statuses of servers that are busy or about to be back."""
    return status in _BUSY or (500 <= status < 600 and status not in _FINAL)


async def quoted(endpoint: Endpoint, response: aiohttp.ClientResponse) -> str:
    """Return the status, its reason and the beginning of the body, without secrets."""
    body = b""
    with suppress(aiohttp.ClientError, TimeoutError):  # the status is enough
        body = await response.content.read(4 * _QUOTED)
    text = " ".join(body.decode("utf-8", "replace").split())
    text = endpoint.without_secrets(text)[:_QUOTED]
    reason = endpoint.without_secrets(response.reason or "")
    return f"{response.status} {reason}".rstrip() + (f": {text!r}" if text else "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay (s) that ``Retry-After`` asks for; None without one, or if it is invalid."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) <= _MOST_DIGITS else None
    try:
        when = parsedate_to_datetime(text)
        sent = headers.get("Date")
        now = datetime.now(UTC) if sent is None else parsedate_to_datetime(sent)
        return max(0.0, (when - now).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return None


def joined_headers(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """Return headers with names in lower case; values of a repeated one are joined with commas (RFC 9110, 5.3)."""
    names = dict.fromkeys(name.lower() for name in headers)
    return {name: ", ".join(headers.getall(name)) for name in names}


async def body_of(
    endpoint: Endpoint,
    response: aiohttp.ClientResponse,
    limit: int,
    failed: type[ConnectorError],
) -> bytes:
    """Return the body. Raises ``failed`` if it has more than ``limit`` bytes."""
    parts: list[bytes] = []
    size = 0
    while part := await response.content.readany():
        parts.append(part)
        size += len(part)
        if size > limit:
            raise failed(
                f"{endpoint.place}: the response has more than {limit:,} bytes; ask for smaller pages, or raise "
                f"max_bytes"
            )
    return b"".join(parts)


def endpoint_of(
    owner: str,
    url: object,
    settings: Mapping[str, object] | None,
    *,
    schemes: tuple[str, ...] = ("http", "https"),
) -> Endpoint:
    """Return the endpoint. Raises ``FlowDefinitionError`` for a URL or settings that are none."""
    given: Mapping[str, object] = {} if settings is None else settings
    if not isinstance(given, Mapping):
        raise FlowDefinitionError(
            f"{owner}: client= must be a mapping of settings of aiohttp, not a {type(given).__name__}"
        )
    known = (frozenset(signature(aiohttp.ClientSession).parameters) - _RESERVED) | {"ssl"}
    if wrong := sorted(str(name) for name in given if name not in known):
        reason = (
            "are chosen by other arguments" if set(wrong) <= _RESERVED else "are not settings of it"
        )
        raise FlowDefinitionError(
            f"{owner}: client= has {', '.join(wrong)}, which {reason}; ClientSession of aiohttp has "
            f"{', '.join(sorted(known))}"
        )
    text = _checked_url(owner, url, schemes)
    return Endpoint(text, dict(given), place_of(text))


def place_of(url: str) -> str:
    """Return a URL without credentials, query and fragment."""
    try:
        parsed = URL(url)
        return str(parsed.with_user(None).with_query(None).with_fragment(None))
    except ValueError:
        return "an address that is no URL"


def client_timeout(seconds: float) -> aiohttp.ClientTimeout:
    """Return a limit of the whole request."""
    return aiohttp.ClientTimeout(total=seconds)


def _checked_url(owner: str, url: object, schemes: tuple[str, ...]) -> str:
    example = f"like '{schemes[-1]}://host/path'"
    if not isinstance(url, (str, URL)):
        raise FlowDefinitionError(f"{owner}: the URL must be a str, {example}, not {shown(url)}")
    try:
        parsed = URL(str(url))
    except ValueError as exc:
        raise FlowDefinitionError(f"{owner}: the URL is not valid: {exc}") from None
    if parsed.user is not None or parsed.password is not None:
        raise FlowDefinitionError(
            f"{owner}: {place_of(str(url))} was given with credentials in its URL, which messages and logs could show; "
            f"use client={{'headers': {{'Authorization': …}}}}"
        )
    if parsed.scheme not in schemes or not parsed.host:
        raise FlowDefinitionError(
            f"{owner}: the URL must be {example}, not {shown(place_of(str(url)))}"
        )
    return str(parsed)


def _within_origin(url: str, reference: str) -> str:
    target = URL(urljoin(url, reference))
    if target.origin() != URL(url).origin():
        raise ValueError("another origin")
    return str(target)


async def closed(session: aiohttp.ClientSession | None) -> None:
    """Close a session, and let its transports end, which tests for leftovers would find."""
    if session is not None:
        await session.close()
        await asyncio.sleep(0)
