"""Content of a folder of Parquet files, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet


def parquet_rows(folder: str | Path) -> list[dict[str, Any]]:
    reader: Any = pyarrow.parquet  # which has no types
    rows: list[dict[str, Any]] = reader.read_table(str(folder)).to_pylist()
    return rows


def parquet_file(path: Path) -> Any:
    """A ``pyarrow.parquet.ParquetFile``."""
    reader: Any = pyarrow.parquet
    return reader.ParquetFile(path)
