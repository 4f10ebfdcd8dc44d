"""Writes: savepoints and stops."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any, Final, TypeVar

import msgspec

from aflow.errors import AflowError, CheckpointError, FlowDefinitionError, JobStopped, message_of
from aflow.runtime.close_limit import GRACE
from aflow.runtime.current_job import inside_of
from aflow.runtime.job import Job
from aflow.runtime.job_status import JobStatus
from aflow.web.json_views import checkpoint_view
from aflow.web.messages import JSON, MAX_BODY, WebError, WebRequest
from aflow.web.state_view import not_running

T = TypeVar("T")

_log = logging.getLogger("aflow.web")

#: The longest deadline of a stop, in seconds.
_MONTH: Final = 2_592_000

SavepointPath = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[^\x00]+$")]


class SavepointRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request for a savepoint."""

    path: SavepointPath


class StopRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request to stop a job; an empty body is one with the defaults."""

    drain: bool = False
    savepoint: SavepointPath | None = None
    deadline: Annotated[float, msgspec.Meta(gt=0, le=_MONTH)] | None = None
    """Seconds until the job is cancelled; None: no deadline."""


class JobCommands:
    """Executes writes, and cancels jobs whose stop has reached its deadline."""

    def __init__(self) -> None:
        self._cancelling: set[asyncio.Task[None]] = set()

    async def savepoint(self, job: Job, request: WebRequest) -> dict[str, Any]:
        """Write a savepoint while the job continues, and return it. Raises ``WebError``."""
        wanted = _decoded(request, SavepointRequest)
        self._check_checkpointing(job)
        try:
            taken = await job.savepoint(wanted.path)
        except AflowError as exc:
            raise _refused(job, exc) from exc
        return checkpoint_view(taken)

    async def stop(self, job: Job, request: WebRequest) -> None:
        """Begin to stop a job, without waiting for its end. Raises ``WebError``.

        The host waits for the end: its ``wait`` and its block raise the failure of the job, if there is one.
        """
        wanted = _decoded(request, StopRequest)
        if job.status.has_ended or job.status is JobStatus.CREATED:
            raise not_running(job, f"job {job.name!r} is {job.status.value}")
        if wanted.savepoint is not None:
            self._check_checkpointing(job)
        try:
            with inside_of(job):  # so that it returns at once, and leaves the failure to the host
                await job.stop(drain=wanted.drain, savepoint=wanted.savepoint)
        except AflowError as exc:
            raise _refused(job, exc) from exc
        if wanted.deadline is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(wanted.deadline, self._on_deadline, job, wanted.deadline)

    def _check_checkpointing(self, job: Job) -> None:
        if job.setup.recovery.checkpointing is None:
            raise WebError(
                409,
                "no_checkpointing",
                f"job {job.name!r} was started without checkpointing, so it has no savepoints",
            )

    def _on_deadline(self, job: Job, seconds: float) -> None:
        if not job.running:
            return
        _log.warning(
            "job %r is cancelled, since it did not end within %g s; left: %s",
            job.name,
            seconds,
            job.unfinished_work(),
        )
        cancelling = asyncio.create_task(
            job.cancel(close_within=GRACE), name=f"aflow cancel {job.name}"
        )
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)


def _decoded(request: WebRequest, kind: type[T]) -> T:
    """Return the body of ``request``. Raises ``WebError`` 400, 413 and 415."""
    if len(request.body) > MAX_BODY:
        raise WebError(413, "body_too_large", f"the body has more than {MAX_BODY:,} bytes")
    content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if request.body and content_type != JSON:
        raise WebError(
            415, "not_json", f"the body is {content_type!r}; send 'Content-Type: {JSON}'"
        )
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except msgspec.ValidationError as exc:
        raise WebError(400, "invalid_body", f"the body does not fit: {exc}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise WebError(400, "invalid_json", f"the body is not JSON: {exc}") from exc


def _refused(job: Job, error: AflowError) -> WebError:
    """Return the response for an error of a command."""
    starting = (JobStatus.STARTING, JobStatus.RESTORING, JobStatus.RESTARTING)
    if isinstance(error, JobStopped) or job.status in starting:
        return not_running(job, message_of(error))
    code = "savepoint_failed" if isinstance(error, CheckpointError) else "refused"
    status = 409 if isinstance(error, CheckpointError | FlowDefinitionError) else 500
    return WebError(status, code, message_of(error))
