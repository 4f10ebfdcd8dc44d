"""Bids that arrive in files, one file for each batch of a stream, in a fixed order."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "who string, at long, price int"


def put(folder: Path, number: int, records: Sequence[Any]) -> None:
    """Write the file of batch ``number``; readers see it when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{number}"
    hidden.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in records))
    # Spark reads files in the order of their times.
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(folder / f"{number:05}.json")


def put_all(folder: Path, records: Sequence[Any], files: int) -> None:
    """Divide ``records`` among ``files``, in order."""
    size = -(-len(records) // files)
    for number in range(files):
        put(folder, number, records[number * size : (number + 1) * size])


def read_stream(
    session: SparkSession, folder: Path, columns: str = COLUMNS, *, files: int = 1
) -> DataFrame:
    """Return the streaming DataFrame of the files, ``files`` in each batch."""
    reader = session.readStream.schema(columns).option("maxFilesPerTrigger", files)
    # The same order again after a restart: new files only.
    return reader.option("latestFirst", "false").option("maxFileAge", "100000d").json(str(folder))
