"""Spark's report on a batch is translated into terms of aflow, whatever its sources tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aflow_connectors.spark.stream.batch_report import batch_report

#: As Spark reports it, shortened.
KAFKA: dict[str, Any] = {
    "description": "KafkaV2[Subscribe[payments]]",
    "startOffset": {"payments": {"0": 10, "1": 5}},
    "endOffset": {"payments": {"0": 30, "1": 8}},
    "latestOffset": {"payments": {"0": 100, "1": 8, "2": 4}},
    "numInputRows": 23,
    "metrics": {"avgOffsetsBehindLatest": "23.3", "maxOffsetsBehindLatest": "70"},
}
DELTA: dict[str, Any] = {
    "description": "DeltaSource[file:/sales]",
    "endOffset": {"index": 3},
    "latestOffset": None,
    "numInputRows": 5,
    "metrics": {"numFilesOutstanding": "2", "numBytesOutstanding": "4096"},
}
FILES: dict[str, Any] = {
    "description": "FileStreamSource[file:/bids]",
    "endOffset": {"logOffset": 1},
    "latestOffset": None,
}


@pytest.mark.parametrize(
    ("told", "rows", "behind"),
    [
        (KAFKA, 23, {"records": 70.0}),
        (
            {name: json.dumps(one) if "Offset" in name else one for name, one in KAFKA.items()},
            23,
            {"records": 70.0},
        ),
        (DELTA, 5, {"files": 2.0, "bytes": 4096.0}),
        (FILES, 0, {}),
        ({**KAFKA, "latestOffset": None}, 23, {}),
        ({**DELTA, "metrics": {"numFilesOutstanding": "many"}}, 5, {}),
    ],
    ids=["Kafka", "offsets as text", "Delta", "files", "unknown latest", "no number"],
)
def test_what_a_source_has_not_read_yet_is_reported_by_unit(
    told: dict[str, Any], rows: int, behind: dict[str, float]
) -> None:
    [source] = batch_report({"sources": [told]}).sources

    assert source.description == told["description"]
    assert source.rows == rows
    assert source.behind == behind


def test_durations_are_in_seconds() -> None:
    report = batch_report(
        {"sources": [], "durationMs": {"walCommit": 15, "triggerExecution": 1200}}
    )

    assert report.seconds == {"walCommit": 0.015, "triggerExecution": 1.2}
    assert report.sources == ()
