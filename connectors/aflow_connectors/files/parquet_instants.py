"""Moments in the Parquet files that Spark writes.

By default Spark writes a TIMESTAMP, which is a moment, in an old type of 96 bits that says nothing of a time zone, so
that pyarrow takes it for a time of day somewhere. Spark's TIMESTAMP_NTZ, which is such a time, has another type.
"""

from __future__ import annotations

from typing import Any, Final

from aflow_connectors.files.arrow_values import with_leaves
from aflow_connectors.files.optional import pyarrow

#: What Spark says of itself in its files.
_SPARK: Final = b"org.apache.spark.version"


class InstantsOfSpark:
    """The types that the columns of a file should have had, as far as Spark wrote moments without time zone."""

    def __init__(self, types: dict[str, Any]) -> None:
        self._types = types

    @classmethod
    def of(cls, file: Any) -> InstantsOfSpark | None:
        """For a ``ParquetFile``; None if there is nothing to be said."""
        if _SPARK not in (file.metadata.metadata or {}):
            return None
        arrow = pyarrow("ParquetSource")
        leaves = [file.schema.column(number) for number in range(len(file.schema))]
        old = iter([leaf.physical_type == "INT96" for leaf in leaves])
        types = {
            field.name: with_leaves(
                arrow, field.type, lambda leaf: arrow.timestamp("us", "UTC") if next(old) else leaf
            )
            for field in file.schema_arrow
        }
        known = {field.name: field.type for field in file.schema_arrow}
        differing = {name: kind for name, kind in types.items() if kind != known[name]}
        return cls(differing) if differing else None

    def said(self, batch: Any) -> Any:
        """``batch`` with moments in UTC, where they are."""
        for number, name in enumerate(batch.schema.names):
            if name in self._types:
                column = batch.column(number).cast(self._types[name])
                batch = batch.set_column(number, name, column)
        return batch
