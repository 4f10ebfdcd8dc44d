"""A task begins with the stored state of its partition; without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.backfill.continuation import read_continuation
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.portable_fragment import portable_copy
from aflow.errors import ConnectorError, FlowDefinitionError
from aflow.model.key_groups import KeyGroupRange
from aflow.state.parts import decoded
from aflow.state.snapshot import OperatorSnapshot
from aflow_connectors.files.output.pieces import PreparedPiece
from aflow_connectors.spark import SparkSink, backfill, explain
from aflow_connectors.spark.executor.event_loop import worker_loop
from tests.backfill.items import Item, at_of, key_of
from tests.backfill.locally import backfill_locally

pytest.importorskip("pyspark", reason="pyspark is not installed")
continued_output: Any = pytest.importorskip("aflow_connectors.spark.backfill.continued_output")
fragment_task: Any = pytest.importorskip("aflow_connectors.spark.backfill.fragment_task")
rows: Any = pytest.importorskip("aflow_connectors.spark.backfill.rows")

ITEMS = [Item(n % 7, n, n) for n in range(100)]


def build(items: object = ITEMS, out: object = None) -> af.Flow:
    flow = af.Flow("sums")
    timed = flow.source(ITEMS, name="items").event_time(at_of, name="times")
    sums = timed.key_by(key_of).fold(int, lambda total, item: total + item.n, name="sums")
    sums.to(af.CollectSink[object](), name="out")
    return flow


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "savepoint"
    asyncio.run(backfill_locally(build(), {"items": ITEMS}, until=50, savepoint=path))
    return path


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """The loop of this process, which is no worker of Spark: it ends with the test."""
    yield
    worker_loop().close()


def tasks(savepoint: Path) -> list[Any]:
    """The tasks of both fragments, of three partitions."""
    graph = build().graph
    plan = plan_fragments(graph)
    start = read_continuation(savepoint, graph, plan)
    return [
        fragment_task.FragmentTask(
            flow=plan.flow,
            fragment=portable_copy(one),
            subtasks=3,
            key_groups=plan.key_groups,
            until=80,
            begins=start.begins,
            restored_from=start.folder,
            restored=start.files_of(one.head.name),
        )
        for one in plan.fragments
    ]


def entries_of(*snapshots: OperatorSnapshot) -> list[tuple[bytes, bytes]]:
    """The stored keys, with their values."""
    return [
        entry
        for one in snapshots
        for names in one.keyed.values()
        for entries in names.values()
        for entry in entries
    ]


def test_a_partition_without_rows_keeps_the_state_of_its_keys(savepoint: Path) -> None:
    _, keyed = tasks(savepoint)

    emitted = [
        batch for number in range(3) for batch in fragment_task.execute(keyed, number, iter([]))
    ]

    exits = [exit for batch in emitted for exit in batch.column("exit").to_pylist()]
    assert exits.count(rows.REPORT) == 3
    state = [
        payload
        for batch in emitted
        for exit, payload in zip(
            batch.column("exit").to_pylist(), batch.column("payload").to_pylist(), strict=True
        )
        if exit == rows.STATE
    ]
    assert len(state) == 3
    captured = [decoded(part, what="the state of a partition")["sums"] for part in state]
    stored = keyed.restored.read(KeyGroupRange(0, 128))
    assert sorted(entries_of(*captured)) == sorted(entries_of(stored))
    assert {bytes([n]) for n in range(7)} <= {key for key, _ in entries_of(*captured)}


def test_an_executor_that_does_not_see_the_savepoint_reports_it_before_anything_runs(
    savepoint: Path,
) -> None:
    for task in tasks(savepoint):
        away = replace(task, restored_from=savepoint / "elsewhere")
        with pytest.raises(ConnectorError, match=r"executor .* cannot see .*elsewhere.*sums"):
            list(fragment_task.execute(away, 0, iter([])))


def test_explain_reads_the_savepoint(savepoint: Path) -> None:
    text = explain(build, sources={"items": None}, sinks={"out": None}, restore=savepoint)

    assert "over history from 1970-01-01T00:00:00.050+00:00 to its end" in text


def test_a_permission_without_a_savepoint_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"allow_dropped_state=True .* give restore= too"):
        explain(build, sources={"items": None}, sinks={"out": None}, allow_dropped_state=True)


def upstream(sink: str) -> af.Flow:
    """The same flow, and a sink that gets the records before they have a time."""
    flow = af.Flow("sums")
    items = flow.source(ITEMS, name="items")
    items.to(af.CollectSink[Item](), name=sink)
    sums = items.event_time(at_of, name="times").key_by(key_of)
    sums.fold(int, lambda total, item: total + item.n, name="sums").to(
        af.CollectSink[object](), name="out"
    )
    return flow


def test_output_upstream_of_event_time_is_not_written_twice(
    savepoint: Path, tmp_path: Path
) -> None:
    graph = upstream("raw").graph
    plan = plan_fragments(graph)
    start = read_continuation(savepoint, graph, plan)
    earlier = replace(start, prepared={"raw": [(1, {})], "out": [(1, {})]})
    sinks: dict[str, Any] = {name: SparkSink[Any](tmp_path / name) for name in ("raw", "out")}

    with pytest.raises(FlowDefinitionError, match=r"sink 'raw' is upstream .* of source 'items'"):
        continued_output.check_continued_output(plan, sinks, earlier, 80)
    continued_output.check_continued_output(plan, {**sinks, "raw": None}, earlier, 80)
    continued_output.check_continued_output(plan, sinks, start, 80)


def test_output_that_no_live_job_would_commit_is_refused(savepoint: Path, tmp_path: Path) -> None:
    graph = build().graph
    plan = plan_fragments(graph)
    piece = PreparedPiece(1, "part-00000-000001.parquet", str(tmp_path), "0123456789abcdef")
    start = replace(
        read_continuation(savepoint, graph, plan), prepared={"out": [(1, piece.stored())]}
    )
    check = continued_output.check_continued_output
    check(plan, {"out": None}, start, None)  # it is committed

    (tmp_path / f".{piece.piece}.{piece.owner}.pending").touch()

    with pytest.raises(FlowDefinitionError, match=r"sink 'out': part-00000-.* with until=None"):
        check(plan, {"out": None}, start, None)
    check(plan, {"out": None}, start, 80)
    check(plan, {"out": SparkSink[Any](tmp_path)}, start, None)


def test_the_session_is_checked_before_the_whole_state_is_read(tmp_path: Path) -> None:
    nothing: Any = object()
    running = backfill(
        build,
        session=nothing,
        sources={"items": nothing},
        sinks={"out": None},
        until=80,
        savepoint=tmp_path / "next",
        restore=tmp_path / "missing",
    )

    with pytest.raises(FlowDefinitionError, match="needs a session of Spark in session="):
        asyncio.run(running)
