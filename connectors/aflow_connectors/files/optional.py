"""Optional packages that some formats need."""

from __future__ import annotations

from types import ModuleType

from aflow_connectors.optional import load


def pyarrow_parquet(purpose: str) -> ModuleType:
    """Import ``pyarrow.parquet``. Raises ``ConnectorError``."""
    return load("pyarrow.parquet", package="pyarrow", extra="parquet", purpose=purpose)


def pyarrow(purpose: str) -> ModuleType:
    """Import ``pyarrow``. Raises ``ConnectorError``."""
    return load("pyarrow", package="pyarrow", extra="parquet", purpose=purpose)


def zstandard(purpose: str) -> ModuleType:
    """Import ``zstandard``. Raises ``ConnectorError``."""
    return load("zstandard", package="zstandard", extra="zstd", purpose=purpose)
