"""The core of the application: a response for each request, independent of a web framework.

The routes are in ``WebApi._handler``. A handler raises ``WebError`` for each refusal. Responses are JSON, except for
the exposition of Prometheus, the files of the page, and the events of a job, which are a stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from aflow.runtime.job import Job
from aflow.runtime.job_status import JobStatus
from aflow.web.access import Access
from aflow.web.collector import JobCollector
from aflow.web.commands import JobCommands
from aflow.web.events import CONTENT_TYPE, EventStreams
from aflow.web.jobs import Jobs, PresentJobs
from aflow.web.json_views import checkpoint_view, job_summary, job_view
from aflow.web.messages import (
    MAX_BODY,
    WebError,
    WebRequest,
    WebResponse,
    WebStream,
    error_response,
    json_response,
)
from aflow.web.state_view import (
    KEY_ARGUMENTS,
    LIST_ARGUMENTS,
    listed,
    state_list,
    state_view,
)
from aflow.web.static_files import StaticFile, static_files, static_response

Handler: TypeAlias = Callable[[WebRequest], Awaitable[WebResponse | WebStream]]

_log = logging.getLogger("aflow.web")

#: Headers of each response: content is what its type says, and never stored.
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_ROUTES: Final = (
    "GET /",
    "GET /health/live",
    "GET /health/ready",
    "GET /metrics",
    "GET /api/jobs",
    "GET /api/jobs/{job}",
    "GET /api/jobs/{job}/checkpoints",
    "GET /api/jobs/{job}/events",
    "GET /api/jobs/{job}/state/{step}",
    "GET /api/jobs/{job}/state/{step}/{key}",
    "POST /api/jobs/{job}/savepoints",
    "POST /api/jobs/{job}/stop",
)


class WebApi:
    """Answers requests about jobs.

    ``token`` is the one for writes, without which all are refused; ``read_token`` the one for reads, without which they
    are open. Raises ``FlowDefinitionError`` for values that are no jobs, two jobs of a sequence with one name, and
    tokens that no header can contain.
    """

    def __init__(self, jobs: Jobs, *, token: str | None, read_token: str | None) -> None:
        self.max_body = MAX_BODY
        self._jobs = PresentJobs(jobs)
        self._access = Access(token, read_token)
        self._commands = JobCommands()
        self._streams = EventStreams(self._jobs, writes=token is not None)
        #: The files of the page, by their paths; None before the first request for one.
        self._files: Mapping[str, StaticFile] | None = None
        self._registry = CollectorRegistry()
        self._registry.register(JobCollector(self._jobs))

    def close(self) -> None:
        """End all streams within a second, and refuse others: the server of the application is about to end."""
        self._streams.closing = True

    async def respond(self, request: WebRequest) -> WebResponse | WebStream:
        """Return the response to a request; raises nothing but a cancellation."""
        try:
            response = await self._respond(request)
        except WebError as error:
            response = error_response(error)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            text = "the request failed in the application; its log has the reason"
            response = error_response(WebError(500, "internal_error", text))
        headers = {**_HEADERS, **response.headers}
        return replace(response, headers=headers)

    async def _respond(self, request: WebRequest) -> WebResponse | WebStream:
        method, handle = self._handler(request.segments())
        if request.method != method and not (method == "GET" and request.method == "HEAD"):
            raise WebError(
                405,
                "method_not_allowed",
                f"{request.path} takes {method}",
                {"allow": "GET, HEAD" if method == "GET" else method},
            )
        return await handle(request)

    def _handler(self, path: list[str]) -> tuple[str, Handler]:
        """Return the method of a route, and its handler. Raises ``WebError`` 404."""
        match path:
            case [] | [""]:
                return "GET", partial(self._file, "index.html")
            case ["static", *parts]:
                return "GET", partial(self._file, "/".join(parts))
            case ["health", "live"]:
                return "GET", self._live
            case ["health", "ready"]:
                return "GET", self._ready
            case ["metrics"]:
                return "GET", self._metrics
            case ["api", "jobs"]:
                return "GET", self._list
            case ["api", "jobs", job]:
                return "GET", partial(self._job, job)
            case ["api", "jobs", job, "checkpoints"]:
                return "GET", partial(self._checkpoints, job)
            case ["api", "jobs", job, "events"]:
                return "GET", partial(self._events, job)
            case ["api", "jobs", job, "state", step]:
                return "GET", partial(self._states, job, step)
            case ["api", "jobs", job, "state", step, key]:
                return "GET", partial(self._state, job, step, key)
            case ["api", "jobs", job, "savepoints"]:
                return "POST", partial(self._savepoint, job)
            case ["api", "jobs", job, "stop"]:
                return "POST", partial(self._stop, job)
            case _:
                raise WebError(404, "unknown_path", f"the paths are {', '.join(_ROUTES)}")

    async def _file(self, name: str, request: WebRequest) -> WebResponse:
        # Open even if reads need a token: the page has no data of its own, and asks for the token.
        if self._files is None:  # a megabyte is read and hashed, not on the loop of the jobs
            self._files = await asyncio.to_thread(static_files)
        return static_response(self._files, name, request.headers)

    async def _live(self, request: WebRequest) -> WebResponse:
        statuses = self._statuses()
        failed = JobStatus.FAILED in statuses.values()
        return json_response(
            503 if failed else 200, _health("failed" if failed else "live", statuses)
        )

    async def _ready(self, request: WebRequest) -> WebResponse:
        statuses = self._statuses()
        ready = bool(statuses) and set(statuses.values()) == {JobStatus.RUNNING}
        return json_response(
            200 if ready else 503, _health("ready" if ready else "not ready", statuses)
        )

    def _statuses(self) -> dict[str, JobStatus]:
        return {name: job.status for name, job in self._jobs.observed().items()}

    async def _metrics(self, request: WebRequest) -> WebResponse:
        self._access.check_read(request.headers)
        try:
            encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a version that is no number
            encoder, content_type = choose_encoder("")
        return WebResponse(200, content_type, encoder(self._registry))

    async def _list(self, request: WebRequest) -> WebResponse:
        self._access.check_read(request.headers)
        request.arguments()
        jobs = self._jobs.by_address().items()
        return json_response(200, {"jobs": [job_summary(job, name) for name, job in jobs]})

    async def _job(self, name: str, request: WebRequest) -> WebResponse:
        return json_response(200, job_view(self._readable(name, request), name))

    async def _checkpoints(self, name: str, request: WebRequest) -> WebResponse:
        job = self._readable(name, request)
        return json_response(
            200, {"job": name, "checkpoints": [checkpoint_view(one) for one in job.checkpoints]}
        )

    async def _events(self, name: str, request: WebRequest) -> WebResponse | WebStream:
        self._readable(name, request)
        if request.method == "HEAD":
            return WebResponse(200, CONTENT_TYPE, b"")
        return WebStream(200, CONTENT_TYPE, self._streams.open(name))

    async def _state(self, name: str, step: str, key: str, request: WebRequest) -> WebResponse:
        job = self._readable(name, request, *KEY_ARGUMENTS)
        arguments = request.arguments(*KEY_ARGUMENTS)
        return json_response(200, {"job": name, **await state_view(job, step, key, arguments)})

    async def _states(self, name: str, step: str, request: WebRequest) -> WebResponse:
        job = self._readable(name, request, *LIST_ARGUMENTS)
        arguments = request.arguments(*LIST_ARGUMENTS)
        return json_response(200, {"job": name, **await state_list(job, step, arguments)})

    async def _savepoint(self, name: str, request: WebRequest) -> WebResponse:
        job = self._writable(name, request)
        return json_response(
            201, {"job": name, "savepoint": await self._commands.savepoint(job, request)}
        )

    async def _stop(self, name: str, request: WebRequest) -> WebResponse:
        job = self._writable(name, request)
        await self._commands.stop(job, request)
        return json_response(202, {"job": name, "status": job.status.value})

    def _readable(self, name: str, request: WebRequest, *arguments: str) -> Job:
        self._access.check_read(request.headers)
        request.arguments(*arguments)
        return self._found(name)

    def _writable(self, name: str, request: WebRequest) -> Job:
        self._access.check_write(request.headers)
        request.arguments()
        return self._found(name)

    def _found(self, name: str) -> Job:
        jobs = self._jobs.by_address()
        if name not in jobs:
            if name in self._jobs.observed():
                raise WebError(
                    404,
                    "unknown_job",
                    f"{name!r} is a stream on Spark, of which this application has health and metrics",
                )
            present = "no jobs" if not jobs else f"job{'s' if len(jobs) > 1 else ''} {listed(jobs)}"
            raise WebError(
                404, "unknown_job", f"no job is named {name!r}; this application has {present}"
            )
        return jobs[name]


def _health(status: str, statuses: dict[str, JobStatus]) -> dict[str, object]:
    return {"status": status, "jobs": {name: one.value for name, one in statuses.items()}}
