"""A backfill that continues from the savepoint of another one, and the live job after both, equal one live job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow.backfill.contents import rows_of, stored_parts
from aflow.calls import DeadLetter, FailedRecord
from aflow.errors import ConnectorError
from aflow_connectors.spark import (
    Backfilled,
    Results,
    SparkSink,
    SparkSource,
    SparkTableSink,
    backfill,
)
from aflow_connectors.spark.backfill import fragment_runner, preparation
from tests.spark.test_backfill import BIDS, Bid, Sum, frame, not_here, not_seen
from tests.spark.test_backfill_sinks import COLUMNS, build, failing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

T1, T2 = 60_300, 121_000


async def test_two_halves_of_history_and_the_live_job_write_each_row_exactly_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = af.CollectSink[Sum]()
    await build(BIDS, whole, af.CollectSink[Sum]()).run()
    folder = tmp_path / "sums"
    sinks = (
        SparkSink[Sum](folder, schema=COLUMNS),
        SparkTableSink[Sum]("halves", session=spark, staging=tmp_path / "staging"),
    )

    def written() -> list[Sum]:
        """Rows of the folder, which are those of the table too."""
        rows = spark.read.schema(COLUMNS).parquet(str(folder)).collect()
        in_table = spark.table("halves").drop("aflow_piece").collect()
        assert sorted(map(str, rows)) == sorted(map(str, in_table))
        return sorted((Sum(**row.asDict()) for row in rows), key=repr)

    async def half(until: int, savepoint: str, restore: str | None, probe: Any) -> Backfilled:
        return await backfill(
            build,
            session=spark,
            sources={"bids": SparkSource(frame(spark), of=Bid)},
            sinks={"folder": sinks[0], "table": sinks[1], "probe": probe},
            until=until,
            savepoint=tmp_path / savepoint,
            restore=None if restore is None else tmp_path / restore,
            partitions=2 if restore is None else 5,
        )

    async def live(storage: str) -> None:
        await build(BIDS, *sinks).run(
            restore=tmp_path / "second",
            checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=tmp_path / storage),
            parallelism=3,
        )

    await half(T1, "first", None, None)
    first = written()
    # It fails after the results are written to the table, and prepared for the folder.
    with pytest.raises(ConnectorError, match="writing the results of sink 'probe' failed"):
        await half(T2, "second", "first", Results(failing, COLUMNS))
    shown = spark.read.schema(COLUMNS).parquet(str(folder)).collect()
    assert sorted((Sum(**row.asDict()) for row in shown), key=repr) == first

    done = await half(T2, "second", "first", None)

    second = written()
    assert (done.restored, done.begins) == (tmp_path / "first", T1)
    assert done.skipped == sum(bid.at < T1 for bid in BIDS)
    assert done.left_out == sum(bid.at >= T2 for bid in BIDS)
    assert done.results["folder"] == len(second) - len(first) > 0
    expected = sorted(whole.values, key=repr)
    for storage in ("state", "after a crash before its first checkpoint"):
        await live(storage)
        assert written() == expected


@dataclass(frozen=True, slots=True)
class Silence:
    who: str
    at: int


class Silent(af.KeyedProcess[str, Bid, Silence]):
    """Reports a bidder without bids for 20 s."""

    last = af.ValueState("last", of=int)

    def process(self, value: Bid, ctx: af.Context[str]) -> None:
        ctx.state(self.last).set(value.at)
        ctx.set_event_timer(value.at + 20_000)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[Silence]:
        if ctx.state(self.last).get() == at - 20_000:
            yield Silence(ctx.key, at)


async def checked(bid: Bid) -> Bid:
    await asyncio.sleep(0)
    if bid.price % 50 == 7:
        raise ValueError("no price")
    return bid


FAILED = af.Tag[FailedRecord[Bid]]("failed")


def silences(bids: Any, silences: Any, letters: Any) -> af.Flow:
    """Silences of bidders by windows of half a minute: two steps that read by key."""
    flow = af.Flow("silences")
    timed = flow.source(bids, name="bids").event_time(lambda bid: bid.at, name="times")
    good = timed.map_async(checked, on_error=DeadLetter(FAILED), name="checked")
    good.side(FAILED).map(lambda letter: {"at": letter.value.at}).to(letters, name="letters")
    silent = good.key_by(lambda bid: bid.who).process(Silent(), name="silent")
    windows = silent.key_by(lambda one: len(one.who)).window(af.Tumbling(timedelta(seconds=30)))
    counted = windows.fold(list[str], lambda known, one: sorted([*known, one.who]), name="windows")
    counted.map(lambda one: Sum(" ".join(one.value), one.window.start, one.key)).to(
        silences, name="silences"
    )
    return flow


async def test_keys_and_partitions_without_rows_in_the_second_half_continue(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = frame(spark).where(f"at < {T1} OR who = 'bidder 1'")

    async def run(
        until: int, savepoint: str, partitions: int, restore: str | None = None
    ) -> tuple[list[str], set[str]]:
        rows: list[str] = []

        def collect(table: DataFrame) -> None:
            rows.extend(str(row) for row in table.collect())

        await backfill(
            silences,
            session=spark,
            sources={"bids": SparkSource(history, of=Bid)},
            sinks={
                "silences": Results(collect, COLUMNS),
                "letters": Results(collect, "at long"),
            },
            until=until,
            savepoint=tmp_path / savepoint,
            restore=None if restore is None else tmp_path / restore,
            partitions=partitions,
        )
        state = (
            (row.operator, row.kind, row.state, row.key, row.value, row.timer, row.window_start)
            for part in stored_parts(tmp_path / savepoint)
            for row in rows_of(part)
            if row.kind != "operator"  # of a partition
        )
        return rows, set(map(str, state))

    once, state_at_once = await run(T2, "at once", 2)
    first, _ = await run(T1, "first", 2)
    # As over Spark Connect: state passes through Spark, as rows.
    monkeypatch.setattr(fragment_runner, "files_of", not_seen)
    monkeypatch.setattr(preparation, "local_path", not_here)
    second, state = await run(T2, "second", 7, "first")

    assert first
    assert any("bidder 2" in row for row in second)
    assert sorted(first + second) == sorted(once)
    assert state == state_at_once
