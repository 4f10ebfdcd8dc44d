"""The column of a streaming DataFrame that says to which split of its source a row belongs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aflow.backfill.blocks import SplitRows


@dataclass(frozen=True, slots=True)
class SplitColumn:
    """The splits of a source, by the values of a column: ``partition`` of Kafka."""

    source: str
    column: str

    def divided(self, batch: Any, records: Sequence[Any]) -> Iterator[SplitRows]:
        """Yield the ``records`` of the rows of an Arrow ``batch`` by split, those of each in order."""
        splits: dict[object, list[Any]] = {}
        values = batch.column(self.column).to_pylist()
        for value, record in zip(values, records, strict=True):
            splits.setdefault(value, []).append(record)
        for value, some in splits.items():
            # A step downstream of a union of sources has the splits of all.
            yield SplitRows(f"{self.source}:{value}", some)
