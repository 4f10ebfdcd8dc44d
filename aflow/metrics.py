"""Metrics of jobs, as ``Job.metrics()`` returns them, their status, and samples of records. Reached as
``aflow.metrics``."""

from aflow.operators.latency import LatencyMetrics
from aflow.runtime.calls.reports import Blockage, BlockedMetrics
from aflow.runtime.job_status import JobStatus
from aflow.runtime.metrics import (
    CallMetrics,
    CheckpointMetrics,
    JobMetrics,
    StepMetrics,
    TaskMetrics,
)
from aflow.runtime.samples import RecordSample, RecordSamples

__all__ = [
    "Blockage",
    "BlockedMetrics",
    "CallMetrics",
    "CheckpointMetrics",
    "JobMetrics",
    "JobStatus",
    "LatencyMetrics",
    "RecordSample",
    "RecordSamples",
    "StepMetrics",
    "TaskMetrics",
]
