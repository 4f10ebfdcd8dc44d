"""An environment that is not activated, without Python settings, in which workers run the program's Python."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from aflow_connectors.spark import map_async

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def leave_environment() -> None:
    """Make this process one whose environment is not activated, before its JVM starts."""
    del os.environ["PYSPARK_PYTHON"]
    os.environ["PATH"] = os.environ["PATH"].replace(os.path.dirname(sys.executable), "/nowhere")


async def python_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"python": sys.executable}


def python_of_calls(session: SparkSession) -> str:
    """Return the Python that runs the calls of a DataFrame, the first use of ``session``."""
    (row,) = map_async(session.range(1), python_of, schema="python string").collect()
    return str(row.python)
