"""The application for ASGI: mounted in FastAPI and Starlette, or served alone."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from aflow.web.jobs import Jobs
from aflow.web.messages import MAX_BODY, WebRequest
from aflow.web.routes import WebApi


def app(jobs: Jobs, *, token: str | None = None, read_token: str | None = None) -> Router:
    """Return an ASGI application with health, metrics and the API of ``jobs``.

    ``host_app.mount("/aflow", aflow.web.app(job, token=…))``. ``jobs`` is a job, several, or a function that returns
    the present ones. Writes need ``token``, and are refused without one; reads need ``read_token`` if there is one.
    Requests must be handled on the event loop of the jobs.

    Raises ``FlowDefinitionError`` for values that are no jobs, two jobs with one name, and tokens that no header can
    contain.
    """
    # Responses that are streams or pages become routes of the router, which are tried before the default.
    return Router(default=_Endpoint(WebApi(jobs, token=token, read_token=read_token)))


class _Endpoint:
    """Translates between ASGI and ``WebApi``."""

    def __init__(self, api: WebApi) -> None:
        self._api: Final = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            body = await _body(request)
        except ClientDisconnect:
            return
        answer = await self._api.respond(
            WebRequest(request.method, _path(scope), request.url.query, dict(request.headers), body)
        )
        headers = {**answer.headers, "content-type": answer.content_type}
        if request.method == "HEAD":
            headers["content-length"] = str(len(answer.body))
            await Response(b"", answer.status, headers)(scope, receive, send)
        else:
            await Response(answer.body, answer.status, headers)(scope, receive, send)


async def _body(request: Request) -> bytes:
    """Return the body, cut after ``MAX_BODY`` bytes and one."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            break
    return bytes(body[: MAX_BODY + 1])


def _path(scope: Scope) -> str:
    """Return the percent-encoded path below the place where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    raw: bytes | None = scope.get("raw_path")
    text = quote(path) if raw is None else raw.decode("latin-1").partition("?")[0]
    mounted = bool(root) and f"{path}/".startswith(f"{root}/")
    parts = text.split("/")
    return "/".join(["", *parts[1 + (root.count("/") if mounted else 0) :]])
