"""A backfill that is cancelled or fails gives a short reason and leaves no files or threads."""

from __future__ import annotations

import asyncio
import socket
import stat
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from inspect import getfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio import to_thread

import aflow as af
from aflow.errors import CheckpointError, ConnectorError, FlowDefinitionError
from aflow_connectors import spark
from aflow_connectors.spark import Results, SparkSink, SparkSource, backfill
from aflow_connectors.spark.backfill.folders import StagingFolder
from aflow_connectors.spark.backfill.fragment_runner import FragmentRunner
from tests.spark.test_backfill import UNTIL, Bid, Sum, frame
from tests.spark.test_staging_folder import left

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

#: The folders of aflow's own code, as a traceback names them. The checkout itself may be named `aflow`.
PACKAGES = [f"{folder}/" for folder in (Path(getfile(af)).parent, Path(getfile(spark)).parents[1])]


def build(
    bids: Any,
    sums: Any,
    *,
    step: Callable[[Bid], Any] = lambda bid: bid,
    key: Callable[[Bid], Any] = lambda bid: bid.who,
) -> af.Flow:
    flow = af.Flow("sums")
    (
        flow.source(bids, name="bids")
        .event_time(lambda bid: bid.at, max_delay=timedelta(seconds=1))
        .map(step, name="check")
        .key_by(key)
        .window(af.Tumbling(timedelta(seconds=10)))
        .fold(int, lambda total, bid: total + bid.price, name="sum")
        .map(lambda one: Sum(str(one.key), one.window.start, one.value), name="make")
        .to(sums, name="sums")
    )
    return flow


async def run(spark: SparkSession, folder: Path, **more: Any) -> object:
    """A backfill; ``more`` are arguments of it, or of ``build``."""
    steps = {name: more.pop(name) for name in ("step", "key") if name in more}
    arguments: dict[str, Any] = {
        "session": spark,
        "sources": {"bids": SparkSource(frame(spark), of=Bid)},
        "sinks": {"sums": str(folder / "sums")},
        "until": UNTIL,
        "savepoint": folder / "savepoint",
        **more,
    }
    return await backfill(partial(build, **steps), **arguments)


def slow(bid: Bid) -> Bid:
    time.sleep(0.05)
    return bid


def jobs(spark: SparkSession) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def wait_for_job(spark: SparkSession) -> None:
    while not jobs(spark):
        time.sleep(0.05)


@pytest.mark.asyncio
async def test_a_cancelled_backfill_cancels_its_spark_job_and_leaves_no_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    threads = threading.active_count()
    task = asyncio.ensure_future(run(spark, tmp_path, step=slow))
    await to_thread.run_sync(wait_for_job, spark)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert jobs(spark) == []
    assert list(tmp_path.iterdir()) == []
    # Those of anyio and of the event loop are kept for who needs one next.
    pools = ("AnyIO", "asyncio_")
    pooled = [one for one in threading.enumerate() if one.name.startswith(pools)]
    assert threading.active_count() - len(pooled) <= threads


def check(bid: Bid) -> Bid:
    if bid.at > 90_000:
        raise ValueError("no such card\nas 4711")
    return bid


def no_key(bid: Bid) -> object:
    return object()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("steps", "said", "frame_of"),
    [
        pytest.param(
            {"step": check},
            "step 'check' failed on record Bid(who='bidder ",
            "in check\n",
            id="source",
        ),
        pytest.param(
            {"key": no_key},
            "step 'key_by #1' failed on record Bid(who='bidder ",
            "",
            id="keys",
        ),
    ],
)
async def test_a_failure_on_an_executor_names_the_step_the_record_and_the_user_frames(
    spark: SparkSession, tmp_path: Path, steps: dict[str, Any], said: str, frame_of: str
) -> None:
    with pytest.raises(ConnectorError) as caught:
        await run(spark, tmp_path, **steps)

    notes = "\n".join(getattr(caught.value, "__notes__", []))
    assert str(caught.value).startswith(f"fragments 0 and 1 of flow 'sums' failed: {said}")
    assert len(str(caught.value).splitlines()) == 1
    assert frame_of in notes
    assert [package for package in PACKAGES if package in notes] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
async def test_a_record_that_does_not_fit_the_columns_is_reported_with_column_type_and_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = "who string, start int, total string"

    with pytest.raises(ConnectorError) as caught:
        await run(spark, tmp_path, sinks={"sums": Results(tmp_path / "sums", columns)})

    assert str(caught.value).startswith(
        "writing the results of sink 'sums' failed: sink 'sums': column 'total' is declared as string, and "
    )
    assert "does not fit: it is no str; record Sum(who='bidder" in str(caught.value)
    assert not (tmp_path / "savepoint").exists()


def holding(held: object) -> Callable[[Bid], Bid]:
    def step(bid: Bid) -> Bid:
        assert held is not None
        return bid

    return step


def refused(
    spark: SparkSession, folder: Path, connection: socket.socket
) -> dict[str, tuple[dict[str, Any], str]]:
    """Invalid arguments, with the message that is raised before anything runs."""
    taken = folder / "taken"
    taken.mkdir()
    (taken / "part-00000-000007.parquet").touch()
    lock = threading.Lock()
    return {
        "a lock": (
            {"step": holding(lock)},
            "step 'check' cannot be sent to executors: cannot pickle '_thread.lock' object (step → held)",
        ),
        "a socket": (
            {"step": holding(connection)},
            "step 'check' cannot be sent to executors: cannot pickle 'socket' object (step → held)",
        ),
        "columns": (
            {"sinks": {"sums": Results(folder / "sums", "who strin")}},
            "sink 'sums': Spark makes no schema of 'who strin'",
        ),
        "a column that is not there": (
            {"sources": {"bids": SparkSource(frame(spark).drop("price"), of=Bid)}},
            "source 'bids': Bid has a field 'price', and there is no such column: who, at",
        ),
        "a frame that is none": (
            {"sources": {"bids": SparkSource(lambda: frame(spark).select("nothing"), of=Bid)}},
            "source 'bids': [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
        ),
        "a frame that never ends": (
            {"sources": {"bids": spark.readStream.format("rate").load()}},
            "source 'bids': the DataFrame is a streaming one (spark.readStream)",
        ),
        "a map that is no dict": (
            {"sources": {"bids": frame(spark).selectExpr("map(struct(who), 1) AS m")}},
            "source 'bids': column 'm': a map with keys of type struct<who: string>",
        ),
        "a type of Spark's own": (
            {"sources": {"bids": frame(spark).selectExpr("parse_json('1') AS v")}},
            "source 'bids': column 'v' is of type variant, and Python has no values for variant",
        ),
        "a list": (
            {"sources": {"bids": [1, 2]}},
            "source 'bids': backfill() reads a DataFrame of Spark, or SparkSource(dataframe, of=…), not [1, 2]",
        ),
        "results that are there": (
            {"sinks": {"sums": str(taken)}},
            f"sink 'sums': {taken} already exists: remove it",
        ),
        "results that are there, as a URI": (
            {"sinks": {"sums": taken.as_uri()}},
            f"sink 'sums': {taken} already exists: remove it",
        ),
        "output that is there": (
            {"sinks": {"sums": SparkSink(taken)}},
            f"sink 'sums': {taken}/part-00000-000007.parquet already exists: it has the name",
        ),
        "no sink": ({"sinks": {"sums": 7}}, "the results of a sink go into a folder, "),
        "a savepoint that is there": (
            {"savepoint": taken},
            f"there is something at {taken} already",
        ),
        "a source of another name": (
            {"sources": {"bidz": frame(spark)}},
            "build() has a parameter 'bids', which is none of the sources ('bidz')",
        ),
        "a sink of another name": (
            {"sinks": {"sumz": None}},
            "build() has a parameter 'sums', which is none of the sources ('bids') and none of the sinks ('sumz')",
        ),
        "one sink more": (
            {"sinks": {"sums": None, "sumz": None}},
            "sinks names 'sumz', and the flow has no sink of that name, but 'sums'",
        ),
        "a naive end": (
            {"until": datetime(2020, 1, 1)},  # noqa: DTZ001
            "until=: event time datetime.datetime(2020, 1, 1, 0, 0) has no time zone",
        ),
        "no session": (
            {"session": None},
            "backfill() needs a session of Spark in session=, not None",
        ),
    }


@pytest.mark.asyncio
async def test_invalid_arguments_are_refused_in_one_sentence_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    told: dict[str, str] = {}
    before = spark.sparkContext.statusTracker().getJobIdsForGroup()

    with socket.socket() as connection:
        cases = refused(spark, tmp_path, connection)
        for name, (more, _) in cases.items():
            try:
                await run(spark, tmp_path, **more)
            except (CheckpointError, ConnectorError, FlowDefinitionError) as exc:
                told[name] = str(exc)

    for name, (_, said) in cases.items():
        assert said in told[name]
        assert "\n" not in told[name]
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == before
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


@pytest.mark.asyncio
async def test_a_backfill_without_savepoint_leaves_no_staging_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    alone: dict[str, Any] = {"until": None, "savepoint": None}

    modes: list[int] = []
    plain = FragmentRunner.run

    def looked_at(staging: FragmentRunner, fragment: Any) -> None:
        modes.extend(stat.S_IMODE(one.stat().st_mode) for one in temporary.iterdir())
        plain(staging, fragment)

    monkeypatch.setattr(FragmentRunner, "run", looked_at)

    with pytest.raises(FlowDefinitionError, match="step 'check' cannot be sent to executors"):
        await run(spark, tmp_path, step=holding(threading.Lock()), **alone)
    with pytest.raises(ConnectorError, match="step 'check' failed"):
        await run(spark, tmp_path, step=check, **alone)
    await run(spark, tmp_path, **alone)

    assert list(temporary.iterdir()) == []
    assert set(modes) == {0o700}  # others have their files beside it
    assert list((tmp_path / "sums").iterdir()) != []


@pytest.mark.asyncio
async def test_a_backfill_removes_the_staging_folder_of_a_killed_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    left(tmp_path / ".earlier.0123.staging")
    other = StagingFolder(tmp_path / ".other.4567.staging", private=False)
    (tmp_path / ".mine.staging").mkdir()

    await run(spark, tmp_path)

    staging = [one.name for one in tmp_path.iterdir() if one.name.endswith(".staging")]
    assert sorted(staging) == [".mine.staging", ".other.4567.staging"]
    other.remove()


@pytest.mark.asyncio
async def test_staging_is_one_folder_also_where_this_process_has_left_that_in_which_spark_began(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_in = Path.cwd()
    monkeypatch.chdir(tmp_path)

    await run(spark, tmp_path, staging="stage here")

    assert list((tmp_path / "stage here").iterdir()) == []
    assert not (begun_in / "stage here").exists()
