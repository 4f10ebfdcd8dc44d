"""``aflow-savepoint``: a savepoint of a live job as a DataFrame."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow.testing import CollectSink, Pause, ScriptedSource, VirtualClock, settle
from aflow.testing.virtual_time import run

pytest.importorskip("pyspark", reason="pyspark is not installed")

from aflow.backfill.contents import stored_parts
from aflow.errors import FlowDefinitionError, RestoreError
from aflow_connectors.spark.savepoint_source import SavepointReader, SavepointSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

NOON = 1_372_680_000_000
KEYS = [f"key {number}" for number in range(40)]


class Silent(af.KeyedProcess[str, tuple[str, int], str]):
    last = af.ValueState("last", of=int)

    def process(self, value: tuple[str, int], ctx: af.Context[str]) -> None:
        ctx.state(self.last).set(value[1])
        ctx.set_event_timer(value[1] + 1_000)


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 keys with a value, a timer and an open window each, stored by three subtasks."""
    folder = tmp_path_factory.mktemp("savepoint")
    records = [(key, NOON + number) for number, key in enumerate(KEYS)]
    flow = af.Flow("shop")
    read = flow.source(ScriptedSource(*records, Pause(timedelta(days=9))), name="records")
    keyed = read.event_time(lambda one: one[1], name="times").key_by(lambda one: one[0])
    keyed.process(Silent(), name="silent").to(CollectSink[object](), name="silences")
    windows = keyed.window(af.Session(timedelta(minutes=1)))
    counts = windows.fold(int, lambda count, _: count + 1, merge=int.__add__, name="counts")
    counts.to(CollectSink[object](), name="out")

    async def job() -> None:
        async with flow.start(
            parallelism=3,
            options=af.Options(clock=VirtualClock()),
            checkpointing=af.Checkpointing(every=None, storage=folder / "checkpoints"),
        ) as running:
            await settle()
            await running.stop(drain=False, savepoint=folder / "sp")

    run(job)
    return folder / "sp"


@pytest.fixture(scope="module")
def state(spark: SparkSession, savepoint: Path) -> DataFrame:
    spark.dataSource.register(SavepointSource)
    return spark.read.format("aflow-savepoint").load(str(savepoint))


@pytest.fixture(scope="module")
def rows(state: DataFrame) -> list[Row]:
    return state.where("key is not null").collect()


def test_spark_sees_each_state_timer_and_window_of_each_key_once(rows: list[Row]) -> None:
    by_kind: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        by_kind.setdefault((row.operator, row.kind, row.state), []).append(row.key)

    keys = sorted(map(json.dumps, KEYS))
    assert {kind: sorted(found) for kind, found in by_kind.items()} == {
        ("counts", "window", "sessions"): keys,
        ("silent", "timer", "event timers"): keys,
        ("silent", "value", "last"): keys,
    }
    assert {row.subtask for row in rows} == {0, 1, 2}


def test_columns_hold_keys_values_and_moments(rows: list[Row]) -> None:
    timer, value, window = (
        next(row for row in rows if row.key == '"key 7"' and row.kind == kind)
        for kind in ("timer", "value", "window")
    )

    at = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(milliseconds=7)
    moments = (utc(timer.timer), utc(window.window_start), utc(window.window_end))
    assert moments == (at + timedelta(seconds=1), at, at + timedelta(minutes=1))
    assert (json.loads(value.value), json.loads(window.value)) == (NOON + 7, 1)


def test_one_step_alone_is_read_by_a_task_for_each_of_its_subtasks(
    spark: SparkSession, state: DataFrame, savepoint: Path
) -> None:
    reading = spark.read.format("aflow-savepoint").option("operator", "counts")

    counts = reading.load(str(savepoint))

    assert [row[0] for row in counts.select("operator").distinct().collect()] == ["counts"]
    assert counts.rdd.getNumPartitions() == 3


def test_an_invalid_option_is_reported_in_one_sentence(
    spark: SparkSession, state: DataFrame, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    reading = spark.read.format("aflow-savepoint")

    with pytest.raises(PySparkException, match="nothing cannot be read: No such file"):
        reading.load(str(tmp_path / "nothing")).collect()


def test_options_and_columns_that_it_has_not_are_refused(savepoint: Path) -> None:
    from pyspark.sql.types import StructType

    def reader(options: dict[str, str], schema: StructType | None = None) -> Any:
        source = SavepointSource(options)
        return source.reader(schema or source.schema())

    with pytest.raises(FlowDefinitionError, match="has no option 'step'; it has 'operator'"):
        reader({"path": str(savepoint), "step": "counts"})
    with pytest.raises(FlowDefinitionError, match="needs the folder of a savepoint"):
        reader({})
    with pytest.raises(FlowDefinitionError, match=r"has the columns operator, .*leave .schema"):
        reader({"path": str(savepoint)}, StructType().add("name", "string"))


def test_an_executor_without_the_folder_says_which_and_where(
    savepoint: Path, tmp_path: Path
) -> None:
    here = copytree(savepoint, tmp_path / "sp")
    reader = SavepointReader(str(here), "counts")
    partition = reader.partitions()[0]
    rmtree(here)

    with pytest.raises(RestoreError, match=r"is missing: host .* has no folder '.*/sp'; put the"):
        list(reader.read(partition))


def test_rows_are_in_the_order_of_the_columns(savepoint: Path) -> None:
    reader = SavepointReader(str(savepoint), "silent")

    rows = [row for partition in reader.partitions() for row in reader.read(partition)]

    names = SavepointSource({}).schema().names
    keyed = [dict(zip(names, row, strict=True)) for row in rows if row[4] is not None]
    assert {row["operator"] for row in keyed} == {"silent"}
    assert {row["key"] for row in keyed} == set(map(json.dumps, KEYS))
    assert {type(row["timer"]) for row in keyed} == {datetime, type(None)}
    assert len(stored_parts(savepoint, operator="silent")) == 3


def utc(moment: datetime) -> datetime:
    """Spark's result, which is naive and in the time zone of this process."""
    return moment.astimezone(UTC)
