"""A timestamp in another unit than milliseconds causes one warning, for the first record."""

from __future__ import annotations

import asyncio
import warnings
from datetime import UTC, datetime

import pytest

import aflow as af
from aflow.testing import At, ScriptedSource

NOON = int(datetime(2025, 6, 1, 12, tzinfo=UTC).timestamp())


def run(source: af.Source[int], *, given: bool = False, parallelism: int = 1) -> list[str]:
    """Return the warnings of a flow of records that are their own event time."""
    flow = af.Flow("units")
    records = flow.source(source, name="source")
    timed = records.event_time(name="t") if given else records.event_time(lambda r: r, name="t")
    timed.to(af.CollectSink[int](), name="out")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            asyncio.run(flow.run(parallelism=parallelism))
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("in_a_second", "unit", "conversion"),
    [
        (1, "seconds", "* 1000)"),
        (1_000_000, "microseconds", "// 1000)"),
        (1_000_000_000, "nanoseconds", "// 1_000_000)"),
    ],
)
def test_a_timestamp_in_another_unit_causes_a_warning_with_the_record_and_the_conversion(
    in_a_second: int, unit: str, conversion: str
) -> None:
    first = NOON * in_a_second

    (warning,) = run(af.IterableSource([first, first + 1]))

    assert (
        f"step 't': event time must be epoch milliseconds, and that of the first record, {first}"
        in warning
    )
    assert f"in {unit}: 2025-06-01T12:00:00.000+00:00, not " in warning
    assert conversion in warning
    assert warning.endswith(f"The record is {first}")


def test_all_subtasks_together_warn_once() -> None:
    source = ScriptedSource.of_splits({split: [NOON] for split in "abcd"})

    assert len(run(source, parallelism=4)) == 1


def test_timestamps_of_the_source_are_checked_too() -> None:
    source = ScriptedSource[int](At(1, NOON))

    assert len(run(source, given=True)) == 1


@pytest.mark.parametrize("first", [0, 999_999_999, 4_100_000_000, NOON * 1000, -NOON, 2**63 - 1])
def test_milliseconds_cause_no_warning(first: int) -> None:
    assert run(af.IterableSource([first, NOON])) == []


def test_where_warnings_are_errors_the_job_fails_with_it() -> None:
    flow = af.Flow("strict")
    flow.source([NOON], name="source").event_time(lambda r: r, name="t").to(af.CollectSink[int]())

    with pytest.raises(af.OperatorError, match="seems to be in seconds"):
        asyncio.run(flow.run())
