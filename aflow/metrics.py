"""Metrics of jobs, as ``Job.metrics()`` returns them, and their status. Reached as ``aflow.metrics``."""

from aflow.operators.latency import LatencyMetrics
from aflow.runtime.job_status import JobStatus
from aflow.runtime.metrics import (
    BlockedMetrics,
    CallMetrics,
    CheckpointMetrics,
    JobMetrics,
    StepMetrics,
    TaskMetrics,
)

__all__ = [
    "BlockedMetrics",
    "CallMetrics",
    "CheckpointMetrics",
    "JobMetrics",
    "JobStatus",
    "LatencyMetrics",
    "StepMetrics",
    "TaskMetrics",
]
