"""Watermark generators and the alignment of sources, for ``event_time(…)``. Reached as ``aflow.watermarks``."""

from aflow.machines.watermarks.generators import (
    BoundedOutOfOrderness,
    Monotonic,
    Periodic,
    Punctuated,
    WatermarkGenerator,
)
from aflow.operators.alignment import Alignment

__all__ = [
    "Alignment",
    "BoundedOutOfOrderness",
    "Monotonic",
    "Periodic",
    "Punctuated",
    "WatermarkGenerator",
]
