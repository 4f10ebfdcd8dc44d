"""Progress of a stream, in terms of aflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """Progress of a stream up to its last committed epoch."""

    flow: str
    epoch: int
    """Number of that epoch; that of the start, if none was committed since."""
    batch: int | None
    """Spark's number of the last batch in it; None before the first one."""
    watermark: Timestamp | None
    """Event time (epoch ms) up to which all keyed steps and sources that are not idle have advanced; None before any
    record."""
    records: int
    """Records of the sources that this query has processed, in all its epochs."""
    records_per_second: float
    """Records of the last epoch with any, over its duration."""
    state_bytes: int
    """Size of the stored state."""
    results: Mapping[str, int]
    """Number of records written by this query, by sink."""
    seconds: Mapping[str, float]
    """Duration of the last epoch by phase: fragments, results, commit."""
    savepoint: Path | None = None
    """Folder of the savepoint, once it is written."""
