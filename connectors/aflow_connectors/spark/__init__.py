"""Spark as a source and a sink, calls to services from its executors, and backfills over history.

Needs Java 17 or newer, and ``pip install "aflow-streams[spark]"``. Nothing here imports pyspark before it is used, so
that a missing package is reported in one sentence.
"""

from __future__ import annotations

from aflow_connectors.spark.backfill import backfill, explain
from aflow_connectors.spark.done import Backfilled, StepDone
from aflow_connectors.spark.enrich import map_async, schema_of
from aflow_connectors.spark.environment import local_session
from aflow_connectors.spark.results import Results
from aflow_connectors.spark.sink import SparkSink
from aflow_connectors.spark.source import SparkSource
from aflow_connectors.spark.table_sink import SparkTableSink

__all__ = [
    "Backfilled",
    "Results",
    "SparkSink",
    "SparkSource",
    "SparkTableSink",
    "StepDone",
    "backfill",
    "explain",
    "local_session",
    "map_async",
    "schema_of",
]
