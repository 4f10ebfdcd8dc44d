"""A DataFrame is a source: by way of a snapshot, or as a stream."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from aflow import Checkpointing, CollectSink, Flow
from aflow.connect import BadRecord, Source, SourceError, Tag
from aflow.errors import FlowDefinitionError
from aflow.graph.plan_graph import to_text
from aflow.restart import FixedDelay
from aflow.testing import check_source
from aflow_connectors.spark import SparkSource
from tests.connectors.files.reading import chunks, records, rejected, values
from tests.spark.slow_tasks import hundred_seconds, until_started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

AT = datetime(2024, 1, 1, 12, tzinfo=UTC)
TYPES = """
    id, timestamp'2024-01-01 12:00:00' AS at, timestamp_ntz'2024-01-01 12:00:00' AS there, date'2024-01-01' AS day,
    CAST(1.50 AS decimal(10, 2)) AS price, array(timestamp'2024-01-01 12:00:00', NULL) AS times,
    named_struct('n', id, 'at', timestamp'2024-01-01 12:00:00') AS inner, IF(id = 1, NULL, 'x') AS text
"""


@dataclass(frozen=True, slots=True)
class Payment:
    id: int
    text: str


def typed(spark: SparkSession) -> DataFrame:
    return spark.range(0, 5, 1, 3).selectExpr(*split_at_commas(TYPES))


def split_at_commas(text: str) -> list[str]:
    """Expressions between the commas that are outside brackets."""
    parts, depth = [""], 0
    for letter in text.strip():
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def row(number: int) -> dict[str, object]:
    return {
        "id": number,
        "at": AT,
        "there": AT.replace(tzinfo=None),
        "day": date(2024, 1, 1),
        "price": Decimal("1.50"),
        "times": [AT, None],
        "inner": {"n": number, "at": AT},
        "text": None if number == 1 else "x",
    }


async def counted(source: Source[object]) -> int:
    """Number of records, without keeping them."""
    count = 0
    for split in await source.splits():
        reader = await source.reader(split, None)
        while (chunk := await reader.read(1024)) is not None:
            count += len(chunk.values)
        await reader.close()
    return count


def active_jobs(spark: SparkSession) -> list[int]:
    return spark.sparkContext.statusTracker().getActiveJobsIds()


async def cancelled_after(started: Path, source: Source[object]) -> float:
    """Seconds that a job over ``source`` takes to end if it is cancelled when the file ``started`` exists."""
    flow = Flow("cancelled")
    flow.source(source, name="rows").to(CollectSink(), name="out")
    running = asyncio.ensure_future(flow.run())
    await until_started(started)
    begin = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return time.monotonic() - begin


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_row_is_a_record_by_way_of_a_snapshot_and_as_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = typed(spark)

    written = await records(SparkSource(frame, snapshot=tmp_path / "s"))
    read_again = await records(SparkSource(frame, snapshot=(tmp_path / "s").as_uri()))
    streamed = await records(SparkSource(frame))

    assert written == read_again == streamed == [row(n) for n in range(5)]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_as_a_stream_it_keeps_to_the_contract_of_sources(spark: SparkSession) -> None:
    # By way of a snapshot it does, too: test_snapshots.py.
    frame = spark.range(0, 3, 1, 1)

    await check_source(lambda: SparkSource(frame), expected=[{"id": n} for n in range(3)])


@pytest.mark.slow
@pytest.mark.asyncio
async def test_moments_are_in_utc_wherever_the_session_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql("SELECT timestamp'2024-01-01 07:00:00' AS at")
        streamed = await records(SparkSource(frame))
        written = await records(SparkSource(frame, snapshot=tmp_path / "s"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert streamed == written == [{"at": AT}]
    assert [record[0]["at"].utcoffset() for record in (streamed, written)] == [timedelta(0)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "stream"])
@pytest.mark.asyncio
async def test_rows_become_records_of_a_type_and_those_that_do_not_fit_dead_letters(
    spark: SparkSession, tmp_path: Path, snapshot: bool
) -> None:
    source = SparkSource(
        typed(spark),
        snapshot=tmp_path / "s" if snapshot else None,
        of=Payment,
        dead_letters=Tag[BadRecord]("bad"),
    )

    found = await chunks(source)

    assert values(found) == [Payment(n, "x") for n in (0, 2, 3, 4)]
    [(place, reason, _)] = rejected(found)
    assert place.endswith("row group 0, row 0" if snapshot else "DataFrame, row 1")
    assert reason == "Expected `str`, got `null` - at `$.text`"


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_job_that_fails_in_the_middle_reads_each_row_once_and_asks_spark_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    asked: list[int] = []
    failing = iter([False] * 700 + [True])

    def frame() -> DataFrame:
        asked.append(1)
        return spark.range(0, 2000, 1, 4)

    def checked(record: dict[str, Any]) -> int:
        if next(failing, False):
            raise RuntimeError("a crash")
        return cast(int, record["id"])

    out = CollectSink[int]()
    flow = Flow("restarting")
    source = SparkSource(frame, snapshot=tmp_path / "s")
    flow.source(source, name="rows").map(checked, name="checked").to(out, name="out")

    await flow.run(
        parallelism=2,
        checkpointing=Checkpointing(every=timedelta(milliseconds=10), storage=tmp_path / "c"),
        restart=FixedDelay(attempts=1, delay=timedelta(0)),
    )

    assert sorted(out.values) == list(range(2000))
    assert asked == [1]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_snapshot_of_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    await SparkSource(spark.range(3), snapshot=tmp_path).splits()

    with pytest.raises(SourceError) as caught:
        await SparkSource(spark.range(3).toDF("n"), snapshot=tmp_path).splits()

    assert str(caught.value) == (
        f"the snapshot {tmp_path} has the columns struct<id:bigint>, and the DataFrame struct<n:bigint>: give another "
        "folder, or remove this one, and it is written again"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "error"),
    [
        pytest.param(
            "SELECT 1 AS a, 2 AS a",
            "there is more than one column 'a', and fields are found by their names",
            id="twice",
        ),
        pytest.param(
            "SELECT map(struct(1), 2) AS a",
            r"column 'a': a map with keys of type struct<.*> cannot be a dict of Python; .*map_entries",
            id="keys",
        ),
        pytest.param(
            "SELECT array(interval 3 days) AS a",
            "column 'a' is of type array<interval day>, and in Parquet only Spark knows interval: cast it",
            id="interval",
        ),
        pytest.param(
            "SELECT raise_error('no such card') AS a",
            r"writing the snapshot .* failed: \[USER_RAISED_EXCEPTION\] no such card",
            id="failing",
        ),
    ],
)
@pytest.mark.asyncio
async def test_a_failed_write_is_an_error_and_leaves_no_files(
    spark: SparkSession, tmp_path: Path, query: str, error: str
) -> None:
    with pytest.raises(SourceError, match=error):
        await SparkSource(spark.sql(query), snapshot=tmp_path).splits()

    assert list(tmp_path.glob("rows-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "error"),
    [
        pytest.param(
            "SELECT 1 AS a, 2 AS a",
            "there is more than one column 'a', and fields are found by their names",
            id="twice",
        ),
        pytest.param(
            "SELECT map(struct(1), 2) AS a",
            r"column 'a': a map with keys of type struct<.*> cannot be a dict of Python; .*map_entries",
            id="keys",
        ),
        pytest.param(
            "SELECT raise_error('no such card') AS a",
            r"^reading the DataFrame failed: \[USER_RAISED_EXCEPTION\] no such card",
            id="failing",
        ),
    ],
)
@pytest.mark.asyncio
async def test_a_dataframe_that_cannot_be_streamed_is_an_error(
    spark: SparkSession, query: str, error: str
) -> None:
    with pytest.raises(SourceError, match=error):
        await records(SparkSource(spark.sql(query)))


@pytest.mark.slow
@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "stream"])
@pytest.mark.asyncio
async def test_cancelling_a_job_cancels_its_spark_jobs(
    spark: SparkSession, tmp_path: Path, snapshot: bool
) -> None:
    folder, started = tmp_path / "snapshot", tmp_path / "started"
    frame = hundred_seconds(spark, started)
    source = SparkSource(frame, snapshot=folder if snapshot else None)

    took = await cancelled_after(started, source)

    assert took < 50
    assert active_jobs(spark) == []
    assert list(folder.glob("rows-*")) == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_loop_runs_while_spark_works(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 400_000, 1, 4).selectExpr(
        "id", "timestamp_millis(id) AS at", "CAST(id AS string) AS text"
    )
    stalls: list[float] = []

    async def sample() -> None:
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.001)
            stalls.append(time.perf_counter() - begin - 0.001)

    async with asyncio.TaskGroup() as tasks:
        sampler = tasks.create_task(sample())
        begin = time.perf_counter()
        count = await counted(SparkSource(frame, snapshot=tmp_path / "s"))
        count += await counted(SparkSource(frame))
        took = time.perf_counter() - begin
        sampler.cancel()

    print(f"worst stall {max(stalls) * 1000:.1f} ms of {took * 1000:.0f} ms")
    assert count == 800_000
    # A call that Spark answers on the loop would take a large part of the time. Not a number of milliseconds: other
    # programs on the machine stall the loop, and slow down Spark.
    assert max(stalls) < took / 4


@pytest.mark.asyncio
async def test_a_stream_cannot_be_continued_and_the_plan_says_so() -> None:
    source = SparkSource(_no_frame)
    flow = Flow("stream")
    flow.source(source, name="rows").to(CollectSink(), name="out")

    drawn = to_text(flow.plan())

    assert "rows  source SparkSource · bounded · not replayable" in drawn
    assert "out: no guarantee; 'rows' cannot be read again" in drawn
    [split] = await source.splits()
    with pytest.raises(
        SourceError, match=r"of which 7 rows were read before, .* with snapshot= it"
    ):
        await source.reader(split, 7)


@pytest.mark.asyncio
async def test_a_function_that_returns_no_dataframe_is_an_error() -> None:
    with pytest.raises(SourceError, match="must return a DataFrame of Spark, not 7"):
        await records(SparkSource(cast(Any, lambda: 7)))


def test_a_value_that_is_no_dataframe_is_refused_at_once() -> None:
    with pytest.raises(FlowDefinitionError, match="needs a DataFrame of Spark or a function"):
        SparkSource(cast(Any, [1, 2]))


def _no_frame() -> DataFrame:
    raise AssertionError("nothing is computed here")
