"""The session that all of it runs in."""

from __future__ import annotations

from pathlib import Path


def settings(folder: Path) -> dict[str, str]:
    """Of the session."""
    # Java compiles as it does for everybody: a session for tests starts faster and runs slower, which would favour us.
    return {
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
