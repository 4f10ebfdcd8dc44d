"""Paths that this machine and Spark's executors may both see."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def uri_of(folder: Path) -> str:
    """``folder`` for Spark, whichever file system it takes paths for. Spark unquotes nothing, so nothing is quoted."""
    return f"file://{folder.absolute()}"


def path_of(uri: str) -> Path | None:
    """Where ``uri``, as Spark takes it, is if it is on this machine; None for one of another file system."""
    scheme, _, rest = uri.partition(":") if urlsplit(uri).scheme else ("", "", uri)
    if scheme.lower() == "file":
        is_here = rest.startswith("/") and (not rest.startswith("//") or rest.startswith("///"))
        return Path("/" + rest.lstrip("/")) if is_here else None
    return None if scheme else Path.cwd() / rest


def local_path(uri: str, session: SparkSession) -> Path | None:
    """As ``path_of``; None too if nobody knows to which file system Spark takes it that a path belongs."""
    return path_of(uri) if urlsplit(uri).scheme or is_local(session) else None


def remove_folder(folder: Path) -> None:
    """Remove ``folder``, if that can be done, though somebody may still write there; blocks."""
    # First away from those: what they add would keep it from being removed.
    gone = folder.with_name(f"{folder.name}-gone")
    with suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def is_local(session: SparkSession) -> bool:
    """True if executors are on this machine, in one process with Spark's driver."""
    return (session.conf.get("spark.master", "") or "").startswith("local")
