"""The data of the page: a description of a job that does not change, and snapshots."""

from __future__ import annotations

import asyncio
from typing import Final

from aflow.model.distribution import VERSION
from aflow.runtime.checkpoints.statistics import CheckpointInfo, SubtaskCheckpoint
from aflow.runtime.clock import clock_on
from aflow.runtime.job import Job
from aflow.web.json_views import (
    View,
    checkpoint_view,
    configuration_view,
    failure_view,
    graph_view,
    restart_view,
)

#: The most checkpoints and restarts in a snapshot; the description has all checkpoints that the job keeps.
_LATEST: Final = 20


def description_view(job: Job, name: str) -> View:
    """Return all about ``job`` that does not change, and its checkpoints so far; ``name`` is that of its address."""
    return {
        "name": name,
        "version": VERSION,
        "graph": graph_view(job.setup.plan),
        "configuration": configuration_view(job),
        "checkpointing": job.setup.recovery.checkpointing is not None,
        "sampling": job.setup.options.samples is not None,
        "checkpoints": [checkpoint_row(one) for one in job.checkpoints],
    }


def snapshot_view(job: Job) -> View:
    """Return the state of ``job`` at this moment; ``at`` is processing time (epoch ms), ``steady`` is in seconds."""
    loop = asyncio.get_running_loop()
    return {
        "at": clock_on(loop, job.setup.options.clock).now(),
        "steady": loop.time(),
        "status": job.status.value,
        "failure": failure_view(job.failure),
        "restarts": [restart_view(one) for one in job.restarts[-_LATEST:]],
        "metrics": job.metrics(),
        "checkpoints": [checkpoint_row(one) for one in job.checkpoints[-_LATEST:]],
        "samples": job.samples,
    }


def checkpoint_row(info: CheckpointInfo) -> View:
    """Return a checkpoint with the sums of its subtasks, and the durations of the slowest."""
    view = checkpoint_view(info)
    parts: tuple[SubtaskCheckpoint, ...] = view.pop("subtasks")
    return {
        **view,
        "start_delay_ms": max((one.start_delay_ms for one in parts), default=None),
        "alignment_ms": max((one.alignment_ms for one in parts), default=None),
        "sync_ms": max((one.sync_ms for one in parts), default=None),
        "in_flight_records": sum(one.in_flight_records for one in parts),
    }
