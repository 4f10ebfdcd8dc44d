"""A Spark table as a sink: one write per checkpoint, and each row exactly once, after any failure."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow.connect import Committable, SinkError, WriterContext
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.testing import Crash, Pause, ScriptedSource, check_sink
from aflow_connectors.spark.tables.table_sink import SparkTableSink
from tests.connectors.files.arrow import pq
from tests.spark.conftest import PROJECT
from tests.spark.sink_helpers import NAME, numbers, opened, prepared, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Sinks = Callable[..., SparkTableSink[Any]]

_TABLES = itertools.count()


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    name = f"sink_{next(_TABLES)}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture
def sink(spark: SparkSession, table: str, tmp_path: Path) -> Sinks:
    """Sinks of one table."""

    def make(schema: str | None = "n long", **more: Any) -> SparkTableSink[Any]:
        return SparkTableSink(
            table, session=spark, staging=tmp_path / "staging", schema=schema, **more
        )

    return make


def rows(spark: SparkSession, table: str) -> list[int]:
    if not spark.catalog.tableExists(table):
        return []
    return sorted(row.n for row in spark.table(table).select("n").collect())


def pieces(spark: SparkSession, table: str) -> list[str]:
    return sorted({row.aflow_piece for row in spark.table(table).select("aflow_piece").collect()})


def rows_on_disk(spark: SparkSession, table: str) -> list[dict[str, int]]:
    """Rows of a Parquet table, read without Spark, which is slow."""
    folder = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"), table)
    files = folder.glob("aflow_piece=*/[!._]*.parquet")
    found = (row["n"] for file in files for row in pq.ParquetFile(file).read().to_pylist())
    return [{"n": n} for n in sorted(found)]


@pytest.mark.asyncio
async def test_the_table_keeps_to_the_contract_of_sinks(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    made: list[str] = []

    def make() -> SparkTableSink[Any]:
        made.append(f"{table}_{len(made)}")
        return SparkTableSink(made[-1], session=spark, staging=tmp_path, schema="n long")

    try:
        # Spark's first write takes seconds, and on a busy machine many.
        patience = timedelta(seconds=60)
        await check_sink(
            make, lambda sink: rows_on_disk(spark, sink.table), numbers(8), patience=patience
        )
    finally:
        for name in made:
            spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("moment", ["before", "behind"])
@pytest.mark.asyncio
async def test_a_process_killed_at_the_write_has_each_row_there_once_in_the_end(
    spark: SparkSession, table: str, sink: Sinks, tmp_path: Path, moment: str
) -> None:
    context: Any = spark.sparkContext
    gateway = context._gateway.gateway_parameters
    place = {
        "PYSPARK_GATEWAY_PORT": str(gateway.port),
        "PYSPARK_GATEWAY_SECRET": gateway.auth_token,
    }
    command = [
        sys.executable,
        "-m",
        "tests.spark.sink_helpers",
        table,
        str(tmp_path / "staging"),
        moment,
    ]
    program = await asyncio.create_subprocess_exec(
        *command, cwd=PROJECT, env={**os.environ, **place}, stdout=PIPE, stderr=PIPE
    )
    said, complaints = await program.communicate()
    assert program.returncode == -signal.SIGKILL, complaints.decode()
    committables: list[Committable] = json.loads(said)
    there = rows(spark, table)

    again = sink()
    await again.recover(NAME, committables)
    async with opened(again) as (writer,):
        await writer.commit(await prepared(writer, 2, numbers(1000, 1100)))
        await writer.flush()

    assert there == ([] if moment == "before" else list(range(1000)))
    assert rows(spark, table) == list(range(1100))


@pytest.mark.asyncio
async def test_the_first_commit_of_a_checkpoint_writes_for_all_writers_and_the_others_nothing(
    spark: SparkSession, table: str, sink: Sinks
) -> None:
    one = sink()
    await one.recover(NAME, [])
    async with opened(one, 3) as writers:
        committables = [await prepared(writers[n], 7, numbers(n, n + 1)) for n in (0, 1)]
        committables.append(await prepared(writers[2], 7, []))

        await writers[1].commit(committables[1])
        seen = rows(spark, table)
        spark.sql(f"ALTER TABLE {table} DROP PARTITION (aflow_piece = 'out-00000-000007')")
        for writer, committable in zip(writers, committables, strict=True):
            await writer.commit(committable)

    assert seen == [0, 1]
    assert pieces(spark, table) == ["out-00001-000007"]


@pytest.mark.asyncio
async def test_a_job_with_a_crash_and_a_savepoint_has_each_row_there_once(
    spark: SparkSession, table: str, sink: Sinks, tmp_path: Path
) -> None:
    """Also if it is restored from a savepoint after later checkpoints."""
    pause = Pause(timedelta(seconds=0.5))
    source = ScriptedSource[int].of_splits(
        {
            "even": [
                *range(0, 300, 2),
                pause,
                Crash(),
                *range(300, 500, 2),
                pause,
                *range(500, 600, 2),
            ],
            "odd": [*range(1, 300, 2), pause, *range(301, 500, 2), pause, *range(501, 600, 2)],
        }
    )
    storages = (tmp_path / f"checkpoints-{attempt}" for attempt in itertools.count())
    restarts: list[af.restart.JobRestarted] = []
    went_on = asyncio.Event()

    def note(event: object) -> None:
        """Record whether the job has completed a checkpoint after its crash."""
        if isinstance(event, af.restart.JobRestarted):
            restarts.append(event)
        elif (
            isinstance(event, af.checkpoints.CheckpointInfo)
            and event.outcome is af.checkpoints.Outcome.COMPLETED
            and restarts
        ):
            went_on.set()

    def job(**more: Any) -> af.Job:
        flow = af.Flow("numbers")
        records = flow.source(source, name="numbers").map(lambda n: {"n": n}, name="records")
        records.to(sink(), name="totals")
        return flow.start(
            parallelism=2,
            checkpointing=af.Checkpointing(every=timedelta(seconds=0.2), storage=next(storages)),
            restart=af.restart.FixedDelay(5, timedelta(0)),
            on_event=note,
            **more,
        )

    async with job() as first:
        await went_on.wait()
        await first.stop(savepoint=tmp_path / "savepoint")
    before = rows(spark, table)
    for _ in range(2):
        async with job(restore=tmp_path / "savepoint") as again:
            await again.wait()

    assert 300 <= len(before) == len(set(before)) < 600
    assert rows(spark, table) == list(range(600))


@pytest.mark.asyncio
async def test_restoring_an_older_checkpoint_drops_only_later_output_of_this_sink(
    spark: SparkSession, table: str, sink: Sinks
) -> None:
    spark.sql(
        f"CREATE TABLE {table} (n BIGINT, day DATE, aflow_piece STRING) USING orc PARTITIONED BY (day, aflow_piece)"
    )
    spark.sql(f"INSERT INTO {table} VALUES (-1, DATE'2013-01-01', 'by hand'), (-2, NULL, NULL)")
    days = [None, date(2013, 1, 1), date(2013, 1, 2)]

    def of_days(*range_of: int) -> list[dict[str, Any]]:
        return [{"n": n, "day": days[n % 3]} for n in range(*range_of)]

    one = sink(schema=None)
    await one.recover(NAME, [])
    async with opened(one) as (writer,):
        first = await prepared(writer, 1, of_days(10))
        await writer.commit(first)
        await writer.commit(await prepared(writer, 2, of_days(10, 20)))
    before = rows(spark, table)

    await sink(schema=None).recover(NAME, [first])

    assert before == [-2, -1, *range(20)]
    assert rows(spark, table) == [-2, -1, *range(10)]


async def two_checkpoints(one: SparkTableSink[Any]) -> list[Committable]:
    """Write the rows 0 and 1 of checkpoints 1 and 2 in a new run; return their committables."""
    await one.recover(NAME, [])
    async with opened(one) as (writer,):
        committables = [await prepared(writer, n + 1, numbers(n, n + 1)) for n in range(2)]
        for committable in committables:
            await writer.commit(committable)
    return committables


@pytest.mark.asyncio
async def test_a_job_that_continues_in_the_table_of_another_job_is_refused_and_drops_nothing(
    spark: SparkSession, table: str, sink: Sinks, tmp_path: Path
) -> None:
    written_by_executors = SparkTableSink[Any](
        f"{table}_b", session=spark, staging=tmp_path / "b", schema="n long"
    )
    try:
        first, _ = await two_checkpoints(written_by_executors)
        await two_checkpoints(sink())
        moved = SparkTableSink[Any](table, session=spark, staging=tmp_path / "b", schema="n long")

        with pytest.raises(SinkError, match="output of another run with a sink of this name"):
            await moved.recover(NAME, [first])
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {table}_b")

    assert rows(spark, table) == [0, 1]


@pytest.mark.asyncio
async def test_partitions_of_which_no_owner_is_recorded_are_not_dropped(
    spark: SparkSession, table: str, sink: Sinks
) -> None:
    first, _ = await two_checkpoints(sink())
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('aflow.owner.{NAME}')")

    with pytest.raises(SinkError, match="records no owner of it, so it is not dropped"):
        await sink().recover(NAME, [first])

    assert rows(spark, table) == [0, 1]


@pytest.mark.asyncio
async def test_a_cancelled_commit_is_repeated_when_the_job_is_restored(
    spark: SparkSession, table: str, sink: Sinks
) -> None:
    one = sink()
    await one.recover(NAME, [])
    for checkpoint, patience in enumerate((0.0, 0.05, 0.1, 0.15), start=1):
        async with opened(one) as (writer,):
            committable = await prepared(
                writer, checkpoint, numbers(checkpoint * 10, checkpoint * 10 + 10)
            )
            try:
                async with asyncio.timeout(patience):
                    await writer.commit(committable)
            except TimeoutError:
                pass
        await one.recover(NAME, [committable])

        assert rows(spark, table) == list(range(10, checkpoint * 10 + 10))


@pytest.mark.asyncio
async def test_without_checkpoints_each_writer_writes_at_its_end_and_may_replace_an_earlier_run(
    spark: SparkSession, table: str, sink: Sinks
) -> None:
    async with opened(sink(schema=None), 2, checkpoints=False) as writers:
        for first, writer in enumerate(writers):
            await put(writer, numbers(first, 10, 2))
        before = rows(spark, table)
        for writer in writers:
            await writer.flush()
    written = rows(spark, table)
    with pytest.raises(SinkError, match=r"earlier run .* overwrite=True"):
        await sink().writer(WriterContext(NAME))
    async with opened(sink(overwrite=True), 1, checkpoints=False) as (writer,):
        await put(writer, numbers(3))
        await writer.flush()

    assert (before, written) == ([], list(range(10)))
    assert rows(spark, table) == [0, 1, 2]


@pytest.mark.parametrize(
    ("made", "schema", "said"),
    [
        ("(n STRING, aflow_piece STRING) {by}", "n long", "'n' is string, not bigint"),
        ("(n LONG, m INT, aflow_piece STRING) {by}", "n long", "'m' is not in schema="),
        ("(n LONG)", None, "not partitioned by aflow_piece"),
        ("(n LONG, aflow_piece STRING) USING csv PARTITIONED BY (aflow_piece)", None, "it is csv"),
    ],
)
@pytest.mark.asyncio
async def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession, table: str, sink: Sinks, made: str, schema: str | None, said: str
) -> None:
    columns = made.format(by="USING parquet PARTITIONED BY (aflow_piece)")
    spark.sql(f"CREATE TABLE {table} {columns}" + ("" if "USING" in columns else " USING parquet"))

    with pytest.raises(SinkError, match=f"'out': table {table}: .*{said}"):
        await sink(schema=schema).recover(NAME, [])


@pytest.mark.asyncio
async def test_a_table_that_lost_its_partitions_is_not_emptied(
    spark: SparkSession, table: str, sink: Sinks
) -> None:
    one = sink()
    await one.recover(NAME, [])
    async with opened(one) as (writer,):
        committable = await prepared(writer, 1, numbers(3))
        spark.sql(f"DROP TABLE {table}")
        spark.sql(f"CREATE TABLE {table} (n LONG, aflow_piece STRING) USING parquet")
        spark.sql(f"INSERT INTO {table} VALUES (77, 'of others')")

        with pytest.raises(SinkError, match="not partitioned"):
            await writer.commit(committable)

    assert rows(spark, table) == [77]


@pytest.mark.asyncio
async def test_a_staged_piece_that_is_lost_is_named(
    spark: SparkSession, table: str, sink: Sinks, tmp_path: Path
) -> None:
    one = sink()
    await one.recover(NAME, [])
    async with opened(one) as (writer,):
        committable = await prepared(writer, 3, numbers(3))
    (staged,) = (tmp_path / "staging").rglob("*.pending")
    staged.unlink()

    with pytest.raises(
        RestoreError, match=r"checkpoint 3: part-00000-000003.parquet is not staged"
    ):
        await sink().recover(NAME, [committable])


@pytest.mark.asyncio
async def test_the_loop_runs_while_spark_writes(sink: Sinks) -> None:
    one = sink()
    await one.recover(NAME, [])
    stalls: list[float] = []

    async def sample() -> None:
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.001)
            stalls.append(time.perf_counter() - begin - 0.001)

    async with opened(one, 2) as writers, asyncio.TaskGroup() as tasks:
        committables = [
            await prepared(writer, 1, numbers(first, 200_000, 2))
            for first, writer in enumerate(writers)
        ]
        sampler = tasks.create_task(sample())
        begin = time.perf_counter()
        await writers[0].commit(committables[0])
        took = time.perf_counter() - begin
        sampler.cancel()

    print(f"worst stall {max(stalls) * 1000:.1f} ms of a write that took {took * 1000:.0f} ms")
    # Not a number of milliseconds: other programs on the machine stall the loop, and slow down the write.
    assert max(stalls) < took / 2


@pytest.mark.parametrize(
    ("table", "staging", "said"),
    [("", "/tmp/a", "name of one"), ("t", "hdfs://a/b", "hdfs"), ("t", "/tmp/[a]", "pattern")],
)
def test_arguments_that_make_no_sense_are_refused(
    spark: SparkSession, table: str, staging: str, said: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=said):
        SparkTableSink[Any](table, session=spark, staging=staging)
