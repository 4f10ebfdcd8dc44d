"""Summary of a completed backfill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True)
class StepDone:
    """Record counts of a step, over all partitions of a fragment."""

    fragment: int
    """Index of the fragment, as ``explain`` shows it."""
    name: str
    records_in: int
    """Always 0 for a source."""
    records_out: int
    """Records of the main output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """Summary of a completed backfill."""

    flow: str
    until: Timestamp | None
    """End of the history (epoch ms), exclusive; None if all of history was processed."""
    savepoint: Path | None
    """Folder of the savepoint from which the live job starts; None if none was written."""
    steps: tuple[StepDone, ...]
    """In the order of the flow; a step downstream of a union has one entry for each fragment that contains it."""
    results: Mapping[str, int]
    """Number of records written, by sink."""
    left_out: int
    """Records of the sources at or after the end of the history, which the live job processes."""
    partitions: int
    """Number of partitions of keyed fragments."""
    seconds: Mapping[str, float]
    """Duration by phase: fragments, results, savepoint. A fragment without a Spark job of its own counts in that of its
    reader.
    """
