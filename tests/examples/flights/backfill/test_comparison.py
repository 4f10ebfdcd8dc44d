"""Comparison of the rows of two parts with those of the whole, in any files and order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import aflow as af
from flights.backfill.comparison import Compared, compare
from flights.backfill.files import Computation, HistoryFiles
from flights.backfill.hours import Hour

pytest.importorskip("pyarrow")

ONE = Hour("JFK", datetime(2013, 7, 1, tzinfo=UTC), flights=3, minutes=-4, longest=12)
OTHER = replace(ONE, airport="EWR")
THIRD = replace(ONE, airport="LGA")


def compared(folder: Path, **rows: list[Hour]) -> Compared:
    """Compare the sink ``hours`` with ``rows`` of each part; the other sinks have none."""
    files = HistoryFiles(folder)
    for where in Computation:
        if where.value in rows:
            flow = af.Flow("rows")
            hours = flow.source(rows[where.value], name="rows")
            hours.to(files.sinks(where)["hours"], name="hours")
            asyncio.run(flow.run())
    return next(one for one in compare(files) if one.sink == "hours")


def test_both_parts_are_the_whole(tmp_path: Path) -> None:
    result = compared(tmp_path, history=[OTHER], live=[THIRD, ONE], whole=[ONE, OTHER, THIRD])

    assert result == Compared("hours", history=1, live=2, whole=3, differences=0)


@pytest.mark.parametrize(
    ("live", "differences"),
    [
        ([], 2),
        ([ONE], 1),
        ([ONE, THIRD, THIRD], 1),
        ([ONE, replace(THIRD, minutes=5)], 2),
        ([ONE, THIRD, OTHER], 1),
    ],
    ids=["no part", "one lost", "one twice", "one that is another", "one in both parts"],
)
def test_each_row_without_an_equal_is_a_difference(
    tmp_path: Path, live: list[Hour], differences: int
) -> None:
    result = compared(tmp_path, history=[OTHER], live=live, whole=[ONE, OTHER, THIRD])

    assert result.differences == differences
