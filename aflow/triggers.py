"""Triggers, which decide when windows fire: ``window(…, trigger=…)``. Reached as ``aflow.triggers``."""

from aflow.machines.windows.trigger import MergeContext, Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    Count,
    Delta,
    EventTime,
    Never,
    ProcessingTime,
    Purging,
)

__all__ = [
    "ContinuousEventTime",
    "ContinuousProcessingTime",
    "Count",
    "Delta",
    "EventTime",
    "MergeContext",
    "Never",
    "ProcessingTime",
    "Purging",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
]
