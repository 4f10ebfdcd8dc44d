"""Server-sent events: the description of a job, and one snapshot of it a second, for each client.

A stream is pulled: its adapter sends what ``EventStream.take`` returns, and calls it again when it is ``due``. All
clients are due at the same moments, and share the encoded snapshot of each: so a snapshot is made once a second for any
number of clients, and none without a client. A client that reads slowly holds up its own stream only.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from aflow.runtime.job import Job
from aflow.runtime.job_status import JobStatus
from aflow.web.jobs import PresentJobs
from aflow.web.messages import WebError, encoded
from aflow.web.page_views import description_view, snapshot_view

_log = logging.getLogger("aflow.web")

#: Seconds between two snapshots.
INTERVAL: Final = 1.0

#: The most clients of an application.
MOST_CLIENTS: Final = 32

#: Seconds for which a client may accept no data until its stream is ended.
PATIENCE: Final = 10.0

#: Seconds after which a stream ends, and the client connects again: a host that shuts down waits for open responses.
LONGEST: Final = 30.0

CONTENT_TYPE: Final = "text/event-stream"

#: The number of the snapshot of a job that has ended.
_FINAL: Final = -1


class EventStreams:
    """The open streams of an application."""

    def __init__(self, jobs: PresentJobs, *, writes: bool) -> None:
        """``writes`` is False if the application refuses all writes, which the page shows."""
        self._jobs = jobs
        self._writes = writes
        self._open: set[EventStream] = set()
        #: The number of the last snapshot of each job, and its event.
        self._snapshots: WeakKeyDictionary[Job, tuple[int, bytes]] = WeakKeyDictionary()
        self.closing = False

    def open(self, name: str) -> EventStream:
        """Return a stream for a client. Raises ``WebError`` 503 if there are too many."""
        if self.closing or len(self._open) >= MOST_CLIENTS:
            raise WebError(
                503,
                "too_many_clients",
                f"{len(self._open)} clients read events, and more than {MOST_CLIENTS} are not served",
                {"retry-after": "5"},
            )
        stream = EventStream(name, self)
        self._open.add(stream)
        return stream

    def release(self, stream: EventStream) -> None:
        """Let another client take the place of ``stream``."""
        self._open.discard(stream)

    def job(self, name: str) -> Job | None:
        """Return the present job of an address; None if there is none."""
        return self._jobs.by_address().get(name)

    def description(self, job: Job, name: str) -> bytes:
        """Return the event with all about a job that does not change."""
        return event("job", {**description_view(job, name), "writes": self._writes})

    def snapshot(self, job: Job, now: float) -> bytes:
        """Return the snapshot for the interval of ``now`` (seconds of the loop), which all clients get.

        That of a job that has ended is made after its end: nothing follows it.
        """
        number = _FINAL if job.status.has_ended else math.floor(now / INTERVAL)
        last = self._snapshots.get(job)
        if last is None or last[0] != number:
            last = number, event("snapshot", snapshot_view(job))
            self._snapshots[job] = last
        return last[1]


class EventStream:
    """The events of one job for one client; to be closed."""

    def __init__(self, job: str, streams: EventStreams) -> None:
        now = asyncio.get_running_loop().time()
        self._job = job
        self._streams = streams
        self._described: Job | None = None
        self._until = now + LONGEST
        self._ended = False
        #: The moment (seconds of the loop) of the next events.
        self.due = now

    def take(self) -> bytes | None:
        """Return the events for now; None if the stream has ended. Raises nothing."""
        now = asyncio.get_running_loop().time()
        if self._ended or self._streams.closing or now >= self._until:
            return None
        self.due = min(self._until, (math.floor(now / INTERVAL) + 1) * INTERVAL)
        try:
            return self._events(now)
        except Exception:
            _log.exception("the events of job %r failed", self._job)
            return None

    def dropped(self) -> None:
        """Log that the client was too slow."""
        _log.warning(
            "a client of the events of job %r is dropped: it has accepted no data for %g s",
            self._job,
            PATIENCE,
        )

    def close(self) -> None:
        """Release the place of the client."""
        self._streams.release(self)

    def _events(self, now: float) -> bytes:
        job = self._streams.job(self._job)
        if job is None and self._described is not None and self._described.status.has_ended:
            job = self._described  # the host has removed it, and the client has not seen its end
        if job is None:
            return self._end(None)
        described = b""
        if job is not self._described:
            described = self._streams.description(job, self._job)
            self._described = job
        snapshot = self._streams.snapshot(job, now)
        if not job.status.has_ended:
            return described + snapshot
        return described + snapshot + self._end(job.status)

    def _end(self, status: JobStatus | None) -> bytes:
        """Return the last event; the stream is due at once, so that its end is not delayed."""
        self._ended = True
        self.due = asyncio.get_running_loop().time()
        return event("end", {"status": None if status is None else status.value})


def event(name: str, value: Mapping[str, Any]) -> bytes:
    """Return an event whose data is ``value`` as JSON, which has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), encoded(value))
