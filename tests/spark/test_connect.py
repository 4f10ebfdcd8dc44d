"""On Spark Connect, calls and sources behave as on a classic session."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import aflow as af
from aflow.errors import ConnectorError
from aflow_connectors.spark import SparkSource
from aflow_connectors.spark.calls import call
from tests.connectors.files.reading import records
from tests.spark.slow_tasks import hundred_seconds, until_started
from tests.spark.test_backfill import BIDS, Sum, build, history_and_live
from tests.spark.unactivated import leave_environment, python_of_calls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def failing(batches: Iterator[Any]) -> Iterator[Any]:
    raise ValueError("no such card\nas 4711")


def map_in_arrow(
    session: SparkSession, function: Callable[[Iterator[Any]], Any], tasks: int
) -> DataFrame:
    # What mapInArrow takes has no types, since pyarrow has none.
    frame: Any = session.range(0, tasks, 1, tasks)
    return cast("DataFrame", frame.mapInArrow(function, "id long"))


async def seconds_until_cancelled(session: SparkSession) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = Path(folder) / "started"
        work = hundred_seconds(session, started).count
        task = asyncio.ensure_future(call(session, work, "counting"))
        await until_started(started)
        begin = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - begin


async def error_of(session: SparkSession) -> str:
    with pytest.raises(ConnectorError) as caught:
        await call(session, map_in_arrow(session, failing, 1).count, "counting")
    return str(caught.value)


async def found(session: SparkSession) -> dict[str, object]:
    python = python_of_calls(session)
    frame = session.range(0, 5, 1, 3).selectExpr("id", "timestamp_millis(id) AS at")
    with tempfile.TemporaryDirectory() as folder:
        written = await records(SparkSource(frame, snapshot=folder))
        read_again = await records(SparkSource(frame, snapshot=folder))
    streamed = await records(SparkSource(frame))
    with tempfile.TemporaryDirectory() as folder:
        done, history, live = await history_and_live(session, Path(folder))
    return {
        "python": python,
        "backfilled": done.results["sums"] == len(history),
        "history and live": sorted(map(repr, history + live)),
        "cancelled": await seconds_until_cancelled(session),
        "error": await error_of(session),
        "written": repr(written),
        "read again": repr(read_again),
        "streamed": repr(streamed),
        "ids": [record["id"] for record in streamed],
    }


def on_connect() -> None:
    from pyspark.sql import SparkSession

    leave_environment()
    starts_fast = {
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    session = SparkSession.builder.remote("local[2]").config(map=dict(starts_fast)).getOrCreate()
    print(json.dumps(asyncio.run(found(session))))
    session.stop()


@pytest.fixture(scope="module")
def there(in_another_process: Callable[..., str]) -> dict[str, Any]:
    """Results of a server of Spark Connect, which cannot run beside a classic session."""
    return cast(dict[str, Any], json.loads(in_another_process(on_connect).splitlines()[-1]))


@pytest.mark.slow
def test_workers_of_a_server_run_the_python_of_its_program_though_nothing_is_activated(
    there: dict[str, Any],
) -> None:
    assert there["python"] == sys.executable


@pytest.mark.slow
def test_an_abandoned_call_is_cancelled_on_the_server(
    there: dict[str, Any],
) -> None:
    assert there["cancelled"] < 50


@pytest.mark.slow
def test_an_error_has_the_summary_of_sparks_error(there: dict[str, Any]) -> None:
    assert there["error"] == "counting failed: ValueError: no such card"


@pytest.mark.slow
def test_a_snapshot_and_a_stream_have_the_same_records(there: dict[str, Any]) -> None:
    assert there["ids"] == [0, 1, 2, 3, 4]
    assert there["written"] == there["read again"] == there["streamed"]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_live_job_starts_from_the_savepoint_of_a_backfill(
    there: dict[str, Any],
) -> None:
    whole = af.CollectSink[Sum]()
    await build(BIDS, whole).run()

    assert there["backfilled"]
    assert there["history and live"] == sorted(map(repr, whole.values))
