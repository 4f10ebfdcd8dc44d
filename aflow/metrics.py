"""Metrics of jobs, as ``Job.metrics()`` returns them. Reached as ``aflow.metrics``."""

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
    "StepMetrics",
    "TaskMetrics",
]
