"""The dependence of steps on the watermark that each record meets (docs/decisions/045)."""

from __future__ import annotations

from enum import Enum


class WatermarkUse(Enum):
    """Use that a step makes of the column ``watermarks`` of its batches."""

    CARRIED = "carried"
    """Results do not depend on it, and each result carries the watermark of its record."""
    READ = "read"
    """The operator applies the watermarks itself, between the records."""
    APPLIED = "applied"
    """The link passes each watermark to the operator, between the records."""
    APPLIED_FOR_READERS = "applied for readers"
    """Results do not depend on it, and they carry none: it is applied if a step downstream depends on it."""
    UNUSED = "unused"
    """The watermark after the batch is sufficient: a watermark emits the results, and records do not."""
