"""The applications for aiohttp: a sub-application and a handler. Only this module imports aiohttp, and only when it is
called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from aflow.runtime.builtin_connectors.durable_push.source import DurablePushSource
from aflow.web.events import PATIENCE
from aflow.web.ingest import IngestApi
from aflow.web.jobs import Jobs
from aflow.web.messages import Chunks, WebRequest, WebStream
from aflow.web.routes import WebApi

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.web import Application, BaseRequest, Request, StreamResponse

T = TypeVar("T")

#: Any path, with line breaks, too.
_ANY: Final = r"/{path:[\s\S]*}"


def aiohttp_app(
    jobs: Jobs, *, token: str | None = None, read_token: str | None = None
) -> Application:
    """Return the application for ``app.add_subapp("/aflow/", aiohttp_app(job, token=…))``.

    The arguments and errors are those of ``app``. Raises ``ImportError`` if aiohttp is not installed.
    """
    try:
        from aiohttp import web
    except ImportError as exc:
        raise ImportError("aflow.web.aiohttp_app needs aiohttp: pip install aiohttp") from exc

    api = WebApi(jobs, token=token, read_token=read_token)

    async def handle(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        resource = request.match_info.route.resource
        above = 0 if resource is None else resource.canonical.count("/") - 1
        parts = request.rel_url.raw_path.split("/")
        answer = await api.respond(
            WebRequest(
                request.method,
                "/".join(["", *parts[1 + above :]]),
                request.rel_url.raw_query_string,
                headers,
                await _body(request.content, api.max_body),
            )
        )
        headers = {**answer.headers, "content-type": answer.content_type}
        if isinstance(answer, WebStream):
            stream = web.StreamResponse(status=answer.status, headers=headers)
            with closing(answer.chunks) as chunks:
                await _stream(chunks, stream, request)
            return stream
        return web.Response(body=answer.body, status=answer.status, headers=headers)

    async def to_page(request: web.Request) -> web.Response:
        """Add the slash to the address, so that the relative ones of the page are below it."""
        name = request.rel_url.raw_path.rpartition("/")[2]
        return web.Response(status=308, headers={"location": f"./{name}/"})

    async def close(application: web.Application) -> None:
        api.close()

    application = web.Application()
    application.router.add_route("GET", "", to_page)
    application.router.add_route("*", _ANY, handle)
    application.on_shutdown.append(close)
    return application


def aiohttp_ingest(
    source: DurablePushSource[T],
    *,
    of: type[T] | None = None,
    decode: Callable[[bytes], T] | None = None,
    id: Callable[[T], str] | None = None,
    token: str | None = None,
    max_bytes: int = 1 << 20,
    max_records: int = 10_000,
    ack_timeout: timedelta = timedelta(seconds=30),
) -> Callable[[Request], Awaitable[StreamResponse]]:
    """Return the handler for ``app.router.add_post("/orders", aiohttp_ingest(orders, of=Order))``.

    The arguments, responses and errors are those of ``ingest``. Raises ``ImportError`` if aiohttp is not installed.
    """
    try:
        from aiohttp import web
    except ImportError as exc:
        raise ImportError("aflow.web.aiohttp_ingest needs aiohttp: pip install aiohttp") from exc

    api = IngestApi(source, of, decode, id, token, max_bytes, max_records, ack_timeout)

    async def handle(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer = await api.respond(
            WebRequest(
                request.method,
                request.rel_url.raw_path,
                request.rel_url.raw_query_string,
                headers,
                await _body(request.content, api.max_body),
            )
        )
        headers = {**answer.headers, "content-type": answer.content_type}
        return web.Response(body=answer.body, status=answer.status, headers=headers)

    return handle


async def _stream(chunks: Chunks, stream: StreamResponse, request: BaseRequest) -> None:
    """Send parts of the body when they are due, until the stream ends or the client disconnects or is too slow."""
    loop = asyncio.get_running_loop()
    try:
        await stream.prepare(request)
        while (part := chunks.take()) is not None:
            async with asyncio.timeout(PATIENCE):
                await stream.write(part)
            await asyncio.sleep(max(0.0, chunks.due - loop.time()))
    except TimeoutError:
        chunks.dropped()
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        return  # the client has disconnected


async def _body(content: StreamReader, limit: int) -> bytes:
    """Return the body, cut after ``limit`` bytes and one."""
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > limit:
            break
    return bytes(body[: limit + 1])
