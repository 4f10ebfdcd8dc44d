"""A backfill whose tasks fail, are killed or are too slow at first, for tests in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aflow as af
from aflow.backfill.contents import rows_of, stored_parts
from aflow.errors import ConnectorError
from aflow_connectors.spark import SparkSink, SparkSource, backfill, local_session
from tests.spark.parquet_rows import parquet_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 8_000
UNTIL = RECORDS * 10 - 4_000
#: Drawn anew by each backfill, which proves by it what files it has written.
OWNER = re.compile(r'(?<="owner": ")[0-9a-f]{16}(?=")')


@dataclass(frozen=True, slots=True)
class Bid:
    who: str
    at: int
    price: int


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Failure in the first attempt of a task, at a point of the flow; none if there is no ``folder``."""

    folder: str

    def raises(self, point: str, partition: int | None = None) -> None:
        if self._strikes(point, partition):
            raise RuntimeError(f"{point} fails the first time")

    def kills(self, point: str, partition: int | None = None) -> None:
        if self._strikes(point, partition):
            os._exit(1)

    def delays(self, point: str, partition: int | None = None) -> None:
        if self._strikes(point, partition):
            time.sleep(1)

    def _strikes(self, point: str, partition: int | None) -> bool:
        from pyspark import TaskContext

        context = TaskContext.get()
        if not self.folder or context is None or partition not in (None, context.partitionId()):
            return False
        attempt = context.attemptNumber()
        Path(self.folder, f"{point}, attempt {attempt}").touch()
        return attempt == 0


class Streaks(af.KeyedProcess[str, Bid, Bid]):
    """Emits bids unchanged, and keeps much state of each bidder; a timer reports who was silent."""

    last = af.ValueState("last", of=Bid)
    padding = af.ValueState("padding", of=bytes)

    def __init__(self, strikes: Disturbance) -> None:
        self.strikes = strikes

    def process(self, value: Bid, ctx: af.Context[str]) -> list[Bid]:
        fail_while_state_is_yielded(self.strikes)
        if value.at > UNTIL - 2_000:
            self.strikes.raises("late in the partition", partition=0)
        ctx.state(self.last).set(value)
        ctx.state(self.padding).set(b"." * 200_000)
        ctx.set_event_timer(value.at + 3_000)
        return [value]

    def on_timer(self, at: int, ctx: af.Context[str]) -> list[Bid]:
        last = ctx.state(self.last).get()
        assert last is not None
        return [Bid(f"silent {last.who}", at, 0)]


def fail_while_state_is_yielded(disturbance: Disturbance) -> None:
    """Once per process: partition 1 fails after the first chunk of state, with results in a file."""
    from aflow_connectors.spark.backfill import fragment_task as module

    executing: Any = module
    plain = executing.encoded_part
    if not disturbance.folder or plain.__module__ == __name__:
        return

    def encoded_part(snapshots: Any) -> Iterator[bytes]:
        pieces = plain(snapshots)
        yield next(pieces)
        disturbance.raises(f"behind a piece of the state of {', '.join(snapshots)}", partition=1)
        yield from pieces

    executing.encoded_part = encoded_part


async def look_up(disturbance: Disturbance, bid: Bid) -> Bid:
    await asyncio.sleep(0.001)
    if bid.at > UNTIL - 3_000:
        disturbance.raises("an async step")
    return bid


def summed(strikes: Disturbance, slow: Disturbance, total: int, bid: Bid) -> int:
    fail_while_state_is_yielded(strikes)
    if bid.at > UNTIL - 2_500:
        strikes.kills("a worker", partition=0)
        slow.delays("a slow one", partition=1)
    return total + bid.price


def build(strikes: Disturbance, slow: Disturbance, bids: Any, sums: Any) -> af.Flow:
    flow = af.Flow("disturbed")
    (
        flow.source(bids, name="bids")
        .event_time(lambda bid: bid.at, max_delay=timedelta(seconds=1))
        .map_async(partial(look_up, strikes), name="look up", capacity=500)
        .key_by(lambda bid: bid.who)
        .process(Streaks(strikes), name="streaks")
        .key_by(lambda bid: bid.price % 11)
        .window(af.Tumbling(timedelta(seconds=7)))
        .fold(int, partial(summed, strikes, slow), name="sum")
        .map(lambda one: {"key": one.key, "start": one.window.start, "total": one.value})
        .to(sums, name="sums")
    )
    return flow


def bids(session: SparkSession) -> DataFrame:
    return session.range(RECORDS).selectExpr(
        "concat('bidder ', id * 31 % 57) AS who", "id * 10 AS at", "id % 100 AS price"
    )


async def run(frame: DataFrame, strikes: Disturbance, slow: Disturbance) -> dict[str, Any]:
    """State and results of a backfill."""
    with tempfile.TemporaryDirectory() as folder:
        done = await backfill(
            partial(build, strikes, slow),
            session=frame.sparkSession,
            sources={"bids": SparkSource(frame, of=Bid)},
            sinks={
                "sums": SparkSink[Any](f"{folder}/sums", schema="key long, start long, total long")
            },
            until=UNTIL,
            savepoint=f"{folder}/savepoint",
        )
        results = parquet_rows(f"{folder}/sums")
        parts = stored_parts(f"{folder}/savepoint")
        state = [
            OWNER.sub("owner", repr(asdict(row)).replace(folder, "folder"))
            for one in parts
            for row in rows_of(one)
        ]
        beside = sorted(path.name for path in Path(folder).iterdir())
        beside += sorted({path.name[:5] for path in Path(folder, "sums").glob("[!.]*")})
    return {
        "results": sorted(results, key=repr),
        "state": sorted(state),
        "steps": [asdict(one) for one in done.steps],
        "told": [done.results, done.left_out],
        "beside": beside,
    }


async def compared(session: SparkSession, *, slow: bool) -> dict[str, Any]:
    """Comparison of a disturbed backfill with an undisturbed one, and the place of the disturbance."""
    frame, none = bids(session), Disturbance("")
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = await run(frame, none, none)
        some = Disturbance(folder)
        disturbed = await run(frame, *((none, some) if slow else (some, none)))
        points = sorted(os.listdir(folder))
    assert len(undisturbed["state"]) > 100
    assert len(undisturbed["results"]) > 100
    return {"same": undisturbed == disturbed, "points": points}


async def without_session(session: SparkSession) -> str:
    """Message after the session was stopped."""
    frame, none = bids(session), Disturbance("")
    session.stop()
    try:
        await run(frame, none, none)
    except ConnectorError as exc:
        return str(exc)
    return ""


def speculated() -> None:
    """A task so slow that Spark starts it a second time, which it does only on another host."""
    conf = {
        "spark.master": os.environ["AFLOW_SPARK_CLUSTER"],
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.executor.memory": "600m",
    }
    session = local_session("speculated", conf=conf)
    print(json.dumps(asyncio.run(compared(session, slow=True))))
    session.stop()
