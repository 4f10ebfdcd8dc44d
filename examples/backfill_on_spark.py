"""Visits to a shop: history on Spark, then live, with a visit that starts in history and ends live.

One pipeline computes both parts. It looks up the city of each visitor at a service, and groups clicks into visits,
which are sessions with a gap of half an hour. History runs on Spark's executors up to midnight, calls included; a
savepoint keeps the visits that are open at that time. The live job starts from the savepoint. Its source reaches back
into history, and the job skips the clicks that are in the savepoint. At the end one live job runs over everything,
with the same result.

Needs Java 17 or newer, and ``pip install "aflow-streams[spark]"``. The session runs in this process; a session of a
cluster works as well.

Prints:

    on Spark: ann in Oslo, pages: 2, from 21:00 to 21:10
    on Spark: bob in Rome, pages: 1, from 22:30 to 22:30
    open at midnight: ann, cleo
    live: ann in Oslo, pages: 3, from 23:50 to 00:15
    live: cleo in Bern, pages: 1, from 23:58 to 23:58
    live: bob in Rome, pages: 2, from 00:05 to 00:06
    skipped by the live job: 2 clicks
    equal to one live job: True
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import aflow as af
from aflow.connect import ConnectorError
from aflow_connectors.spark import SparkSource, backfill, local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HALF_AN_HOUR = timedelta(minutes=30)


@dataclass(frozen=True)
class Click:
    visitor: str
    at: datetime
    city: str = ""


@dataclass(frozen=True)
class Visit:
    visitor: str
    city: str
    pages: int
    begin: datetime
    end: datetime

    def __str__(self) -> str:
        times = f"from {self.begin:%H:%M} to {self.end:%H:%M}"
        return f"{self.visitor} in {self.city}, pages: {self.pages}, {times}"


async def with_city(click: Click) -> Click:
    """Return the click with its city: a stand-in for a call to a service."""
    await asyncio.sleep(0.005)
    cities = {"ann": "Oslo", "bob": "Rome", "cleo": "Bern"}
    return Click(click.visitor, click.at, cities[click.visitor])


def visit(visitor: str, clicks: list[Click]) -> Visit:
    times = [click.at for click in clicks]
    return Visit(visitor, clicks[0].city, len(clicks), min(times), max(times))


def build(clicks: af.Source[Click], visits: af.Sink[Visit]) -> af.Flow:
    flow = af.Flow("visits")
    (
        flow.source(clicks, name="clicks")
        .event_time(lambda click: click.at, max_delay=timedelta(minutes=1), name="times")
        .map_async(with_city, ordered=False, name="city")
        .key_by(lambda click: click.visitor)
        .window(af.Session(HALF_AN_HOUR))
        .apply(list, of=Click, name="visit")
        .map(lambda window: visit(window.key, window.value))
        .to(visits, name="visits")
    )
    return flow


def june(day: int, time: str) -> datetime:
    return datetime.fromisoformat(f"2025-06-{day:02}T{time}:00+00:00")


CLICKS = [
    Click("ann", june(1, "21:00")),
    Click("ann", june(1, "21:10")),
    Click("bob", june(1, "22:30")),
    Click("ann", june(1, "23:50")),
    Click("cleo", june(1, "23:58")),
    Click("bob", june(2, "00:05")),
    Click("ann", june(2, "00:03")),
    Click("bob", june(2, "00:06")),
    Click("ann", june(2, "00:15")),
]
MIDNIGHT = june(2, "00:00")


async def on_spark(spark: SparkSession, folder: Path) -> list[Visit]:
    """Return the visits that end before midnight, and write the open ones to the savepoint."""
    rows = ", ".join(f"('{one.visitor}', TIMESTAMP '{one.at.isoformat()}')" for one in CLICKS)
    table = spark.sql(f"SELECT * FROM VALUES {rows} AS clicks (visitor, at)")
    found: list[Visit] = []

    def collect(visits: DataFrame) -> None:
        for row in visits.collect():
            # Spark returns naive datetimes in the time zone of this process.
            begin, end = (moment.astimezone(UTC) for moment in (row.begin, row.end))
            found.append(Visit(row.visitor, row.city, row.pages, begin, end))

    await backfill(
        build,
        session=spark,
        sources={"clicks": SparkSource(table, of=Click)},
        sinks={"visits": collect},
        until=MIDNIGHT,
        savepoint=folder / "midnight",
    )
    return found


def open_at_midnight(spark: SparkSession, folder: Path) -> list[str]:
    """Return the visitors with an open visit in the savepoint."""
    from aflow_connectors.spark.savepoint_source import SavepointSource

    spark.dataSource.register(SavepointSource)
    state = spark.read.format("aflow-savepoint").load(str(folder / "midnight"))
    return sorted(json.loads(row.key) for row in state.where("kind = 'window'").collect())


async def live(folder: Path) -> tuple[list[Visit], int]:
    """Return the visits that end after midnight, and the number of clicks that were skipped."""
    visits = af.CollectSink[Visit]()
    settings = af.Checkpointing(storage=folder / "state", every=timedelta(seconds=10))
    flow = build(af.IterableSource(CLICKS[3:]), visits)
    async with flow.start(checkpointing=settings, restore=folder / "midnight") as job:
        await job.wait()
    return visits.values, job.metrics().steps["times"].sides["skipped"]


async def all_live() -> list[Visit]:
    visits = af.CollectSink[Visit]()
    await build(af.IterableSource(CLICKS), visits).run()
    return visits.values


async def main(spark: SparkSession, folder: Path) -> None:
    history = await on_spark(spark, folder)
    for one in sorted(history, key=lambda one: one.begin):
        print("on Spark:", one)
    print("open at midnight:", ", ".join(open_at_midnight(spark, folder)))
    newest, skipped = await live(folder)
    for one in sorted(newest, key=lambda one: one.begin):
        print("live:", one)
    print("skipped by the live job:", skipped, "clicks")
    same = sorted(history + newest, key=str) == sorted(await all_live(), key=str)
    print("equal to one live job:", same)


if __name__ == "__main__":
    try:
        session = local_session("visits")
    except ConnectorError as error:
        raise SystemExit(str(error)) from None
    with session, TemporaryDirectory() as name:
        asyncio.run(main(session, Path(name)))
