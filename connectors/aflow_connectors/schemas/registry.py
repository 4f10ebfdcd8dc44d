"""``SchemaRegistry``: a client of the REST API of Confluent's schema registry, which others have too.

Schemas are fetched seldom, since ids never change their schema, so each request has a session of its own and nothing
must be closed. While the registry is away, requests are repeated (``Reconnect``), which is backpressure. What it
refuses is an error at once.

Used are, of the documented API: ``GET /schemas/ids/{id}``, ``GET /subjects/{subject}/versions/{version}``,
``POST /subjects/{subject}/versions`` (register) and ``POST /subjects/{subject}`` (look up). Its errors are JSON with
``error_code`` and ``message``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from ssl import SSLContext
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit, urlunsplit

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect
from aflow_connectors.schemas.client import aiohttp

_CONTENT: Final = "application/vnd.schemaregistry.v1+json"

#: ``error_code`` of a subject, a version, or a schema that does not exist.
_NOT_FOUND: Final = frozenset({40401, 40402, 40403})

#: The statuses of a registry that is overloaded, starts, or has lost its store or its leader.
_UNAVAILABLE: Final = frozenset({408, 429, 500, 502, 503, 504})

#: Characters of a message of the registry in an error.
_SHOWN: Final = 600


class RegistryError(ConnectorError):
    """A schema registry refuses a request, or cannot be reached."""


class RegistryUnavailable(Exception):
    """The registry cannot answer now."""


@dataclass(frozen=True)
class SchemaReference:
    """The name of an imported schema within another one, and its place in the registry."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class SchemaText:
    """A schema as the registry stores it."""

    text: str
    kind: str
    """"AVRO" or "PROTOBUF"."""
    references: tuple[SchemaReference, ...] = ()

    def body(self) -> dict[str, Any]:
        """Return it as the body of a request."""
        body: dict[str, Any] = {"schema": self.text}
        if (
            self.kind != "AVRO"
        ):  # registries before Protobuf know no other kind, and no field for it
            body["schemaType"] = self.kind
        if self.references:
            body["references"] = [vars(one) for one in self.references]
        return body


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry at ``url``, with the REST API of Confluent's.

    ``basic_auth`` is user and password, ``bearer`` a token, ``ssl`` a context for other certificates than those of the
    system, or for one of the client. A request takes ``timeout`` at most. While the registry is away it is repeated as
    ``reconnect`` says, and the reader or writer waits. Raises ``FlowDefinitionError`` for wrong arguments.

    Credentials, also those in ``url``, are in no message and not in ``repr``.
    """

    url: str = field(repr=False)
    basic_auth: tuple[str, str] | None = field(default=None, repr=False, kw_only=True)
    bearer: str | None = field(default=None, repr=False, kw_only=True)
    ssl: SSLContext | None = field(default=None, repr=False, kw_only=True)
    timeout: timedelta = field(default=timedelta(seconds=10), kw_only=True)
    reconnect: Reconnect = field(default=Reconnect(), kw_only=True)
    place: str = field(init=False)
    """The URL without credentials."""

    def __post_init__(self) -> None:
        owner = "SchemaRegistry"
        url, auth = _divided(owner, self.url)
        if auth is not None and self.basic_auth is None:
            object.__setattr__(self, "basic_auth", auth)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "place", url)
        checked_reconnect(owner, self.reconnect)
        _check_auth(owner, self.basic_auth, self.bearer)
        if not isinstance(self.timeout, timedelta) or self.timeout <= timedelta(0):
            raise FlowDefinitionError(
                f"{owner}: timeout= must be a positive timedelta, not {shown(self.timeout)}"
            )
        if self.ssl is not None and not isinstance(self.ssl, SSLContext):
            raise FlowDefinitionError(
                f"{owner}: ssl= must be an ssl.SSLContext, not {shown(self.ssl)}"
            )

    async def schema(self, schema_id: int) -> SchemaText | None:
        """Return the schema with this id; None if there is none. Raises ``RegistryError``."""
        found = await self._request("GET", f"schemas/ids/{schema_id}")
        return None if found is None else self._schema_in(found)

    async def version(self, reference: SchemaReference) -> SchemaText:
        """Return an imported schema. Raises ``RegistryError``, also if there is none."""
        path = f"subjects/{_quoted(reference.subject)}/versions/{reference.version}"
        found = await self._request("GET", path)
        if found is None:
            raise RegistryError(
                f"{self.place} has no version {reference.version} of subject {reference.subject!r}, to which a schema "
                f"refers"
            )
        return self._schema_in(found)

    async def register(self, subject: str, schema: SchemaText) -> int:
        """Return the id of ``schema`` under ``subject``, which it gets if it is new. Raises ``RegistryError``."""
        path = f"subjects/{_quoted(subject)}/versions"
        found = await self._request("POST", path, schema.body(), subject=subject)
        return self._number_in(found or {}, "id")

    async def look_up(self, subject: str, schema: SchemaText) -> tuple[int, int]:
        """Return id and version of ``schema`` under ``subject``. Raises ``RegistryError`` if it is not registered."""
        path = f"subjects/{_quoted(subject)}"
        found = await self._request("POST", path, schema.body(), subject=subject)
        if found is None:
            raise RegistryError(
                f"{self.place} does not have this schema under subject {subject!r}; register it, or use "
                f"auto_register=True"
            )
        return self._number_in(found, "id"), self._number_in(found, "version")

    async def imported(self, schema: SchemaText) -> list[SchemaText]:
        """Return the schemas to which ``schema`` refers, each after those to which it refers itself."""
        found: dict[tuple[str, int], SchemaText] = {}

        async def add(one: SchemaText, above: frozenset[tuple[str, int]]) -> None:
            for reference in one.references:
                place = reference.subject, reference.version
                if place in above:
                    raise RegistryError(
                        f"{self.place}: subject {reference.subject!r} refers to itself"
                    )
                if place not in found:
                    text = await self.version(reference)
                    await add(text, above | {place})
                    found[place] = text

        await add(schema, frozenset())
        return list(found.values())

    async def _request(
        self, method: str, path: str, body: object = None, *, subject: str = ""
    ) -> Mapping[str, Any] | None:
        """Return the answer; None for what does not exist. Repeats the request while the registry is away."""
        lost = (aiohttp.ClientError, TimeoutError, RegistryUnavailable)
        retries = Retries(self.place, self.reconnect, lost=lost, failed=RegistryError)
        return await retries.run(partial(self._send, method, path, body, subject))

    async def _send(
        self, method: str, path: str, body: object, subject: str
    ) -> Mapping[str, Any] | None:
        headers = {"Accept": f"{_CONTENT}, application/json", "Content-Type": _CONTENT}
        if self.bearer is not None:
            headers["Authorization"] = f"Bearer {self.bearer}"
        elif self.basic_auth is not None:
            pair = ":".join(self.basic_auth).encode()
            headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        timeout = aiohttp.ClientTimeout(total=self.timeout.total_seconds())
        data = None if body is None else json.dumps(body)
        options = {} if self.ssl is None else {"ssl": self.ssl}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            try:
                async with session.request(
                    method, f"{self.url}/{path}", data=data, allow_redirects=False, **options
                ) as answer:
                    return self._answered(answer.status, await answer.read(), subject)
            except aiohttp.ClientSSLError as exc:
                # Also a lost connection by its class, which no further attempt can repair.
                raise RegistryError(f"{self.place}: {described(exc)}; see ssl=") from exc

    def _answered(self, status: int, content: bytes, subject: str) -> Mapping[str, Any] | None:
        try:
            found: object = json.loads(content)
        except ValueError:
            found = None
        answer: Mapping[str, Any] = {}
        if isinstance(found, dict):
            answer = cast("Mapping[str, Any]", found)
        if status == 200 and answer:
            return answer
        text = str(answer.get("message", ""))[:_SHOWN]
        said = f"{status}{': ' if text else ''}{text}"
        if status == 404 and answer.get("error_code") in _NOT_FOUND:
            return None
        if status in _UNAVAILABLE:
            raise RegistryUnavailable(f"it answers {said}")
        raise RegistryError(self._refusal(status, said, subject))

    def _refusal(self, status: int, said: str, subject: str) -> str:
        match status:
            case 401 | 403:
                why = "basic_auth= or bearer= are missing, wrong, or not allowed to do this"
                return f"{self.place} refuses access ({said}): {why}"
            case 409:
                return (
                    f"{self.place}: the schema is not compatible with those of subject {subject!r} ({said}); give "
                    f"added fields a default, or change the compatibility level of the subject"
                )
            case 422:
                return f"{self.place} does not accept the schema for subject {subject!r} ({said})"
            case _:
                return f"{self.place} answers {said}; is this the URL of a schema registry?"

    def _schema_in(self, answer: Mapping[str, Any]) -> SchemaText:
        text, kind = answer.get("schema"), answer.get("schemaType", "AVRO")
        references = answer.get("references") or ()
        try:
            found = tuple(
                SchemaReference(str(one["name"]), str(one["subject"]), int(one["version"]))
                for one in cast("Sequence[Mapping[str, Any]]", references)
            )
        except (TypeError, KeyError, ValueError):
            text, found = None, ()
        if not isinstance(text, str):
            raise RegistryError(f"{self.place} answers without a schema: {shown(answer)}")
        return SchemaText(text, str(kind), found)

    def _number_in(self, answer: Mapping[str, Any], name: str) -> int:
        number = answer.get(name)
        if type(number) is not int or not 0 <= number < 2**31:
            raise RegistryError(f"{self.place} answers without {name!r}: {shown(answer)}")
        return number


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _divided(owner: str, url: object) -> tuple[str, tuple[str, str] | None]:
    """Return the URL without credentials, and these. Raises ``FlowDefinitionError`` without showing them."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is not None:
            _ = parts.port
    except ValueError:
        parts = None
    if (
        parts is None
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
    ):
        raise FlowDefinitionError(
            f"{owner}: the URL must be like 'https://host:8081', without a query, not a {type(url).__name__} of "
            f"another form"
        )
    host = parts.netloc.rpartition("@")[2]
    auth = None if parts.username is None else (parts.username, parts.password or "")
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), auth


def _check_auth(owner: str, basic_auth: object, bearer: object) -> None:
    """Raise ``FlowDefinitionError`` for credentials of other types, which it does not show."""
    if basic_auth is not None and bearer is not None:
        raise FlowDefinitionError(f"{owner}: give basic_auth= or bearer=, not both")
    if basic_auth is not None and not (
        isinstance(basic_auth, tuple)
        and len(cast("tuple[object, ...]", basic_auth)) == 2
        and all(isinstance(one, str) for one in cast("tuple[object, ...]", basic_auth))
    ):
        raise FlowDefinitionError(f"{owner}: basic_auth= must be a pair of str: (user, password)")
    if bearer is not None and not (isinstance(bearer, str) and bearer):
        raise FlowDefinitionError(f"{owner}: bearer= must be a token, a str that is not empty")
