"""The application for aiohttp, as a sub-application. Only this module imports aiohttp, and only when it is called."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Final

from aflow.web.events import PATIENCE
from aflow.web.jobs import Jobs
from aflow.web.messages import MAX_BODY, Chunks, WebRequest, WebStream
from aflow.web.routes import WebApi

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.web import Application, BaseRequest, StreamResponse

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
                await _body(request.content),
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


async def _body(content: StreamReader) -> bytes:
    """Return the body, cut after ``MAX_BODY`` bytes and one."""
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            break
    return bytes(body[: MAX_BODY + 1])
