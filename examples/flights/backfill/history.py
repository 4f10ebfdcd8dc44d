"""The first part: a backfill on Spark, up to the moment of the hand-over."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from aflow_connectors.spark import Results, SparkSource, backfill, local_session
from flights.backfill.files import RESULTS, Computation, HistoryFiles
from flights.backfill.pipeline import build
from flights.flight import Flight
from flights.tables import counted
from flights.weather import Observation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The files are small; each row group is one task nevertheless.
_CONF: Final = {
    "spark.sql.files.maxPartitionBytes": "512k",
    "spark.sql.files.openCostInBytes": "64k",
}


@dataclass(frozen=True, slots=True)
class History:
    """Result of the first part."""

    summary: str
    """Its numbers of records, and its duration."""
    records_in: Mapping[str, int] | None
    """Records into each step; None where Spark does not count them."""
    flights: int
    """Flights in the tables, before and after the hand-over."""
    open_state: dict[str, str]
    """Open windows, sessions, timers and keys in the savepoint, by step."""
    ready_s: float
    """Seconds until Spark had started and the tables were written."""


def run_history(
    files: HistoryFiles,
    planes: Path,
    write: Callable[[], int],
    *,
    until: datetime,
    partitions: int,
) -> History:
    """Run the pipeline over history before ``until``, and write results and a savepoint to ``files``.

    ``write`` writes the tables and returns the number of flights; it runs in a thread while Spark starts. Raises the
    errors of ``write`` and ``backfill``, and ``ConnectorError`` if Spark cannot start on this machine.
    """
    with started_spark(files, write, partitions) as (session, written, ready_s):
        # Spark skips row groups that are entirely after the hand-over.
        before = f"time_hour < timestamp'{until:%Y-%m-%d %H:%M:%S%z}'"
        flights = session.read.parquet(str(files.flights)).where(before)
        weather = session.read.parquet(str(files.weather)).where(before)
        began = time.monotonic()
        done = asyncio.run(
            backfill(
                partial(build, planes=planes),
                session=session,
                sources={
                    "flights": SparkSource(flights, of=Flight),
                    "weather": SparkSource(weather, of=Observation),
                },
                sinks={
                    sink: Results(to=files.results(Computation.HISTORY, sink)) for sink in RESULTS
                },
                until=until,
                savepoint=files.savepoint,
            )
        )
        seconds = time.monotonic() - began
        records = Counter[str]()
        for step in done.steps:
            records[step.name] += step.records_in
        taken = sum(one.records_out for one in done.steps if one.name == "every flight")
        return History(
            summary=f"{counted(taken, 'flight')} of {written:,} in {seconds:.1f} s",
            records_in=records,
            flights=written,
            open_state=open_state(session, files.savepoint),
            ready_s=ready_s,
        )


@contextmanager
def started_spark(
    files: HistoryFiles, write: Callable[[], int], partitions: int
) -> Generator[tuple[SparkSession, int, float]]:
    """Start Spark while ``write`` writes the tables: the session, the number of flights, and the seconds that it took.

    The session is stopped at the end of the block.
    """
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        with delayed_interrupts(), _stderr_to(files.spark_log):
            session = local_session("flights on Spark", cores=partitions, conf=_CONF)
    try:
        written = writing.result()
        yield session, written, time.monotonic() - started
    finally:
        session.stop()


def open_state(session: SparkSession, savepoint: Path) -> dict[str, str]:
    """Return the open state in a savepoint by step, as in ``3 sessions, 2 timers``."""
    from aflow_connectors.spark.savepoint_source import SavepointSource  # needs pyspark

    session.dataSource.register(SavepointSource)
    state = session.read.format("aflow-savepoint").load(str(savepoint))
    found: dict[str, Counter[str]] = {}
    has_end = state.window_end.isNotNull().alias("has_end")
    for row in state.groupBy("operator", "kind", has_end).count().collect():
        noun = _noun(row["kind"], has_end=row["has_end"])
        if noun is not None:
            found.setdefault(row["operator"], Counter())[noun] += row["count"]
    return {step: _counts_text(nouns) for step, nouns in found.items()}


def _noun(kind: str, *, has_end: bool) -> str | None:
    match kind:
        case "window":
            return "session" if has_end else "window"
        case "timer":
            return "timer"
        case "operator" | "broadcast":
            return None
        case _:
            return "key"


def _counts_text(nouns: Counter[str]) -> str:
    # A key with a timer is counted once.
    return ", ".join(
        counted(number, noun)
        for noun, number in sorted(nouns.items())
        if noun != "key" or len(nouns) == 1
    )


@contextmanager
def delayed_interrupts() -> Generator[None]:
    """Delay SIGINT until the end of the block. Without effect in threads, which receive no signals.

    In the seconds between the start of the JVM and its first response, an interrupted pyspark loses track of the JVM,
    which would wait for a client for ever.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[FrameType | None] = []

    def delay(_: int, frame: FrameType | None) -> None:
        received.append(frame)

    signal.signal(signal.SIGINT, delay)
    try:
        yield
    finally:
        # pyspark sets a handler of its own as soon as there is something to cancel.
        if signal.getsignal(signal.SIGINT) is delay:
            signal.signal(signal.SIGINT, handler)
    if received:
        handler(signal.SIGINT, received[0])


@contextmanager
def _stderr_to(path: Path) -> Generator[None]:
    """Write standard error to a file during the block. Processes started in the block keep the file."""
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with path.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
