"""Parquet files written by pyarrow with the metadata that Spark needs to read them as its own."""

from __future__ import annotations

from typing import Any, Final

from aflow_connectors.files.optional import pyarrow, pyarrow_parquet
from aflow_connectors.spark.environment import VERSIONS

#: Key of the Spark version that wrote a file. Without it, sessions with other than the default settings assume another
#: calendar for timestamps and dates before 1582, or refuse them.
_VERSION: Final = "org.apache.spark.version"


def parquet_writer(where: Any, schema: Any, *, owner: str) -> Any:
    """Return a ``pyarrow.parquet.ParquetWriter`` into a path or a binary file.

    Float columns get no statistics. Spark skips row groups by them and treats NaN as the largest number, but pyarrow
    excludes NaN from them: ``WHERE f > 2`` would lose rows with NaN.
    """
    version = ".".join(map(str, VERSIONS["pyspark"][0]))
    described = schema.with_metadata({**(schema.metadata or {}), _VERSION: version})
    types = pyarrow(owner).types
    counted = [
        field.name
        for field in schema
        if not types.is_nested(field.type) and not types.is_floating(field.type)
    ]
    return pyarrow_parquet(owner).ParquetWriter(
        where, described, write_statistics=counted, write_page_checksum=True
    )
