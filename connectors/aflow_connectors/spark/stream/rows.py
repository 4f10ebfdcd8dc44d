"""Rows of the sources of a stream: one streaming DataFrame, so that one Spark query has one checkpoint of all of them.

Rows of one source are read as they are. With several, each row has a column with the number of its source and, for each
source, a column with its row as a struct, which is null for the others. Spark reads the rows of one source without
those of the others, since the number is a constant in each part of the union.

Spark's checkpoint has the offsets of the sources by their order. That is the order of their names, and the names are in
the manifest of each epoch, so that no source continues at the offsets of another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from aflow_connectors.spark.stream.source import SparkStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBER: Final = "aflow_source"


@dataclass(frozen=True, slots=True)
class StreamRows:
    """The sources of a stream as one DataFrame."""

    sources: Mapping[str, SparkStream[Any]]
    _empty: dict[str, DataFrame] = field(
        init=False, repr=False, compare=False, default_factory=dict[str, "DataFrame"]
    )

    def frame(self) -> DataFrame:
        """Return the streaming DataFrame of all sources."""
        if len(self.sources) == 1:
            return next(iter(self.sources.values())).frame
        frames = map(self._tagged, sorted(self.sources))
        return reduce(lambda one, other: one.unionByName(other), frames)

    def of_source(self, name: str, rows: DataFrame) -> DataFrame:
        """Return the rows of one source among ``rows`` of ``frame()``."""
        if len(self.sources) == 1:
            return rows
        number = self._numbers()[name]
        return rows.where(f"{_NUMBER} = {number}").select(f"row_{number}.*")

    def empty(self, name: str, session: SparkSession) -> DataFrame:
        """Return a DataFrame without rows, with the columns of a source; the same for each epoch.

        It has one partition: Spark would run a task on each core otherwise.
        """
        if name not in self._empty:
            untyped: Any = session  # whose overloads name types of pandas
            made: DataFrame = untyped.createDataFrame([], self.sources[name].frame.schema)
            self._empty[name] = made.coalesce(1)
        return self._empty[name]

    def _tagged(self, name: str) -> DataFrame:
        from pyspark.sql import functions

        numbers = self._numbers()
        columns = [functions.lit(numbers[name]).alias(_NUMBER)]
        for other, number in numbers.items():
            schema = self.sources[other].frame.schema
            row = functions.struct("*") if other == name else functions.lit(None).cast(schema)
            columns.append(row.alias(f"row_{number}"))
        return self.sources[name].frame.select(*columns)

    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(sorted(self.sources))}
