"""Spark as a source and a sink, calls to services from its executors, backfills over history, and streams.

Needs Java 17 or newer, and ``pip install "aflow-streams[spark]"``. Nothing here imports pyspark before it is used, so
that a missing package is reported in one sentence.
"""

from __future__ import annotations

from aflow.backfill.live_savepoint import LiveSavepoint, StoredPosition
from aflow.backfill.stream_progress import BatchReport, SourceProgress, StreamProgress
from aflow_connectors.spark.backfill.api import backfill, explain
from aflow_connectors.spark.backfill.results import Backfilled, Results, StepDone
from aflow_connectors.spark.dataframe.map_async import map_async, schema_of
from aflow_connectors.spark.dataframe.source import SparkSource
from aflow_connectors.spark.environment import local_session
from aflow_connectors.spark.stream.api import stream
from aflow_connectors.spark.stream.query import StreamQuery
from aflow_connectors.spark.stream.source import SparkStream
from aflow_connectors.spark.stream.targets import EachEpoch
from aflow_connectors.spark.tables.folder_sink import SparkSink
from aflow_connectors.spark.tables.table_sink import SparkTableSink

__all__ = [
    "Backfilled",
    "BatchReport",
    "EachEpoch",
    "LiveSavepoint",
    "Results",
    "SourceProgress",
    "SparkSink",
    "SparkSource",
    "SparkStream",
    "SparkTableSink",
    "StepDone",
    "StoredPosition",
    "StreamProgress",
    "StreamQuery",
    "backfill",
    "explain",
    "local_session",
    "map_async",
    "schema_of",
    "stream",
]
