"""A stream whose step fails on a record names it, loses nothing, and can be observed from its start to its end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import aflow as af
from aflow.errors import ConnectorError
from aflow.metrics import JobStatus
from aflow.web import JobCollector
from aflow_connectors.spark import EachEpoch, SparkStream, StreamQuery, stream
from tests.spark.stream_files import put, read_stream
from tests.spark.test_backfill import BIDS, Bid, Sum
from tests.spark.test_stream import SOON
from tests.web.requests import samples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

POISON = replace(BIDS[70], price=-1)
BATCHES = [BIDS[:50], [*BIDS[50:70], POISON, *BIDS[71:100]], BIDS[100:150]]
GOOD = [bid for some in BATCHES for bid in some if bid != POISON]
FAILED: af.Tag[af.calls.FailedRecord[Bid]] = af.Tag("failed")
#: In the second batch, of which no window is complete without the third.
UNTIL = 10_000
COLUMNS = "who string, start long, total long"


def checked(bid: Bid) -> Bid:
    if bid.price < 0:
        raise ValueError("no such price")
    return bid


def flow_of(bids: Any, sums: Any, on_error: Any) -> tuple[af.Flow, af.Stream[Bid]]:
    flow = af.Flow("checked")
    good = (
        flow.source(bids, name="bids")
        .event_time(lambda bid: bid.at, name="times")
        .map(checked, name="check", on_error=on_error)
    )
    windows = good.key_by(lambda bid: bid.who).window(af.Tumbling(timedelta(seconds=2)))
    total = windows.fold(int, lambda total, bid: total + bid.price, name="sum")
    total.map(lambda one: Sum(one.key, one.window.start, one.value), name="row").to(
        sums, name="sums"
    )
    return flow, good


def failing(bids: Any, sums: Any) -> af.Flow:
    return flow_of(bids, sums, af.calls.Fail())[0]


@dataclass
class Letter:
    who: str
    message: str


def corrected(bids: Any, sums: Any, letters: Any) -> af.Flow:
    flow, good = flow_of(bids, sums, af.calls.DeadLetter(FAILED))
    failed = good.side(FAILED).map(lambda one: Letter(one.value.who, one.message), name="letter")
    failed.to(letters, name="letters")
    return flow


async def test_a_poison_record_is_named_and_is_a_dead_letter_of_the_corrected_flow(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = af.CollectSink[Sum]()
    await failing(GOOD, whole).run()
    for number, some in enumerate(BATCHES):
        put(tmp_path / "bids", number, some)
    epochs: dict[str, dict[int, list[Any]]] = {"sums": {}, "letters": {}}

    def into(sink: str, kind: type, columns: str) -> EachEpoch:
        def collect(table: DataFrame, epoch: int) -> None:
            epochs[sink][epoch] = [kind(**row.asDict()) for row in table.collect()]

        return EachEpoch(collect, columns)

    def query(build: Any, *letters: str, **end: Any) -> StreamQuery:
        columns = "who string, message string"
        return stream(
            build,
            session=spark,
            sources={"bids": SparkStream(read_stream(spark, tmp_path / "bids"), of=Bid)},
            sinks={
                "sums": into("sums", Sum, COLUMNS),
                **{name: into(name, Letter, columns) for name in letters},
            },
            state=tmp_path / "state",
            every=SOON,
            **end,
        )

    failed = query(failing)
    statuses = [failed.status]
    with pytest.raises(ConnectorError) as caught:
        await failed.wait()
    statuses.append(failed.status)
    ended = query(corrected, "letters", until=UNTIL, savepoint=tmp_path / "savepoint")
    done = await ended.wait()

    # The error has the step, the record, and the line of the user.
    message = str(caught.value)
    assert message.startswith("batch 1 of the stream of flow 'checked' failed: ")
    assert "step 'check' failed on" in message
    assert f"price={POISON.price}" in message
    assert "ValueError: no such price" in message
    notes = "\n".join(caught.value.__notes__)
    assert 'test_stream_operations.py", line' in notes
    assert "in checked" in notes
    assert statuses == [JobStatus.CREATED, JobStatus.FAILED]
    assert failed.progress().records == len(BATCHES[0])
    assert failed.progress().state_entries
    # Nothing is lost, and the poison is apart.
    found = [one for some in epochs["sums"].values() for one in some]
    expected = [one for one in whole.values if one.start + 2_000 <= UNTIL]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    letters = [one for some in epochs["letters"].values() for one in some]
    assert letters == [Letter(POISON.who, "no such price")]
    # The batch that has failed is repeated.
    assert (done.replays, done.records) == (1, len(BATCHES[1]) + len(BATCHES[2]))
    assert done.epochs - done.epochs_without_rows == 2
    assert done.steps["check"].sides == {"failed": 1}
    # The others are left to the live job.
    before_end = [bid for some in BATCHES[1:] for bid in some if bid.at < UNTIL]
    assert done.steps["check"].records_in == len(before_end) < done.records
    assert done.steps["letters"].records_in == 1
    assert done.steps["sum"].watermark == UNTIL - 1
    # All windows have fired.
    assert done.state_entries == 0
    assert set(done.seconds) == {"fragments", "results", "commit"}
    [source] = done.last_batch.sources
    assert source.description.startswith("FileStreamSource[")
    assert {"walCommit", "addBatch", "triggerExecution"} <= set(done.last_batch.seconds)
    assert spark.streams.active == []
    registry = CollectorRegistry()
    registry.register(JobCollector(ended))
    exported = samples(generate_latest(registry).decode())
    assert exported["aflow_job_status", "checked", "finished"] == 1
    assert exported["aflow_stream_replays_total", "checked"] == 1
    assert exported["aflow_step_side_records_total", "checked", "failed", "check"] == 1
