"""Parquet that pyarrow writes, with what Spark has to know to read it as it reads its own."""

from __future__ import annotations

from typing import Any, Final

from aflow_connectors.files.optional import pyarrow, pyarrow_parquet
from aflow_connectors.spark.environment import VERSIONS

#: Which Spark has written a file. Without it, sessions with other settings than the default ones take moments and days
#: before 1582 for those of another calendar, or refuse them.
_VERSION: Final = "org.apache.spark.version"


def parquet_writer(where: Any, schema: Any, *, owner: str) -> Any:
    """A ``pyarrow.parquet.ParquetWriter`` into a path or a binary file.

    Columns of floats have no statistics. To Spark, which leaves out row groups by them, NaN is the largest number, and
    pyarrow does not count it: rows with NaN would be lost to ``WHERE f > 2``.
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
