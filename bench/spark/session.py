"""The local session of a benchmark."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aflow.errors import ConnectorError
from aflow_connectors.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def started(benchmark: str, folder: Path) -> Generator[SparkSession]:
    """Yield a session with its files in ``folder``, and stop it. Raises ``SystemExit`` if Spark cannot be started."""
    try:
        session = local_session(benchmark, conf=settings(folder))
    except ConnectorError as exc:
        raise SystemExit(f"{benchmark}: {exc}") from exc
    try:
        yield session
    finally:
        session.stop()


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of the session."""
    # Java's default compilers: the session of the tests starts faster and runs slower, which would favour aflow.
    return {
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
