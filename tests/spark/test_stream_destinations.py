"""The results of an epoch: functions that fail, output whose sink has changed since, and state that is not there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pyarrow
import pytest

from aflow.backfill.epoch_state import EpochState
from aflow.backfill.epochs import EpochPart
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.live_savepoint import LiveSavepoint
from aflow.backfill.stream_recovery import StreamFolders, opened_stream
from aflow.errors import CheckpointError, FlowDefinitionError, RestoreError, SinkError
from aflow.state.manifest import FileRef
from aflow_connectors.spark import EachEpoch, Results, SparkSink
from aflow_connectors.spark.backfill.fragment_task import TaskEpoch
from aflow_connectors.spark.backfill.rows import StepCounts
from aflow_connectors.spark.stream.destinations import EpochCall, EpochFolder, publish_former
from aflow_connectors.spark.stream.epochs import Epochs
from aflow_connectors.spark.stream.preparation import refuse_foreign_output
from aflow_connectors.spark.stream.rows import StreamRows
from tests.backfill.comparison import Case
from tests.backfill.items import Item
from tests.backfill.live_legs import live_leg
from tests.backfill.test_stream_recovery import opened

pa: Any = pyarrow  # which has no types
SCHEMA: Any = pa.schema([("n", pa.int64())])


async def upsert(table: object, epoch: int = 0) -> None:
    """Would never be awaited."""


class Upsert:
    async def __call__(self, table: object, epoch: int = 0) -> None:
        """Would never be awaited."""


@pytest.mark.parametrize("function", [upsert, Upsert()])
def test_a_coroutine_function_is_refused_as_a_destination(function: Any) -> None:
    for destination in (EachEpoch, Results):
        with pytest.raises(FlowDefinitionError, match="is a coroutine function"):
            destination(function)


def test_an_error_of_a_function_names_its_sink_and_the_epoch() -> None:
    def fail(table: object, epoch: int) -> None:
        raise ConnectionError("the database is away")

    with pytest.raises(SinkError, match=r"sink 'totals': the function .* for epoch 3: .* is away"):
        EpochCall(EachEpoch(fail), "totals").call(cast("Any", None), 3)


def test_a_function_whose_result_would_be_awaited_fails() -> None:
    destination = EpochCall(EachEpoch(lambda table, epoch: upsert(table)), "totals")

    with pytest.raises(SinkError, match="returned an awaitable"):
        destination.call(cast("Any", None), 3)


def test_committed_output_is_published_though_the_sink_writes_elsewhere_now(
    tmp_path: Path,
) -> None:
    folder = EpochFolder(SparkSink[Any](tmp_path / "totals", schema=SCHEMA), "totals")
    folder.recover([])
    written = Path(folder.target.folder) / "records.parquet"
    written.write_bytes(b"records")
    prepared = folder.prepare(2, [written.name])
    folder.close()  # killed before it was published
    assert not shown(tmp_path / "totals")

    publish_former("totals", prepared)
    publish_former("totals", prepared)

    assert [one.read_bytes() for one in shown(tmp_path / "totals")] == [b"records"]


def epochs_of(state: EpochState) -> Epochs:
    """Return the epochs of a stream that drops its results."""
    return Epochs(
        session=cast("Any", None),
        state=state,
        rows=StreamRows({}),
        sinks={"out": None},
        pickled={},
        subtasks=1,
        interval=1.0,
        cache_bytes=0,
    )


def test_a_query_that_drops_the_results_of_a_sink_publishes_what_was_committed(
    tmp_path: Path,
) -> None:
    folder = EpochFolder(SparkSink[Any](tmp_path / "totals", schema=SCHEMA), "out")
    folder.recover([])
    written = Path(folder.target.folder) / "records.parquet"
    written.write_bytes(b"records")
    prepared = folder.prepare(1, [written.name])
    folder.close()
    state = opened(tmp_path / "state")
    with closing(state.store):
        state.begin({"out": prepared})

        epochs_of(state).begin()

    assert len(shown(tmp_path / "totals")) == 1
    assert state.output_of("out") == []


def test_an_epoch_with_state_that_the_driver_does_not_see_is_not_committed(tmp_path: Path) -> None:
    state = opened(tmp_path / "state")
    with closing(state.store):
        state.begin({})
        epochs: Any = epochs_of(state)
        file = FileRef("parts/000002-sums-0-x.part", 3, "00000000")
        counts = StepCounts(1, 0, {}, {}, 0, part=EpochPart("sums", 0, file, complete=True))
        epoch = TaskEpoch(2, state.watermarks(), state.store.folder, None, None)

        with pytest.raises(CheckpointError, match="driver and all executors see alike"):
            epochs._commit(epoch, [counts], {}, None, cut=None, held=())

    assert state.last.id == 1


def shown(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if not one.name.startswith(".")]


def test_files_of_attempts_that_do_not_count_are_removed_after_each_epoch(tmp_path: Path) -> None:
    folder = EpochFolder(SparkSink[Any](tmp_path / "totals", schema=SCHEMA), "totals")
    folder.recover([])
    hidden = Path(folder.target.folder)
    for name in ("counts.parquet", "killed.parquet"):
        (hidden / name).write_bytes(b"records")

    folder.prepare(2, ["counts.parquet"])
    folder.publish()

    assert [one.name for one in hidden.iterdir()] == [".claim"]
    assert len(shown(tmp_path / "totals")) == 1
    folder.close()
    assert not hidden.exists()


def test_output_that_another_sink_of_a_live_job_has_prepared_is_refused_by_name(
    tmp_path: Path,
) -> None:
    case = Case(lambda streams: {"out": streams["items"]}, {"items": [Item(1, 1, 1)] * 2})
    live_leg(case, tmp_path / "live", {"items": 2}, waited=1)
    graph = case.flow({"items": []}, case.new_sinks()).graph
    restore = LiveSavepoint(tmp_path / "live")
    folders = StreamFolders(tmp_path / "state", restore, None, None, allow_dropped_state=False)
    state = opened_stream(graph, plan_fragments(graph, can_be_late=True), folders)

    with closing(state.store), pytest.raises(RestoreError, match=r"sink 'out': .*SparkSink only"):
        refuse_foreign_output(state)
