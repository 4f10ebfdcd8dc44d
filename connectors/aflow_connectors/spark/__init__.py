"""Spark as a source and a sink, calls to services from its executors, and backfills over history.

Needs Java 17 or newer, and ``pip install "aflow[spark]"``. Nothing here imports pyspark before it is used, so that what
is missing can be said in one sentence.
"""

from __future__ import annotations

from aflow_connectors.spark.backfill import Backfilled, StepDone, backfill, explain
from aflow_connectors.spark.environment import local_session
from aflow_connectors.spark.results import Results

__all__ = ["Backfilled", "Results", "StepDone", "backfill", "explain", "local_session"]
