"""Fixtures of the Spark tests: one session, and programs that need a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from aflow.errors import ConnectorError
from aflow_connectors.spark.environment import check_java, check_packages, local_session
from tests.conftest import IN_CI

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]

#: As ``local_session`` starts Spark, for sessions of other kinds too: a JVM takes a third less processor time to start.
FAST_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Skip tests that need Spark on a machine without Java, with the reason. In CI they fail instead."""
    try:
        check_java()
        check_packages()
    except ConnectorError as exc:
        if IN_CI:
            pytest.fail(str(exc), pytrace=False)
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def spark(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of this process: local[2], 2 shuffle partitions, UTC, no web UI."""
    from pyspark import java_gateway

    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "tests",
        conf={
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.executorEnv.PYTHONPATH": str(PROJECT / "examples"),
        },
    )
    # Its thread serves all streams of the process: it is not one that a test leaves behind.
    cast(Any, java_gateway).ensure_callback_server_started(cast(Any, session.sparkContext)._gateway)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def in_another_process(needs_spark: None) -> Callable[..., str]:
    """``in_another_process(function, "argument", …)``: the output of a fresh Python process that runs it."""

    def run(what: Callable[..., None] | Path, *arguments: str, timeout: float = 600) -> str:
        command = [sys.executable, *_called(what), *arguments]
        # With SPARK_TESTING a server of Spark Connect takes a port that is free.
        env = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_TESTING": "1",
            "SPARK_LAUNCHER_OPTS": FAST_JVM,
            "SPARK_SUBMIT_OPTS": FAST_JVM,
        }
        try:
            done = subprocess.run(
                command, cwd=PROJECT, env=env, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired as exc:
            pytest.fail(f"{what} took longer than {timeout} s:\n{exc.stdout!r}\n{exc.stderr!r}")
        assert done.returncode == 0, f"{what} failed:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def _called(what: Callable[..., None] | Path) -> list[str]:
    if isinstance(what, Path):
        return [str(what)]
    module, name = what.__module__, what.__qualname__
    return ["-c", f"import sys; from {module} import {name}; {name}(*sys.argv[1:])"]
