"""Staged rows read directly from their files if the driver can access them: a Spark job takes a tenth of a second.

Only files that Spark marked as complete (``_SUCCESS``) are read; Spark reads the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from aflow_connectors.files.optional import pyarrow_parquet
from aflow_connectors.spark.dataframe.arrow import pa

#: Rows per batch. Each has some megabytes.
_AT_ONCE: Final = 8


def files_of(fragment: Path | None, exit: int) -> list[Path] | None:
    """Return the files with the rows of ``exit`` in the folder of a fragment; None if the driver cannot read them."""
    if fragment is None or not (fragment / "_SUCCESS").is_file():
        return None
    folder = fragment / f"exit={exit}"
    try:
        if not folder.exists():
            return []
        files = sorted(one for one in folder.iterdir() if one.suffix == ".parquet" and _shown(one))
        for file in files:
            _opened(file)
    except (OSError, pa.ArrowException):
        return None
    return files


def payloads(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield the payloads of all rows, in no order; blocks."""
    for file in files:
        for batch in _opened(file).iter_batches(_AT_ONCE, columns=["payload"]):
            yield from batch.column("payload").to_pylist()


def _shown(file: Path) -> bool:
    """Return False for files that Spark ignores too."""
    return not file.name.startswith((".", "_"))


def _opened(file: Path) -> Any:
    return pyarrow_parquet("a backfill").ParquetFile(str(file), page_checksum_verification=True)
