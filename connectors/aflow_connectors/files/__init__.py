"""Files as sources and sinks: JSON lines, CSV, text and Parquet; text formats also compressed with gzip or zstd.

::

    from aflow_connectors.files import CsvSource, JsonLinesSink

    flights = CsvSource("flights/*.csv.gz", of=Flight, missing=("", "NA"))
    flow.source(flights, name="flights").filter(lambda f: f.delay > 60).to(JsonLinesSink("late.jsonl"), name="late")

A source reads one file, a folder or a pattern; each file is a split, with a position after each record. Bad records
raise ``SourceError`` with file, line and reason, or are emitted as dead letters. Files of a sink get their names
when they are complete. Read ``source.py`` and ``lines.py`` first for sources, ``output/pieces.py`` for sinks.
"""

from __future__ import annotations

from aflow_connectors.files.csv import CsvSource
from aflow_connectors.files.csv_sink import CsvSink
from aflow_connectors.files.jsonl import JsonLinesSource, JsonObject
from aflow_connectors.files.jsonl_sink import JsonLinesSink
from aflow_connectors.files.parquet import ParquetSource
from aflow_connectors.files.parquet_sink import ParquetSink
from aflow_connectors.files.text import TextSource

__all__ = [
    "CsvSink",
    "CsvSource",
    "JsonLinesSink",
    "JsonLinesSource",
    "JsonObject",
    "ParquetSink",
    "ParquetSource",
    "TextSource",
]
