"""The progress of a stream adds up what its partitions and epochs report, as the metrics of a live job do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from aflow.backfill.epochs import EpochPart
from aflow.backfill.step_totals import StepCount, StepTotals
from aflow.backfill.stream_progress import (
    BatchReport,
    EpochPosition,
    EpochReport,
    ProgressRecorder,
    entries_after,
)
from aflow.machines.calls.counters import CallCounters
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp


def test_counters_of_partitions_and_epochs_add_up() -> None:
    totals = StepTotals(["times", "ask", "sums"])
    calls = CallCounters(calls=3, retries=1, timeouts=1, in_flight=2, waiting=1, limit=8)
    totals.add(
        [
            {"ask": StepCount(5, 2, 4, sides={"failed": 1}, calls=calls)},
            {"ask": StepCount(7, 1, 7, sides={"failed": 2, "late": 1}, calls=calls)},
        ],
        {"times": 900},
    )
    totals.add([{"ask": StepCount(1, 1, 1, calls=calls)}], {"times": 950})
    totals.add_received("sums", 12)

    found = totals.metrics(1000)

    assert list(found) == ["times", "ask", "sums"]
    ask = found["ask"]
    assert (ask.records_in, ask.batches_in, ask.records_out) == (13, 4, 12)
    assert ask.sides == {"failed": 3, "late": 1}
    assert ask.calls is not None
    assert (ask.calls.calls, ask.calls.retries, ask.calls.timeouts) == (9, 3, 3)
    # Between two epochs no call is in flight.
    assert (ask.calls.in_flight, ask.calls.waiting, ask.calls.limit) == (0, 0, 0)
    assert (found["times"].watermark, found["times"].lag_ms) == (950, 50)
    assert found["sums"].records_in == 12


@pytest.mark.parametrize(
    ("emitted", "watermark", "lag"),
    [
        ([300, 700], 300, 700),
        ([300, MIN_TIMESTAMP], None, None),
        ([MAX_TIMESTAMP, MAX_TIMESTAMP], MAX_TIMESTAMP, None),
    ],
    ids=["the least", "none yet", "the end"],
)
def test_the_watermark_of_a_step_is_that_of_its_last_partition(
    emitted: list[Timestamp], watermark: Timestamp | None, lag: int | None
) -> None:
    totals = StepTotals(["sum"])
    totals.add([{"sum": StepCount(watermark=at)} for at in emitted], {})

    found = totals.metrics(1000)["sum"]

    assert (found.watermark, found.lag_ms) == (watermark, lag)


def position(epoch: int, batch: int | None, watermark: Timestamp | None = None) -> EpochPosition:
    return EpochPosition(
        epoch=epoch,
        batch=batch,
        watermark=watermark,
        earned={},
        state_bytes=100 * epoch,
        state_entries=None if epoch == 2 else 3 * epoch,
        committed_at=1000 * epoch,
        savepoint=Path("/july") if epoch == 5 else None,
    )


def report(records: int, seconds: Mapping[str, float]) -> EpochReport:
    return EpochReport(steps=[], records=records, results={"sums": records}, seconds=seconds)


@pytest.mark.parametrize(
    ("before", "entries", "complete", "expected"),
    [
        (0, [(0, 4), (0, 5)], [True, True], 9),
        (None, [(3, 4), (3, 5)], [True, True], 9),
        # Some keys were restored, of 100.
        (100, [(7, 9), (8, 7)], [False, False], 101),
        (100, [(7, 9), (50, 51)], [False, True], 103),
        (None, [(7, 9), (50, 51)], [False, True], None),
        (0, [], [], 0),
    ],
    ids=["new", "all are read", "some keys", "one compacts", "unknown", "no state"],
)
def test_values_in_the_state_are_counted_by_tasks_that_restore_some_keys_only(
    before: int | None, entries: list[tuple[int, int]], complete: list[bool], expected: int | None
) -> None:
    parts = [EpochPart("sum", number, None, complete=one) for number, one in enumerate(complete)]

    # A task without state has left no part.
    assert entries_after(before, [*zip(parts, entries, strict=True), (None, (0, 0))]) == expected


def test_progress_is_that_of_the_last_epoch_and_of_all_together() -> None:
    recorder = ProgressRecorder("sums", steps=["sum"], sinks=["sums"], interval=2.0)
    recorder.begin(position(2, 7))
    at_first = recorder.progress(0)
    recorder.on_replay()
    recorder.on_epoch(position(3, 8), report(60, {"fragments": 2.5, "commit": 0.5}), has_rows=True)
    recorder.on_batch(BatchReport(seconds={"walCommit": 0.1}))
    recorder.on_epoch(position(4, 8, 500), report(0, {"fragments": 0.25}), has_rows=False)

    found = recorder.progress(0)

    assert (at_first.epoch, at_first.batch, at_first.epochs) == (2, 7, 0)
    assert at_first.state_entries is None
    assert (found.epoch, found.batch, found.watermark) == (4, 8, 500)
    assert (found.epochs, found.epochs_without_rows, found.replays) == (2, 1, 1)
    assert (found.state_bytes, found.state_entries, found.committed_at) == (400, 12, 4000)
    assert (found.records, found.results) == (60, {"sums": 60})
    # An epoch without rows does not change the rate, nor the load.
    assert (found.records_per_second, found.load) == (20.0, 1.5)
    assert found.seconds == {"fragments": 0.25}
    assert found.total_seconds == {"fragments": 2.75, "commit": 0.5}
    assert found.last_batch.seconds == {"walCommit": 0.1}
    assert found.steps["sums"].records_in == 60
    assert found.savepoint is None
