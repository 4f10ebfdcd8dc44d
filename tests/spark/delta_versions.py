"""A streaming data source in Python, which replays offsets: versions of a Delta table to which rows are appended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

#: Without types.
_parquet: Any = pyarrow.parquet


class DeltaVersions(DataSource):
    """``spark.readStream.format("delta-versions").schema(…).load(folder)``."""

    @classmethod
    def name(cls) -> str:
        return "delta-versions"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - of Spark
        return _Versions(Path(self.options["path"]), schema.names)


class _Versions(DataSourceStreamReader):
    """Offsets are versions: all rows of the versions up to it have been read."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self._folder = folder
        self._columns = list(columns)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - of Spark
        return {"version": -1}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - of Spark
        return {"version": max(int(path.stem) for path in self._log.glob("*.json"))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        versions = range(start["version"] + 1, end["version"] + 1)
        return [InputPartition(name) for version in versions for name in self._added(version)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from _parquet.read_table(
            self._folder / partition.value, columns=self._columns
        ).to_batches()

    def commit(self, end: dict[str, int]) -> None:
        """No-op: a table keeps its versions."""

    @property
    def _log(self) -> Path:
        return self._folder / "_delta_log"

    def _added(self, version: int) -> list[str]:
        lines = (self._log / f"{version:020}.json").read_text().splitlines()
        return [entry["add"]["path"] for entry in map(json.loads, lines) if "add" in entry]
