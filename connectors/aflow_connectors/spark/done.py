"""What a backfill has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step, over all partitions of a fragment."""

    fragment: int
    """By its index, as ``explain`` shows it."""
    name: str
    records_in: int
    """0 for a source."""
    records_out: int
    """Of its main output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """What a backfill has done."""

    flow: str
    until: Timestamp | None
    """The end of the history (epoch ms), exclusive; None: there was none."""
    savepoint: Path | None
    """From which the live job starts."""
    steps: tuple[StepDone, ...]
    """In the order of the flow; a step behind a union is there once for each fragment that has it."""
    results: Mapping[str, int]
    """By sink, how many records it got."""
    left_out: int
    """Records of the sources at or behind the end of the history, which are the live job's."""
    partitions: int
    """Of keyed fragments."""
    seconds: Mapping[str, float]
    """By what was done: the fragments, of which one that has no pass of its own is in that of its reader, the results,
    the savepoint."""
