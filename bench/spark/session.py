"""Settings of the session of the benchmarks."""

from __future__ import annotations

from pathlib import Path


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of the session."""
    # Java's default compilers: the session of the tests starts faster and runs slower, which would favour aflow.
    return {
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
