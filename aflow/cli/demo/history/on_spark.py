"""The first part, on Spark: a backfill up to the moment of the hand-over."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from aflow.cli.demo.flights import Flight
from aflow.cli.demo.history.files import RESULTS, HistoryFiles, HistoryRun
from aflow.cli.demo.history.interrupts import interrupts_held
from aflow.cli.demo.history.pipeline import build
from aflow.cli.demo.weather import Observation
from aflow_connectors.spark import Backfilled, Results, SparkSource, backfill, local_session

#: The files are small, and each row group is to be a task all the same.
_CONF: Final = {
    "spark.sql.files.maxPartitionBytes": "512k",
    "spark.sql.files.openCostInBytes": "64k",
}


@dataclass(frozen=True, slots=True)
class OnSpark:
    """What Spark has done."""

    done: Backfilled
    flights: int
    """All that were written."""
    ready_s: float
    """Seconds until Spark had started and the tables were written."""


def on_spark(
    files: HistoryFiles,
    planes: Path,
    write: Callable[[], int],
    *,
    until: datetime,
    partitions: int,
) -> OnSpark:
    """Run the pipeline over all that is before ``until``, and leave results and a savepoint in ``files``.

    ``write`` writes the tables, and returns how many flights; in a thread, while Spark starts. Raises what it raises,
    ``ConnectorError`` in one sentence for what Spark needs and this machine lacks, and what ``backfill`` raises.
    """
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        with interrupts_held(), _stderr_into(files.spark_log):
            session = local_session("aflow demo backfill", cores=partitions, conf=_CONF)
    try:
        written = writing.result()
        ready_s = time.monotonic() - began
        # Spark leaves row groups alone that are all behind the end: what is before it is read, and a little more.
        before = f"time_hour < timestamp'{until:%Y-%m-%d %H:%M:%S%z}'"
        flights = session.read.parquet(str(files.flights)).where(before)
        weather = session.read.parquet(str(files.weather)).where(before)
        done = asyncio.run(
            backfill(
                partial(build, planes=planes),
                session=session,
                sources={
                    "flights": SparkSource(flights, of=Flight),
                    "weather": SparkSource(weather, of=Observation),
                },
                sinks={
                    sink: Results(to=files.results(HistoryRun.HISTORY, sink)) for sink in RESULTS
                },
                until=until,
                savepoint=files.savepoint,
            )
        )
    finally:
        session.stop()
    return OnSpark(done, written, ready_s)


@contextmanager
def _stderr_into(path: Path) -> Generator[None]:
    """What processes write to stderr that are started meanwhile goes into a file, for good; ours only meanwhile."""
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with path.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
