"""The summary of a backfill, as a person reads it. Needs no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

from aflow_connectors.spark.backfill.results import Backfilled, StepDone

DONE = Backfilled(
    flow="totals",
    until=1_748_736_000_000,
    savepoint=Path("state/start"),
    steps=(
        StepDone(0, "payments", 0, 123_456),
        StepDone(0, "times", 123_456, 123_000),
        StepDone(1, "total of a card", 123_000, 98),
    ),
    results={"totals": 98},
    left_out=456,
    partitions=4,
    seconds={"fragments": 3.25, "savepoint": 0.5},
)


def test_the_summary_is_a_table_of_steps_with_the_totals_below() -> None:
    assert str(DONE) == dedent(
        """\
        backfill of 'totals' until 2025-06-01T00:00:00.000+00:00
        step             fragment  records in  records out
        payments                0           0      123,456
        times                   0     123,456      123,000
        total of a card         1     123,000           98
        written to sink 'totals': 98 records
        at or after the end: 456 records, for the live job
        savepoint in state/start
        4 partitions; fragments 3.2 s, savepoint 0.5 s"""
    )


def test_the_summary_of_a_continued_backfill_says_where_it_began() -> None:
    continued = replace(
        DONE, until=None, savepoint=None, begins=0, restored=Path("state/first"), skipped=7
    )

    lines = str(continued).splitlines()

    assert lines[0] == (
        "backfill of 'totals' from 1970-01-01T00:00:00.000+00:00 to the end of history"
    )
    assert "before the beginning: 7 records, of an earlier backfill" in lines
    assert "continued from state/first" in lines
    assert not any(line.startswith("savepoint") for line in lines)
