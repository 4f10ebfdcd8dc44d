"""The error of latencies of results that are not those of single records."""

from __future__ import annotations

import pytest

from aflow.bench.load_source import RecordBatch
from aflow.bench.recorder import SinkRecord
from aflow.model.batch import Batch


def test_the_error_is_that_of_the_whole_batch_though_its_results_arrive_one_by_one() -> None:
    record = SinkRecord("out", 0)
    record.steady = lambda: 1.0
    correlation = RecordBatch("in", [0.1, 0.2, 0.4])

    for value in range(2):
        record.receive(Batch([value]), correlation)

    assert record.longest_batch == pytest.approx(0.3)
