"""Restart strategies, for ``Flow.run(restart=…)``, and the events of restarts. Reached as ``aflow.restart``."""

from aflow.runtime.recovery import JobRestarted, JobRestored
from aflow.runtime.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart

__all__ = [
    "ExponentialDelay",
    "FailureRate",
    "FixedDelay",
    "JobRestarted",
    "JobRestored",
    "NoRestart",
]
