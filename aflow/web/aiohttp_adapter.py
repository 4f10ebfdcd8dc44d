"""The application for aiohttp, as a sub-application. Only this module imports aiohttp, and only when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aflow.web.jobs import Jobs
from aflow.web.messages import MAX_BODY, WebRequest
from aflow.web.routes import WebApi

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.web import Application

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

    async def handle(request: web.Request) -> web.Response:
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
        return web.Response(
            body=answer.body,
            status=answer.status,
            headers={**answer.headers, "content-type": answer.content_type},
        )

    application = web.Application()
    application.router.add_route("*", _ANY, handle)
    return application


async def _body(content: StreamReader) -> bytes:
    """Return the body, cut after ``MAX_BODY`` bytes and one."""
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            break
    return bytes(body[: MAX_BODY + 1])
