"""Programs in an environment that is not activated, without Python settings: workers run the program's Python."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

import aflow as af
from aflow_connectors.spark import SparkSource, map_async


async def python_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"python": sys.executable}


def main(kind: str) -> None:
    """Print which Python runs the calls, and that rows are read."""
    del os.environ["PYSPARK_PYTHON"]
    os.environ["PATH"] = os.environ["PATH"].replace(os.path.dirname(sys.executable), "/nowhere")
    builder: Any = SparkSession.builder
    builder = builder.remote("local[1]") if kind == "connect" else builder.master("local[1]")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    (row,) = map_async(session.range(1), python_of, schema="python string").collect()
    print("calls in", row.python)
    out = af.CollectSink[Any]()
    flow = af.Flow("rows")
    flow.source(SparkSource(session.range(2)), name="rows").to(out, name="out")
    asyncio.run(flow.run())
    print("rows", sorted(row["id"] for row in out.values))
    session.stop()
