"""The tasks of an epoch keep their state in the worker process, within the limit of the stream; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.backfill.epoch_time import EpochWatermarks, StreamWatermarks
from aflow.backfill.epochs import EpochStore, next_steps
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.portable_fragment import portable_copy
from aflow.backfill.state_cache import StateCache
from aflow.model.time import MIN_TIMESTAMP
from aflow.state.change_plan import ChangePlan
from aflow.state.manifest import Manifest
from aflow_connectors.spark.executor.event_loop import worker_loop
from tests.backfill.items import Item, at_of, key_of
from tests.backfill.test_epochs import GROUPS, epoch

pytest.importorskip("pyspark", reason="pyspark is not installed")
pa: Any = pytest.importorskip("pyarrow")
fragment_task: Any = pytest.importorskip("aflow_connectors.spark.backfill.fragment_task")
fragment_runner: Any = pytest.importorskip("aflow_connectors.spark.backfill.fragment_runner")
rows: Any = pytest.importorskip("aflow_connectors.spark.backfill.rows")
columns: Any = pytest.importorskip("aflow_connectors.spark.dataframe.columns")

UNCHANGED = EpochWatermarks(MIN_TIMESTAMP, MIN_TIMESTAMP)
NEVER = StreamWatermarks(UNCHANGED, {"sums": UNCHANGED}, {})
ORDER = [(name, "ascending") for name in ("ts", "input", "place")]


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """The loop of this process, which is no worker of Spark: it ends with the test."""
    yield
    worker_loop().close()


def flow() -> af.Flow:
    sums = af.Flow("sums")
    timed = sums.source(list[Item](), name="items").event_time(at_of, name="times")
    folded = timed.key_by(key_of).fold(int, lambda total, item: total + item.n, name="sums", of=int)
    folded.to(af.CollectSink[int](), name="out")
    return sums


@dataclass
class Worker:
    """A stream with one task, in this process."""

    store: EpochStore
    cache_bytes: int = 1 << 20
    cache: StateCache = field(default_factory=StateCache)
    last: Manifest = field(default_factory=lambda: epoch(1, flow="sums"))
    query: str = "query"

    def run(self, *items: Item) -> tuple[list[int], int]:
        """The sums that an epoch emits, and the bytes that its task has read."""
        plan = plan_fragments(flow().graph)
        source, keyed = (portable_copy(one) for one in plan.fragments)
        task = fragment_task.FragmentTask(
            flow="sums",
            fragment=source,
            subtasks=1,
            key_groups=GROUPS,
            until=None,
            source=columns.RowsIn(["key", "n", "at"], Item, owner="items"),
            epoch=fragment_task.TaskEpoch(
                self.last.id + 1,
                NEVER,
                self.store.folder,
                begins=None,
                until=None,
                query=self.query,
                cache_bytes=self.cache_bytes,
            ),
        )
        table = pa.RecordBatch.from_pylist([{"key": 0, "n": 0, "at": 0}]).slice(1)
        if items:
            table = pa.RecordBatch.from_pylist(
                [{"key": one.key, "n": one.n, "at": one.at} for one in items]
            )
        exchanged = pa.Table.from_batches(list(fragment_task.execute(task, 0, iter([table]))))
        files = self.store.files_of(self.last, "sums", ChangePlan())
        task = replace(task, fragment=keyed, source=None, restored=files)
        batches = exchanged.sort_by(ORDER).to_batches()
        emitted = list(
            fragment_task.execute(task, 0, iter(batches), digest="keyed", cache=self.cache)
        )
        return self._committed(emitted)

    def _committed(self, emitted: list[Any]) -> tuple[list[int], int]:
        sums: list[int] = []
        read = 0
        for exit, payload in (
            one
            for batch in emitted
            for one in zip(
                batch.column("exit").to_pylist(), batch.column("payload").to_pylist(), strict=True
            )
        ):
            if exit != rows.REPORT:
                sums += fragment_task.decode_block(payload, 0).values
                continue
            counts = fragment_task.msgspec.json.decode(payload, type=rows.StepCounts)
            read += counts.state_read
            if counts.part is not None:
                kinds = {"sums": "fold"}
                parts = [counts.part]
                steps = next_steps(self.last.steps, parts, kinds, subtasks=1, key_groups=GROUPS)
                self.last = replace(self.last, id=self.last.id + 1, steps=steps)
        return sums, read


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    store = EpochStore(tmp_path, "sums", GROUPS)
    store.open()
    with closing(store):
        yield Worker(store)


FIRST = [Item(key, key, 1) for key in range(10)]


def test_a_worker_reads_the_state_that_it_has_not_kept(worker: Worker) -> None:
    worker.run(*FIRST)

    assert worker.run(Item(3, 1, 2)) == ([4], 0)
    assert worker.run() == ([], 0)
    worker.cache = StateCache()  # of another worker
    sums, read = worker.run(Item(3, 1, 3))
    assert sums == [5]
    assert read > 0
    assert worker.run(Item(4, 1, 4)) == ([5], 0)


@pytest.mark.parametrize("cache_bytes", [0, 100])
def test_a_stream_with_little_memory_reads_all_state(worker: Worker, cache_bytes: int) -> None:
    worker.cache_bytes = cache_bytes
    worker.run(*FIRST)

    sums, read = worker.run(Item(3, 1, 2))

    assert sums == [4]
    assert read > 0
    assert not len(worker.cache)


def test_another_query_reads_all_state(worker: Worker) -> None:
    worker.run(*FIRST)

    worker.query = "another"
    sums, read = worker.run(Item(3, 1, 2))

    assert sums == [4]
    assert read > 0
    assert len(worker.cache) == 1


def test_a_task_whose_rows_cannot_be_read_keeps_no_state(worker: Worker) -> None:
    worker.run(*FIRST)
    manifest = worker.last

    def broken() -> Iterator[Any]:
        raise OSError("the connection was lost")
        yield

    plan = plan_fragments(flow().graph)
    task = fragment_task.FragmentTask(
        flow="sums",
        fragment=portable_copy(plan.fragments[1]),
        subtasks=1,
        key_groups=GROUPS,
        until=None,
        restored=worker.store.files_of(manifest, "sums", ChangePlan()),
        epoch=fragment_task.TaskEpoch(9, NEVER, worker.store.folder, None, None, "query", 1 << 20),
    )
    with pytest.raises(OSError, match="connection was lost"):
        list(fragment_task.execute(task, 0, broken(), digest="keyed", cache=worker.cache))

    assert not len(worker.cache)
    sums, read = worker.run(Item(3, 1, 2))
    assert sums == [4]
    assert read > 0
