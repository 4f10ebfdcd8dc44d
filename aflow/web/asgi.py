"""The application for ASGI: mounted in FastAPI and Starlette, or served alone."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from aflow.web.events import PATIENCE
from aflow.web.jobs import Jobs
from aflow.web.messages import Chunks, WebApplication, WebRequest, WebStream
from aflow.web.routes import WebApi


def app(jobs: Jobs, *, token: str | None = None, read_token: str | None = None) -> Router:
    """Return an ASGI application with the page, health, metrics and the API of ``jobs``.

    ``host_app.mount("/aflow", aflow.web.app(job, token=…))``. ``jobs`` is a job, several, or a function that returns
    the present ones. Writes need ``token``, and are refused without one; reads need ``read_token`` if there is one.
    Requests must be handled on the event loop of the jobs.

    Raises ``FlowDefinitionError`` for values that are no jobs, two jobs of a sequence with one name, and tokens that
    no header can contain.
    """
    return router_of(WebApi(jobs, token=token, read_token=read_token))


def router_of(api: WebApplication) -> Router:
    """Return ``api`` as an ASGI application."""
    return Router(default=_Endpoint(api))


class _Endpoint:
    """Translates between ASGI and an application."""

    def __init__(self, api: WebApplication) -> None:
        self._api: Final = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            body = await _body(request, self._api.max_body)
        except ClientDisconnect:
            return
        answer = await self._api.respond(
            WebRequest(request.method, _path(scope), request.url.query, dict(request.headers), body)
        )
        headers = {**answer.headers, "content-type": answer.content_type}
        if isinstance(answer, WebStream):
            with closing(answer.chunks) as chunks:
                await _stream(chunks, Response(None, answer.status, headers), receive, send)
        elif request.method == "HEAD":
            headers["content-length"] = str(len(answer.body))
            await Response(b"", answer.status, headers)(scope, receive, send)
        else:
            await Response(answer.body, answer.status, headers)(scope, receive, send)


async def _stream(chunks: Chunks, head: Response, receive: Receive, send: Send) -> None:
    """Send parts of the body when they are due, until the stream ends or the client disconnects or is too slow."""
    names = [(name, value) for name, value in head.raw_headers if name != b"content-length"]
    message: Message = {
        "type": "http.response.start",
        "status": head.status_code,
        "headers": names,
    }
    try:
        await _send(send, message)
        while (part := chunks.take()) is not None:
            await _send(send, {"type": "http.response.body", "body": part, "more_body": True})
            if await _disconnected(receive, chunks.due):
                return
        await _send(send, {"type": "http.response.body", "body": b""})
    except TimeoutError:
        chunks.dropped()
    except OSError:
        return  # servers may raise one when the client has disconnected


async def _send(send: Send, message: Message) -> None:
    async with asyncio.timeout(PATIENCE):
        await send(message)


async def _disconnected(receive: Receive, until: float) -> bool:
    """Wait until the loop's time ``until``; return True at once if the client disconnects before."""
    try:
        async with asyncio.timeout_at(until):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True


async def _body(request: Request, limit: int) -> bytes:
    """Return the body, cut after ``limit`` bytes and one."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            break
    return bytes(body[: limit + 1])


def _path(scope: Scope) -> str:
    """Return the percent-encoded path below the place where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    raw: bytes | None = scope.get("raw_path")
    text = quote(path) if raw is None else raw.decode("latin-1").partition("?")[0]
    mounted = bool(root) and f"{path}/".startswith(f"{root}/")
    parts = text.split("/")
    return "/".join(["", *parts[1 + (root.count("/") if mounted else 0) :]])
