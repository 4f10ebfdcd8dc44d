"""Paths that this machine and Spark's executors may share."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def uri_of(folder: Path) -> str:
    """Return ``folder`` as a URI, independent of Spark's default file system. Spark unquotes nothing, so nothing is
    quoted.
    """
    return f"file://{folder.absolute()}"


def path_of(uri: str) -> Path | None:
    """Return the local path of ``uri``, parsed as Spark does; None for another file system."""
    scheme, _, rest = uri.partition(":") if urlsplit(uri).scheme else ("", "", uri)
    if scheme.lower() == "file":
        is_here = rest.startswith("/") and (not rest.startswith("//") or rest.startswith("///"))
        return Path("/" + rest.lstrip("/")) if is_here else None
    return None if scheme else Path.cwd() / rest


def local_path(uri: str, session: SparkSession) -> Path | None:
    """Return the local path as ``path_of`` does; None too if the file system of a plain path is unknown."""
    return path_of(uri) if urlsplit(uri).scheme or is_local(session) else None


def remove_folder(folder: Path) -> None:
    """Remove ``folder`` if possible, even while executors still write into it; blocks."""
    # Renamed first: files that executors add would prevent the removal.
    gone = folder.with_name(f"{folder.name}-gone")
    with suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def is_local(session: SparkSession) -> bool:
    """Return True if executors run on this machine, in one process with Spark's driver."""
    return (session.conf.get("spark.master", "") or "").startswith("local")
