"""Spark calls are made off the loop, and are cancelled with the task that waits for them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from aflow.errors import ConnectorError, SinkError
from aflow_connectors.spark.calls import Calls, call, connector_error, error_summary, user_frames
from tests.spark.slow_tasks import hundred_seconds, until_started

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


async def cancelled(session: SparkSession, started: Path) -> float:
    """Seconds until a call has ended that was cancelled while its tasks ran."""
    work = hundred_seconds(session, started)
    task = asyncio.ensure_future(call(session, work.count, "counting"))
    await until_started(started)
    begin = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - begin


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_abandoned_call_is_cancelled_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    took = await cancelled(spark, tmp_path / "started")

    assert took < 50
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_error_of_spark_is_raised_as_ours_with_its_summary(spark: SparkSession) -> None:
    work = map_in_arrow(spark, failing, 1).count

    with pytest.raises(SinkError) as caught:
        await call(spark, work, "writing the totals", error=SinkError)

    assert str(caught.value) == "writing the totals failed: ValueError: no such card"
    assert type(caught.value.__cause__).__module__.startswith("pyspark.")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_error_of_a_user_function_is_raised_unchanged(spark: SparkSession) -> None:
    def work() -> None:
        raise KeyError("card")

    with pytest.raises(KeyError, match="card"):
        await call(spark, work, "reading")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_after_a_stop_no_call_begins(spark: SparkSession) -> None:
    calls = Calls(spark)

    await calls.stop()

    with pytest.raises(ConnectorError, match="counting: it was cancelled"):
        await calls.run(spark.range(3).count, "counting")


FAILED_STEP = (
    "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
    'Traceback (most recent call last):\n  File "executing.py", line 1, in work\n    raise exc\n'
    "aflow.errors.OperatorError: step 'check' failed on record 3: ValueError: no such card\nas 4711\n"
    'caused by\nTraceback (most recent call last):\n  File "mine.py", line 7, in check\n    raise x\n'
    "ValueError: no such card\nas 4711\n SQLSTATE: 38000\n\tat org.apache.spark.X"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03\n\nJVM stacktrace:\nx",
            "[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03",
            id="analysis",
        ),
        pytest.param(
            "An error occurred while calling o171.parquet.\n: org.apache.spark.SparkException: Job aborted due to "
            "stage failure: Task 0 in stage 14.0 failed 1 times, most recent failure: Lost task 0.0 in stage 14.0 "
            "(TID 19) (127.0.0.1 executor driver): java.io.IOException: Mkdirs failed to create file:/a\n\tat x.Y(Z)",
            "Mkdirs failed to create file:/a",
            id="task",
        ),
        pytest.param(
            "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
            'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: 1\n\nDuring handling '
            'of the above exception:\n\nTraceback (most recent call last):\n  File "a.py", line 2, in f\n    raise\n'
            "ValueError: no such card: 1\n\n\tat org.apache.spark.X",
            "ValueError: no such card: 1",
            id="python",
        ),
        pytest.param(
            FAILED_STEP, "step 'check' failed on record 3: ValueError: no such card", id="step"
        ),
        pytest.param(
            "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
            "awaitResult: \n\tat org.apache.spark.util.X$.await(X.scala:70)\n\t... 3 more\nCaused by: "
            "org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat a.B(C)\n"
            "Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] no SQLSTATE: P0001\n\tat x(z)",
            "[USER_RAISED_EXCEPTION] no SQLSTATE: P0001",
            id="iterator",
        ),
        pytest.param(
            "Unknown error: (org.apache.spark.SparkSQLException) [OPERATION_CANCELED] Operation has been canceled.",
            "[OPERATION_CANCELED] Operation has been canceled.",
            id="stream",
        ),
    ],
)
def test_of_an_error_of_many_lines_the_telling_one_is_shown(text: str, line: str) -> None:
    assert error_summary(RuntimeError(text)) == line


def test_the_frames_of_users_code_are_found_in_an_error() -> None:
    assert user_frames(RuntimeError(FAILED_STEP)) == (
        'caused by\nTraceback (most recent call last):\n  File "mine.py", line 7, in check\n    raise x\n'
        "ValueError: no such card\nas 4711"
    )
    assert not user_frames(RuntimeError("Lost task 0.0"))


#: Errors of workers as Spark words them, shortened.
NO_PYSPARK = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in "
    "stage 1.0 (TID 1) (10.0.0.7 executor 1): org.apache.spark.SparkException: \nError from python worker:\n"
    "  /usr/bin/python3: No module named pyspark\nPYTHONPATH was:\n  /spark/python\norg.apache.spark.SparkException: "
    "EOFException occurred"
)
NO_PYTHON = (
    "An error occurred while calling o7.count.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
    "Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.7 executor): "
    'java.io.IOException: Cannot run program "/opt/python3": error=2, No such file or directory\n\tat java.base/x(y)'
)
RAISED = (
    "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
    'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    f()\n{}\n\n\tat org.apache.spark.X'
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (NO_PYSPARK, "/usr/bin/python3: No module named pyspark"),
        (NO_PYTHON, 'Cannot run program "/opt/python3": error=2, No such file or directory'),
        (
            RAISED.format("ModuleNotFoundError: No module named 'pyarrow'"),
            "ModuleNotFoundError: No module named 'pyarrow'",
        ),
        (
            RAISED.format(
                "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
                "different version: 3.9 than that in driver: 3.11, PySpark cannot run with different minor versions."
            ),
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than",
        ),
    ],
    ids=["no pyspark", "no program", "no pyarrow", "another version"],
)
def test_a_worker_without_a_usable_python_is_reported_with_the_cure(text: str, reason: str) -> None:
    message = str(connector_error(RuntimeError(text), "batch 3 of the stream"))

    assert message.startswith("batch 3 of the stream failed: ")
    assert reason in message
    assert message.endswith(
        f"PYSPARK_PYTHON, needs the version of the driver ({sys.version_info.major}.{sys.version_info.minor}) and "
        f"aflow-streams[spark]"
    )
    assert message.count("\n") == 0


@pytest.mark.parametrize(
    "raised",
    [
        "ImportError: fragment 0 cannot run on executor a: python3 cannot import aflow (No module named 'aflow').",
        "ValueError: no such card",
    ],
    ids=["with its own cure", "of the user"],
)
def test_other_errors_of_workers_have_no_such_cure(raised: str) -> None:
    assert "PYSPARK_PYTHON, needs" not in str(
        connector_error(RuntimeError(RAISED.format(raised)), "batch 3")
    )
