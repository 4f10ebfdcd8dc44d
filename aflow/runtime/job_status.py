"""The status of a job, for health checks: one transition after the other, each logged once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from aflow.runtime import log_events


class JobStatus(Enum):
    """The present phase of a job."""

    CREATED = "created"
    """It was not started yet."""
    STARTING = "starting"
    """Connectors are being opened, and tasks built."""
    RESTORING = "restoring"
    """As before, from a checkpoint."""
    RUNNING = "running"
    """It processes records."""
    RESTARTING = "restarting"
    """It has failed, and waits for its next attempt."""
    DRAINING = "draining"
    """It was stopped, and processes what is in flight."""
    FINISHED = "finished"
    """It has processed everything: its input has ended, or it was stopped."""
    CANCELLED = "cancelled"
    """It was ended at once."""
    FAILED = "failed"
    """It has ended with an error, and is not restarted."""

    @property
    def has_ended(self) -> bool:
        """True if the status does not change any more."""
        return self in _ENDED


_ENDED: Final = frozenset({JobStatus.FINISHED, JobStatus.CANCELLED, JobStatus.FAILED})


class StatusRecord:
    """The status of one job, and the coroutines that wait until it runs."""

    def __init__(self, job: str, on_change: Callable[[JobStatus], None]) -> None:
        self._job = job
        self._on_change = on_change
        self.now = JobStatus.CREATED
        #: Set when the job runs for the first time, and when it ends.
        self._settled = asyncio.Event()

    def change(self, status: JobStatus) -> None:
        """Enter ``status``; harmless if it is the present one. A status that has ended is kept."""
        if status is self.now or self.now.has_ended:
            return
        log_events.STATUS.log(
            "job %r is %s",
            self._job,
            status.value,
            job=self._job,
            status=status.value,
            previous_status=self.now.value,
        )
        self.now = status
        self._on_change(status)
        if status is JobStatus.RUNNING or status.has_ended:
            self._settled.set()
        elif status in (JobStatus.STARTING, JobStatus.RESTORING, JobStatus.RESTARTING):
            self._settled.clear()

    async def settled(self) -> JobStatus:
        """Wait until the job runs, is being stopped or has ended, and return its status."""
        while True:
            await self._settled.wait()
            # The job may have failed between the event and this moment: then it is about to restart.
            if self._settled.is_set():
                return self.now
