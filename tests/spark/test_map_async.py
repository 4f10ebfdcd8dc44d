"""Async calls for the rows of a DataFrame: most of it over a frame that is a list of Arrow batches, some on Spark."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

import aflow as af
from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, OperatorError
from aflow_connectors.spark import map_async
from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.dataframe.schema import spark_schema
from aflow_connectors.spark.executor.event_loop import WorkerLoop, worker_loop
from aflow_connectors.spark.executor.functions import MapBatches, executor_function
from aflow_connectors.spark.executor.resource_pool import IDLE_LIMIT
from aflow_connectors.spark.executor.serialization import dumps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Seconds after which a test that hangs fails instead.
PATIENCE = 300

SCORES = pa.schema([("id", pa.int32()), ("score", pa.float64())])


@pytest.fixture
def loop() -> Iterator[WorkerLoop]:
    """The loop of this process, which is no worker of Spark: it ends with the test."""
    begun_with = worker_loop()
    yield begun_with
    for one in {begun_with, worker_loop()}:
        one.close()


class Frame:
    """Arrow batches, with the methods of a DataFrame that ``map_async`` uses; functions are pickled, as in Spark."""

    def __init__(self, *batches: Any) -> None:
        self.columns: list[str] = batches[0].schema.names
        self.schema = spark_schema(batches[0].schema, owner="frame")
        python = {"spark.sql.execution.pyspark.python": sys.executable}
        self.sparkSession = SimpleNamespace(conf=python)
        self._batches = batches

    def mapInArrow(self, run: MapBatches, schema: Any) -> Iterator[Any]:  # noqa: N802
        import pickle

        there: MapBatches = pickle.loads(dumps(run))
        return there(iter(self._batches))


def ids(*batches: Sequence[int]) -> DataFrame:
    return cast("DataFrame", Frame(*(pa.record_batch({"id": list(one)}) for one in batches)))


def rows(enriched: object) -> list[dict[str, Any]]:
    return [row for batch in cast("Iterator[Any]", enriched) for row in batch.to_pylist()]


async def scored(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"id": row["id"], "score": row["id"] / 2}


# -- What comes of it.


@pytest.mark.usefixtures("loop")
def test_each_row_is_replaced_by_the_result_for_it() -> None:
    result = rows(map_async(ids(range(5_000), range(5_000, 7_500)), scored, schema=SCORES))

    assert sorted(row["id"] for row in result) == list(range(7_500))
    assert all(row["score"] == row["id"] / 2 for row in result)


@pytest.mark.usefixtures("loop")
def test_results_have_exactly_the_declared_types() -> None:
    batches = list(cast("Iterator[Any]", map_async(ids([1, 2]), scored, schema=SCORES)))

    assert [batch.schema for batch in batches] == [SCORES]


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("batches", [[[]], [[], [1], []]], ids=["none", "one"])
def test_batches_may_be_empty(batches: list[list[int]]) -> None:
    frame = Frame(*(pa.record_batch({"id": pa.array(one, pa.int64())}) for one in batches))

    result = rows(map_async(cast("DataFrame", frame), scored, schema=SCORES))

    assert [row["id"] for row in result] == [1] * (len(batches) // 3)


class Meeting:
    """Rendezvous of calls for rows of two batches; in this module, so that pickling does not copy it."""

    arrived = 0
    all_there: asyncio.Event


async def meeting(row: dict[str, Any]) -> dict[str, Any]:
    if not Meeting.arrived:
        Meeting.all_there = asyncio.Event()
    Meeting.arrived += 1
    if Meeting.arrived == 6:
        Meeting.all_there.set()
    await Meeting.all_there.wait()
    return {"id": row["id"], "score": 0.0}


@pytest.mark.usefixtures("loop")
def test_calls_stay_under_way_across_the_ends_of_batches() -> None:
    Meeting.arrived = 0

    result = rows(map_async(ids([1, 2], [3, 4], [5, 6]), meeting, schema=SCORES, capacity=6))

    assert sorted(row["id"] for row in result) == [1, 2, 3, 4, 5, 6]


async def later_ones_first(row: dict[str, Any]) -> dict[str, Any]:
    for _ in range(20 - row["id"]):
        await asyncio.sleep(0)
    return {"id": row["id"], "score": 0.0}


@pytest.mark.usefixtures("loop")
def test_rows_of_a_partition_keep_their_order_on_request() -> None:
    frame = ids(range(10), range(10, 20))

    result = rows(map_async(frame, later_ones_first, schema=SCORES, ordered=True))

    assert [row["id"] for row in result] == list(range(20))


@dataclass
class Visit:
    id: int
    at: datetime | None = None


class Score(msgspec.Struct):
    id: int
    score: float


@pytest.mark.usefixtures("loop")
def test_rows_and_results_may_be_instances_of_classes() -> None:
    noon = datetime(2013, 7, 1, 12, tzinfo=UTC)
    frame = Frame(
        pa.record_batch(
            {"more": ["x"], "at": pa.array([noon], pa.timestamp("us", "UTC")), "id": [7]}
        )
    )

    async def score(visit: Visit) -> Score:
        assert visit == Visit(7, noon)
        return Score(visit.id, 0.5)

    result = rows(map_async(cast("DataFrame", frame), score, schema=SCORES, of=Visit))

    assert result == [{"id": 7, "score": 0.5}]


@pytest.mark.usefixtures("loop")
def test_row_and_result_may_be_put_together() -> None:
    async def half(row: dict[str, Any]) -> float:
        return float(row["id"]) / 2

    result = rows(
        map_async(ids([3]), half, schema=SCORES, into=lambda row, score: {**row, "score": score})
    )

    assert result == [{"id": 3, "score": 1.5}]


@pytest.mark.usefixtures("loop")
def test_a_failed_call_may_be_retried_dropped_or_replaced() -> None:
    tried: dict[int, int] = {}

    async def unreliable(row: dict[str, Any]) -> dict[str, Any]:
        tried[row["id"]] = tried.get(row["id"], 0) + 1
        if row["id"] == 3 or (row["id"] == 2 and tried[2] < 3):
            raise ConnectionError("down")
        return {"id": row["id"], "score": float(tried[row["id"]])}

    retry = af.Retry(attempts=3, delay=timedelta(milliseconds=1), on=ConnectionError)
    dropped = rows(
        map_async(ids([1, 2, 3]), unreliable, schema=SCORES, retry=retry, on_error=af.calls.Drop())
    )
    replaced = rows(
        map_async(
            ids([3]),
            unreliable,
            schema=SCORES,
            on_error=af.calls.Fallback(lambda row, failure: {"id": row["id"], "score": -1.0}),
        )
    )

    assert sorted((row["id"], row["score"]) for row in dropped) == [(1, 1.0), (2, 3.0)]
    assert replaced == [{"id": 3, "score": -1.0}]


async def hanging_at_two(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == 2:
        await asyncio.Event().wait()
    return {"id": row["id"], "score": 0.0}


@pytest.mark.usefixtures("loop")
def test_results_do_not_wait_for_slow_calls_beside_them() -> None:
    batches = cast("Any", map_async(ids([1, 2]), hanging_at_two, schema=SCORES))

    first = next(batches)
    batches.close()

    assert first.to_pylist() == [{"id": 1, "score": 0.0}]


@pytest.mark.usefixtures("loop")
def test_a_call_that_takes_too_long_fails() -> None:
    short = timedelta(milliseconds=20)

    with pytest.raises(OperatorError, match=r"'hanging_at_two' failed on record \{'id': 2\}"):
        rows(map_async(ids([1, 2]), hanging_at_two, schema=SCORES, timeout=short))


@pytest.mark.usefixtures("loop")
def test_an_attempt_that_takes_too_long_fails() -> None:
    short = timedelta(milliseconds=20)

    with pytest.raises(OperatorError, match=r"no result within 20ms"):
        rows(map_async(ids([1, 2]), hanging_at_two, schema=SCORES, attempt_timeout=short))


# -- Resources.


class OpenCount:
    """Resources opened and closed in this process."""

    names: list[str] = []  # noqa: RUF012
    closed: list[str] = []  # noqa: RUF012
    fails = 0


@asynccontextmanager
async def session() -> AsyncGenerator[str]:
    if OpenCount.fails:
        OpenCount.fails -= 1
        raise ConnectionRefusedError("nobody listens")
    name = f"session {len(OpenCount.names)}"
    OpenCount.names.append(name)
    yield name
    OpenCount.closed.append(name)


async def with_session(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {"id": row["id"], "by": name}


BY = pa.schema([("id", pa.int64()), ("by", pa.string())])


@pytest.fixture
def opened(loop: WorkerLoop) -> type[OpenCount]:
    OpenCount.names, OpenCount.closed, OpenCount.fails = [], [], 0
    return OpenCount


def test_a_resource_is_opened_once_for_all_tasks_of_a_step(opened: type[OpenCount]) -> None:
    def partition() -> list[dict[str, Any]]:
        using = af.Resource(session, name="session")
        return rows(map_async(ids([1, 2]), with_session, schema=BY, using=using))

    found = [row["by"] for _ in range(5) for row in partition()]

    assert found == ["session 0"] * 10
    assert opened.closed == []


def test_another_step_has_a_resource_of_its_own(opened: type[OpenCount]) -> None:
    using = af.Resource(session)
    one = rows(map_async(ids([1]), with_session, schema=BY, using=using, name="one"))
    other = rows(map_async(ids([1]), with_session, schema=BY, using=using, name="other"))

    assert [row["by"] for row in one + other] == ["session 0", "session 1"]


def test_a_process_that_has_run_many_steps_closes_unused_resources(
    opened: type[OpenCount],
) -> None:
    for number in range(IDLE_LIMIT + 2):
        using = af.Resource(session)
        rows(map_async(ids([1]), with_session, schema=BY, using=using, name=f"step {number}"))
    rows(map_async(ids([1]), scored, schema=SCORES))  # lets the loop come to it

    assert opened.closed == ["session 0", "session 1"]


def test_a_resource_that_does_not_open_fails_the_task_and_the_next_tries_again(
    opened: type[OpenCount],
) -> None:
    opened.fails = 1
    using = af.Resource(session, name="session")

    def partition() -> list[dict[str, Any]]:
        return rows(map_async(ids([1]), with_session, schema=BY, using=using))

    with pytest.raises(OperatorError, match=r"could not open its resource 'session': .*listens"):
        partition()
    assert partition() == [{"id": 1, "by": "session 0"}]


# -- What fails.


async def look_up(card: int) -> float:
    if card == 3:
        raise LookupError("no such card")
    return 1.0


async def scored_by_card(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "score": await look_up(row["id"])}


@pytest.mark.usefixtures("loop")
def test_an_error_names_the_step_and_the_record_and_keeps_the_users_frames() -> None:
    with pytest.raises(OperatorError) as caught:
        rows(map_async(ids(range(10)), scored_by_card, schema=SCORES, name="card scores"))

    (note,) = caught.value.__notes__
    assert "step 'card scores' failed on record {'id': 3}" in str(caught.value)
    assert "LookupError: no such card" in note
    assert "in look_up" in note


@pytest.mark.usefixtures("loop")
def test_a_result_that_does_not_fit_the_schema_names_step_column_and_record() -> None:
    async def text(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"], "score": "high"}

    with pytest.raises(ConnectorError, match="step 'text': column 'score' is declared as double"):
        rows(map_async(ids([1]), text, schema=SCORES))


def test_a_function_that_does_not_pickle_is_named_before_anything_runs() -> None:
    lock = threading.Lock()

    async def guarded(row: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return row

    with pytest.raises(
        FlowDefinitionError, match=r"step 'guarded' .*pickle '_thread.lock'.*guarded → lock"
    ):
        map_async(ids([1]), guarded, schema=SCORES)


async def _any(row: dict[str, Any]) -> dict[str, Any]:
    return row


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a schema of another kind": ({"schema": 5}, "step '_any': schema= says the columns"),
    "a class without a column": ({"of": Score}, "Score has a field 'score', and there is no such"),
    "no capacity": ({"capacity": 0}, "capacity=…"),
    "no prefetch": ({"prefetch": 0}, "prefetch= is a number"),
    "an output that is not there": (
        {"on_error": af.calls.DeadLetter(af.Tag[af.calls.FailedCall[Any]]("failed"))},
        "step '_any' has one output",
    ),
    "no resource": ({"using": 5}, "takes an aflow.Resource"),
    "no name": ({"name": " "}, "non-empty string"),
}


@pytest.mark.parametrize(("arguments", "why"), REFUSED.values(), ids=REFUSED)
def test_arguments_that_make_no_sense_are_refused_on_the_driver(
    arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=why):
        map_async(ids([1]), _any, **{"schema": SCORES, **arguments})


def test_a_function_that_cannot_be_called_with_a_row_is_refused_on_the_driver() -> None:
    async def nothing_at_all() -> None: ...

    with pytest.raises(FlowDefinitionError, match="nothing_at_all"):
        map_async(ids([1]), nothing_at_all, schema=SCORES)


# -- What is sent.

_WITHOUT_AFLOW = """
import pickle, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("aflow", "aflow_connectors"):
            raise ModuleNotFoundError(f"No module named {name.split('.')[0]!r}")

sys.meta_path.insert(0, Missing())
run = pickle.loads(sys.stdin.buffer.read())
try:
    run(iter([]))
except ImportError as exc:
    print(exc)
"""


def _run_nothing(payload: Any, batches: Iterator[Any]) -> Iterator[Any]:
    return iter([])


def test_an_executor_without_aflow_names_the_cure() -> None:
    pickled = dumps(executor_function(_run_nothing, dumps(scored), what="step 'scored'"))

    said = subprocess.run(
        [sys.executable, "-c", _WITHOUT_AFLOW], input=pickled, capture_output=True, check=True
    ).stdout.decode()

    assert said.startswith("step 'scored' cannot run on executor ")
    assert "No module named 'aflow" in said
    assert "image" in said
    assert "venv-pack" in said
    assert "addArtifacts" in said


def test_content_that_an_executor_cannot_unpickle_is_named() -> None:
    pickled = b"cno_such_module\nfunction\n."

    with pytest.raises(
        ConnectorError, match=r"step 'x' was sent .*No module named 'no_such_module'"
    ):
        executor_function(_run_nothing, pickled, what="step 'x'")(iter([]))


# -- On Spark.


@asynccontextmanager
async def number_of_this_process() -> AsyncGenerator[str]:
    yield f"{os.getpid()}-{datetime.now(UTC).timestamp()}"


def test_rows_of_a_dataframe_are_enriched_on_executors(spark: SparkSession) -> None:
    frame = spark.range(0, 3_000, 1, 6).selectExpr(
        "id",
        "timestamp_seconds(id) AS at",
        "CAST(id AS decimal(10, 2)) AS price",
        "named_struct('tags', array('a', 'b')) AS more",
    )

    async def doubled(row: dict[str, Any], opened: str) -> dict[str, Any]:
        await asyncio.sleep(0.05 if row["id"] % 1_000 == 0 else 0)
        assert row["at"].utcoffset() == timedelta(0)
        return {
            "number": row["id"],
            "at": row["at"] + timedelta(days=1),
            "price": row["price"] * 2,
            "tags": row["more"]["tags"],
            "process": os.getpid(),
            "opened": opened,
        }

    enriched: Any = map_async(
        frame,
        doubled,
        schema="opened string, number int, price decimal(12, 2), at timestamp, tags array<string>, process long",
        using=af.Resource(number_of_this_process),
        capacity=500,
    )
    found: list[dict[str, Any]] = enriched.toArrow().to_pylist()
    found.sort(key=lambda row: row["number"])

    assert [row["number"] for row in found] == list(range(3_000))
    assert [int(row["at"].timestamp()) for row in found] == [n + 86_400 for n in range(3_000)]
    assert [row["price"] for row in found] == [2 * n for n in range(3_000)]
    assert all(row["tags"] == ["a", "b"] for row in found)
    # One for each worker process, though there are six partitions.
    assert len({row["opened"] for row in found}) == len({row["process"] for row in found}) <= 2


def test_an_error_on_an_executor_tells_the_driver_step_record_and_function(
    spark: SparkSession,
) -> None:
    from pyspark.errors import PythonException

    with pytest.raises(PythonException) as caught:
        map_async(
            spark.range(10), scored_by_card, schema="id long, score double", name="card scores"
        ).collect()

    said = str(caught.value)
    assert "step 'card scores' failed on record {'id': 3}: LookupError: no such card" in said
    assert "in look_up" in said  # its frame, which Spark would leave out


def test_a_query_for_a_few_rows_leaves_no_calls_running(spark: SparkSession) -> None:
    endless = spark.range(0, 100_000_000, 1, 2)

    few = map_async(endless, scored, schema="id long, score double").limit(5).collect()
    again = map_async(spark.range(10), scored, schema="id long, score double").collect()

    assert len(few) == 5
    assert sorted(row.id for row in again) == list(range(10))
