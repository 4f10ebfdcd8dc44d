"""Spark's report on a batch that it has completed: ``StreamingQuery.lastProgress``, in terms of aflow.

This is what a ``StreamingQueryListener`` is told, too. A listener belongs to the session, and hears of all its queries
until it is removed; the report is part of the query, so nothing remains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from aflow.backfill.stream_progress import BatchReport, SourceProgress

#: Metrics of sources that count what is in no batch yet, and their units.
_OUTSTANDING: Final = {"numFilesOutstanding": "files", "numBytesOutstanding": "bytes"}

#: Start of Spark's name of its source for Kafka.
_KAFKA: Final = "Kafka"


def batch_report(progress: Mapping[str, Any]) -> BatchReport:
    """Return the report in ``progress``, the JSON object of a ``StreamingQueryProgress``."""
    return BatchReport(
        sources=tuple(map(_source, progress.get("sources", ()))),
        seconds={
            phase: milliseconds / 1000
            for phase, milliseconds in progress.get("durationMs", {}).items()
        },
    )


def _source(told: Mapping[str, Any]) -> SourceProgress:
    end = told.get("endOffset")
    return SourceProgress(
        description=str(told.get("description", "")),
        rows=int(told.get("numInputRows") or 0),
        behind=dict(_behind(told)),
        end=end if isinstance(end, str) else json.dumps(end),
    )


def _behind(told: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    metrics: Mapping[str, Any] = told.get("metrics") or {}
    for name, unit in _OUTSTANDING.items():
        with suppress(KeyError, ValueError):
            yield unit, float(metrics[name])
    # Spark has their minimum, maximum and mean; the sum is what can be compared with a rate.
    if str(told.get("description", "")).startswith(_KAFKA):
        end, latest = (_partitions(told.get(name)) for name in ("endOffset", "latestOffset"))
        if latest:
            yield "records", float(sum(at - end.get(one, at) for one, at in latest.items()))


def _partitions(offset: object) -> dict[tuple[str, str], int]:
    """Return the offset of each partition, of an offset of Kafka: ``{"payments": {"0": 17}}``."""
    if isinstance(offset, str):
        with suppress(ValueError):
            offset = json.loads(offset)
    if not isinstance(offset, dict):
        return {}
    topics = cast("Mapping[str, Mapping[str, int]]", offset)
    return {
        (topic, partition): at
        for topic, partitions in topics.items()
        for partition, at in partitions.items()
    }
