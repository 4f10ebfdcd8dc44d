"""A script as users write it, with all classes its own. It backfills twice, and changes a class in between."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow.parquet

import aflow as af
from aflow_connectors.spark import SparkSource, backfill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Kind(Enum):
    CARD = "card"
    CASH = "cash"


class Row(NamedTuple):
    who: str
    at: int


@dataclass(frozen=True, slots=True)
class Payment:
    """The first one; a notebook cell that is run again defines another."""

    row: Row
    kind: Kind

    def cost(self) -> int:
        return 0


class Report:
    @dataclass(frozen=True, slots=True)
    class Line:
        kind: str
        count: int
        last: int


CHANGED = """
@dataclass(frozen=True, slots=True)
class Payment:
    row: Row
    kind: Kind
    fee: int = 3

    def cost(self) -> int:
        return self.fee
"""


@dataclass(frozen=True)
class Last:
    """State of a kind."""

    payment: Payment
    count: int


class Lines(af.KeyedProcess[Kind, Payment, "Report.Line"]):
    last = af.ValueState("last", of=Last)

    def process(self, value: Payment, ctx: af.Context[Kind]) -> list[Report.Line]:
        before = ctx.state(self.last).get()
        count = 1 if before is None else before.count + 1
        ctx.state(self.last).set(Last(value, count))
        return [Report.Line(ctx.key.value, count, value.row.at + value.cost())]


@asynccontextmanager
async def opened(folder: str) -> AsyncGenerator[str]:
    Path(folder, f"{os.getpid()} {uuid4().hex}").touch()
    yield "open"


async def paid(row: Row, resource: str) -> Payment:
    assert resource == "open"
    await asyncio.sleep(0)
    return Payment(row, Kind.CARD if row.at % 3 else Kind.CASH)


def build(opened_in: str, rows: Any, lines: Any) -> af.Flow:
    flow = af.Flow("script")
    (
        flow.source(rows, name="rows")
        .event_time(lambda row: row.at, max_delay=timedelta(seconds=1))
        .map_async(paid, name="paid", using=af.Resource(partial(opened, opened_in)))
        .key_by(lambda payment: payment.kind, of=Kind)
        .process(Lines(), name="counted")
        .key_by(lambda line: line.kind)
        .reduce(
            lambda one, other: max(one, other, key=lambda line: line.count),
            of=Report.Line,
            name="best",
        )
        .to(lines, name="lines")
    )
    return flow


async def history(session: SparkSession) -> dict[str, Any]:
    frame = session.range(0, 1_000, 1, 6).selectExpr("concat('payer ', id % 7) AS who", "id AS at")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as opened_in:
        await backfill(
            partial(build, opened_in),
            session=session,
            sources={"rows": SparkSource(frame, of=Row)},
            sinks={"lines": f"{folder}/lines"},
            until=900,
            savepoint=f"{folder}/savepoint",
        )
        live = af.CollectSink[Report.Line]()
        await build(opened_in, [Row("live", 950), Row("late", 1)], live).run(
            restore=f"{folder}/savepoint",
            checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=f"{folder}/state"),
        )
        reader: Any = pyarrow.parquet  # which has no types
        rows: list[dict[str, Any]] = reader.read_table(f"{folder}/lines").to_pylist()
        best = max(rows, key=lambda row: row["count"])
        by_process = Counter(name.split()[0] for name in os.listdir(opened_in))
    here = by_process.pop(str(os.getpid()))
    return {
        "best": list(best.values()),
        "live": [[one.kind, one.count, one.last] for one in live.values],
        "opened in a worker": sorted(by_process.values()),
        "opened here": here,
    }


def own_session() -> SparkSession:
    """Return a session that knows nothing of aflow."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    # Tasks that fail are tried again, as on a cluster.
    builder = SparkSession.builder.master("local[2,3]").appName("script")
    return builder.config(map=dict(settings)).getOrCreate()


async def everything() -> None:
    # What is of the tests has nothing to do with scripts: it is here because Spark takes so long to start.
    sys.path.insert(0, os.getcwd())
    from tests.spark.disturbed import compared, without_session
    from tests.spark.unactivated import leave_environment, python_of_calls

    leave_environment()
    session = own_session()
    python = python_of_calls(session)
    twice = [await history(session)]
    exec(CHANGED, globals())
    twice.append(await history(session))
    disturbed = await compared(session, slow=False)
    stopped = await without_session(session)
    told = {"python": python, "twice": twice, "disturbed": disturbed, "stopped": stopped}
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(everything())
