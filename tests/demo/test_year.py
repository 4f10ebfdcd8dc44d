"""The whole year: the pipeline's files against answers that pandas gives, row for row."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import aflow as af
from aflow.cli.demo.data import FlightData
from aflow.cli.demo.files import Files
from aflow.cli.demo.flights import MALFORMED, Flight
from tests.demo.expected import Expected, expected
from tests.demo.running import MAX_DELAY, Answers, answers, in_order

pytestmark = pytest.mark.slow

FILES = ("hourly", "daily", "late-hourly", "late-daily", "cancelled")


@pytest.fixture(scope="session")
def by_pandas(data: FlightData) -> Expected:
    return expected(data.folder / "flights.csv.zip", MAX_DELAY)


@pytest.fixture(scope="module")
def flights(replay: Files) -> list[Flight]:
    flow, read = af.Flow("read once"), af.CollectSink[Flight]()
    malformed = af.CollectSink[af.BadRecord]()
    rows = flow.source(replay.source())
    rows.to(read)
    rows.side(MALFORMED).to(malformed)
    asyncio.run(flow.run())
    assert malformed.values == []
    return read.values


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_results_says_what_pandas_says(
    year: Answers, by_pandas: Expected, file: str
) -> None:
    should_be = getattr(by_pandas, file.replace("-", "_"))

    rows = year.rows(file)

    assert len(rows) == len(should_be)
    assert rows == in_order(should_be)


def test_every_flight_is_counted_once_in_each_branch_or_is_late_there_or_cancelled(
    year: Answers,
) -> None:
    cancelled = len(year.rows("cancelled"))

    for file in ("hourly", "daily"):
        in_time = sum(row["delays"]["flights"] for row in year.rows(file))
        late = len(year.rows(f"late-{file}"))

        assert late > 0
        assert in_time + late + cancelled == 336_776


def test_nothing_in_the_table_of_2013_is_malformed(year: Answers) -> None:
    assert year.rows("malformed") == []


@pytest.mark.parametrize("parallelism", [2, 3, 7])
def test_the_results_are_the_same_for_any_parallelism(
    year: Answers, flights: list[Flight], tmp_path: Path, parallelism: int
) -> None:
    source = af.IterableSource(flights)

    divided = answers(source, tmp_path, parallelism=parallelism)

    for file in FILES:
        assert sorted(divided.lines(file)) == sorted(year.lines(file)), file
