"""A schema registry with the REST API of Confluent's, in memory, on a port of loopback."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self

import fastavro
from aiohttp import web

from aflow_connectors.reconnect import Reconnect

#: Delays of tests.
FAST = Reconnect(delay=timedelta(milliseconds=1), most=timedelta(milliseconds=2))

CONTENT = "application/vnd.schemaregistry.v1+json"


class FakeRegistry:
    """Stores schemas as the documented API does: ids are global, and equal schemas have one id.

    Avro schemas are checked for backward compatibility: a field that a new version adds needs a default.
    """

    def __init__(self, *, authorization: str | None = None, tls: SSLContext | None = None) -> None:
        self._authorization = authorization
        self._tls = tls
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._runner: web.AppRunner | None = None
        self._changed = asyncio.Condition()
        #: Requests so far, by method and path.
        self.requests: Counter[str] = Counter()
        #: Statuses of the next answers.
        self.failures: list[int] = []
        #: While True, connections are closed without an answer.
        self.is_away = False
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._before])
        app.router.add_get("/schemas/ids/{id}", self._by_id)
        app.router.add_get("/subjects/{subject}/versions/{version}", self._version)
        app.router.add_post("/subjects/{subject}/versions", self._register)
        app.router.add_post("/subjects/{subject}", self._look_up)
        self._runner = web.AppRunner(app, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http{'s' if self._tls else ''}://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema without a request, and without a check. Return its id."""
        stored = {"schema": schema, "schemaType": kind, "references": list(references)}
        if stored not in self._schemas:
            self._schemas.append(stored)
        number = self._schemas.index(stored) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def text(self, subject: str) -> str:
        """Return the newest schema of ``subject``."""
        return str(self._schemas[self._subjects[subject][-1] - 1]["schema"])

    async def asked(self, request: str, times: int) -> None:
        """Wait until there were so many equal requests."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.requests[request] >= times)

    @property
    def subjects(self) -> list[str]:
        return sorted(self._subjects)

    @web.middleware
    async def _before(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests[f"{request.method} {request.path}"] += 1
        async with self._changed:
            self._changed.notify_all()
        if self.is_away:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if self.failures:
            return _error(self.failures.pop(0), 50001, "Error in the backend data store")
        given = request.headers.get("Authorization")
        if self._authorization is not None and given != self._authorization:
            return _error(401, 401, "Unauthorized")
        response: web.StreamResponse = await handler(request)
        return response

    async def _by_id(self, request: web.Request) -> web.Response:
        number = int(request.match_info["id"])
        if not 0 < number <= len(self._schemas):
            return _error(404, 40403, f"Schema {number} not found")
        return _answer(_shown(self._schemas[number - 1]))

    async def _version(self, request: web.Request) -> web.Response:
        subject, version = request.match_info["subject"], int(request.match_info["version"])
        versions = self._subjects.get(subject)
        if versions is None:
            return _error(404, 40401, f"Subject '{subject}' not found.")
        if not 0 < version <= len(versions):
            return _error(404, 40402, f"Version {version} not found.")
        number = versions[version - 1]
        found = {"subject": subject, "id": number, "version": version}
        return _answer(found | _shown(self._schemas[number - 1]))

    async def _register(self, request: web.Request) -> web.Response:
        subject, given = request.match_info["subject"], await request.json()
        kind = given.get("schemaType", "AVRO")
        if kind == "AVRO":
            try:
                new = fastavro.parse_schema(json.loads(given["schema"]))
            except Exception as exc:
                return _error(422, 42201, f"Either the input schema is invalid: {exc}")
            if subject in self._subjects and not _is_compatible(
                json.loads(self.text(subject)), new
            ):
                return _error(
                    409,
                    409,
                    f"Schema being registered is incompatible with an earlier schema for subject '{subject}', details: "
                    f"[READER_FIELD_MISSING_DEFAULT_VALUE]",
                )
        return _answer(
            {"id": self.add(subject, given["schema"], kind, given.get("references", ()))}
        )

    async def _look_up(self, request: web.Request) -> web.Response:
        subject, given = request.match_info["subject"], await request.json()
        if subject not in self._subjects:
            return _error(404, 40401, f"Subject '{subject}' not found.")
        for version, number in enumerate(self._subjects[subject], start=1):
            if self._schemas[number - 1]["schema"] == given["schema"]:
                return _answer({"subject": subject, "id": number, "version": version} | given)
        return _error(404, 40403, "Schema not found")


def _shown(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as the API does: without the type of Avro, and without references if there are none."""
    found = {"schema": stored["schema"]}
    if stored["schemaType"] != "AVRO":
        found["schemaType"] = stored["schemaType"]
    if stored["references"]:
        found["references"] = stored["references"]
    return found


def _is_compatible(old: Any, new: Any) -> bool:
    if "fields" not in old or "fields" not in new:
        return bool(old == new)
    known = {field["name"] for field in old["fields"]}
    return all(
        field["name"] in known or "default" in field or known & set(field.get("aliases", ()))
        for field in new["fields"]
    )


def _answer(found: dict[str, Any]) -> web.Response:
    return web.Response(text=json.dumps(found), content_type=CONTENT)


def _error(status: int, code: int, message: str) -> web.Response:
    text = json.dumps({"error_code": code, "message": message})
    return web.Response(status=status, text=text, content_type=CONTENT)
