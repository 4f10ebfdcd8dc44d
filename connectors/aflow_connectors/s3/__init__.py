"""Object storage: the objects of a bucket as sources and sinks, and checkpoints and savepoints in a bucket.

::

    from aflow_connectors.s3 import JsonLinesObjects, ObjectStorage, ParquetObjectSink

    clicks = flow.source(JsonLinesObjects("s3://clicks/2026/*/*.jsonl.gz", of=Click), name="clicks")
    sums.to(ParquetObjectSink("s3://reports/sums"), name="sums")
    checkpoints = af.Checkpointing(storage=ObjectStorage("s3://state/clicks"))

``output.py`` has the protocol of exactly-once objects; that of checkpoints is in ``aflow``. The client is ``obstore``.
"""

from __future__ import annotations

from aflow_connectors.s3.sink import CsvObjectSink, JsonLinesObjectSink, ParquetObjectSink
from aflow_connectors.s3.source import CsvObjects, JsonLinesObjects, ParquetObjects
from aflow_connectors.s3.storage import ObjectStorage

__all__ = [
    "CsvObjectSink",
    "CsvObjects",
    "JsonLinesObjectSink",
    "JsonLinesObjects",
    "ObjectStorage",
    "ParquetObjectSink",
    "ParquetObjects",
]
