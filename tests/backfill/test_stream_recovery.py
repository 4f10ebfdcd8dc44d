"""A state folder whose records contradict each other, or the arguments, is refused; its lock is released."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import aflow as af
from aflow.backfill import epoch_state
from aflow.backfill.epoch_state import EpochState
from aflow.backfill.epoch_time import EpochWatermarks, StreamWatermarks
from aflow.backfill.epochs import EpochPart, write_epoch_part
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.stream_recovery import (
    SPARK,
    StreamFolders,
    last_planned_batch,
    opened_stream,
)
from aflow.errors import AflowError
from aflow.model.time import MIN_TIMESTAMP
from aflow.state.manifest import FileRef
from aflow.state.snapshot import OperatorSnapshot
from tests.backfill.items import millis


def opened(
    folder: Path, folders: StreamFolders | None = None, *, source: str = "numbers"
) -> EpochState:
    """Return the state of the stream in ``folder``."""
    flow = af.Flow("sums")
    timed = flow.source([1, 2], name=source).event_time(lambda n: n, name="times")
    windows = timed.key_by(lambda n: n % 2).window(af.Tumbling(millis(10)))
    sums = windows.fold(int, lambda total, n: total + n, name="sums")
    sums.to(af.CollectSink[object](), name="out")
    plan = plan_fragments(flow.graph)
    given = folders or StreamFolders(folder, None, None, None, False)
    return opened_stream(flow.graph, plan, replace(given, state=folder))


def marks(state: EpochState, of_all: EpochWatermarks) -> StreamWatermarks:
    """Return watermarks of the next epoch that are alike for all steps."""
    return replace(state.watermarks(), stream=of_all, steps={"sums": of_all})


def committed(folder: Path) -> None:
    """Commit an epoch over batch 7, with records up to 500, that has left nothing."""
    state = opened(folder)
    with closing(state.store):
        state.begin({})
        state.commit(
            marks(state, EpochWatermarks(0, 100)),
            [EpochPart("sums", 0, None, complete=True)],
            [{"times": 300}, {"times": 500}],
            {},
            batch=7,
            subtasks=1,
        )
    (folder / SPARK / "offsets").mkdir(parents=True)
    (folder / SPARK / "offsets" / "7").touch()


def test_a_stream_continues_from_its_last_epoch(tmp_path: Path) -> None:
    committed(tmp_path)

    state = opened(tmp_path)

    state.store.close()
    assert (state.last.id, state.position.batch, state.watermark) == (2, 7, 100)
    watermarks = state.watermarks()
    assert watermarks.stream == watermarks.steps["sums"] == EpochWatermarks(100, 499)
    assert state.can_advance()


def test_a_source_without_records_for_its_time_is_idle_and_active_after_an_epoch_with_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0]
    monkeypatch.setattr(epoch_state, "_steady", lambda: now[0])
    flow = af.Flow("two")
    left = flow.source([1], name="a").event_time(lambda n: n, name="left")
    right = flow.source([1], name="b").event_time(lambda n: n, name="right", idle_after=millis(50))
    left.union(right).to(af.CollectSink[int](), name="out")
    plan = plan_fragments(flow.graph)
    state = opened_stream(
        flow.graph, plan, StreamFolders(tmp_path, None, None, None, allow_dropped_state=False)
    )

    def after(**newest: int) -> int:
        """The watermark of an epoch without rows that follows one with these newest timestamps."""
        state.commit(state.watermarks(), [], [newest], {}, batch=None, subtasks=1)
        return state.watermarks(waited=0).stream.after

    with closing(state.store):
        state.begin({})
        now[0] = 50
        assert after(left=300) == MIN_TIMESTAMP
        now[0] = 51
        assert state.watermarks(waited=1).stream.after == MIN_TIMESTAMP
        assert after(left=400) == 399
        # An active source holds back those that are ahead of it.
        assert after(left=800, right=500) == 499
        now[0] = 101
        assert after(left=900) == 499
        now[0] = 102
        assert after(left=1000) == 999


def test_the_watermark_of_each_split_continues(tmp_path: Path) -> None:
    flow = af.Flow("splits")
    timed = flow.source([1, 2], name="numbers").event_time(lambda n: n, name="times")
    timed.to(af.CollectSink[int](), name="out")
    plan, folders = plan_fragments(flow.graph), StreamFolders(tmp_path, None, None, None, False)

    def after(
        splits: list[dict[str, dict[str, int]]], *, of: tuple[str, ...] = ("numbers",)
    ) -> int:
        state = opened_stream(flow.graph, plan, folders, split_sources=of)
        with closing(state.store):
            state.begin({})
            newest = [{step: max(some.values()) for step, some in one.items()} for one in splits]
            state.commit(state.watermarks(), [], newest, {}, batch=None, subtasks=1, splits=splits)
            return state.watermarks().stream.after

    assert after([{"times": {"0": 300}}, {"times": {"0": 200, "1": 100}}]) == 99
    assert after([{"times": {"0": 500}}]) == 99
    assert after([{"times": {"1": 400}}]) == 399
    # Without splits the newest record decides.
    assert after([{"times": {"": 450}}], of=()) == 449


def test_the_watermark_stops_before_the_records_that_wait_for_a_savepoint(tmp_path: Path) -> None:
    committed(tmp_path)
    state = opened(tmp_path)
    held = ("3",)

    with closing(state.store):
        assert state.watermarks(cut=501).stream == EpochWatermarks(100, 499)
        assert state.watermarks(cut=300).stream == EpochWatermarks(100, 299)
        assert state.can_advance(cut=300)
        state.commit(
            state.watermarks(cut=300),
            [EpochPart("sums", 0, None, complete=True)],
            [{"times": 900}],
            {},
            batch=8,
            subtasks=1,
            cut=300,
            held=held,
        )
        assert not state.can_advance(cut=300)
        assert state.can_advance()
    (tmp_path / SPARK / "offsets" / "8").touch()
    again = opened(tmp_path)

    again.store.close()
    assert (again.position.cut, again.position.held) == (300, held)
    assert again.watermarks().stream == EpochWatermarks(299, 899)


@pytest.mark.parametrize(
    ("until", "refused"), [(300, True), (500, True), (501, False), (None, False)]
)
def test_an_end_within_the_records_so_far_is_refused(
    until: int | None, refused: bool, tmp_path: Path
) -> None:
    committed(tmp_path / "state")
    savepoint = None if until is None else tmp_path / "savepoint"
    folders = StreamFolders("", None, savepoint, until, False)

    if refused:
        with pytest.raises(AflowError, match="had no end, and has processed or left out records"):
            opened(tmp_path / "state", folders)
    else:
        state = opened(tmp_path / "state", folders)
        state.store.close()
        assert state.position.until == until


def test_another_beginning_than_that_of_the_epochs_is_refused(tmp_path: Path) -> None:
    committed(tmp_path / "state")

    with pytest.raises(AflowError, match="has begun with no savepoint, and restore= is"):
        opened(tmp_path / "state", StreamFolders("", tmp_path / "july", None, None, False))


def test_other_sources_than_those_of_the_epochs_are_refused(tmp_path: Path) -> None:
    committed(tmp_path)

    # Its offsets would be those of 'numbers': Spark stores them by the order of the sources.
    with pytest.raises(
        AflowError, match="has read the sources 'numbers', and this flow has 'amounts'"
    ):
        opened(tmp_path, source="amounts")

    opened(tmp_path).store.close()


def test_the_last_batch_that_spark_has_begun_is_known(tmp_path: Path) -> None:
    assert last_planned_batch(tmp_path) is None

    committed(tmp_path)
    (tmp_path / SPARK / "offsets" / "8").touch()
    (tmp_path / SPARK / "offsets" / ".8.crc").touch()

    assert last_planned_batch(tmp_path) == 8


def test_a_checkpoint_of_spark_that_is_not_that_of_the_epochs_is_refused(tmp_path: Path) -> None:
    committed(tmp_path)
    offsets, commits = tmp_path / SPARK / "offsets", tmp_path / SPARK / "commits"

    commits.mkdir()
    (commits / "8").touch()
    with pytest.raises(
        AflowError, match=r"has completed batch 8, and the last epoch in .* of batch 7"
    ):
        opened(tmp_path)
    (commits / "8").unlink()
    (offsets / "7").rename(offsets / "6")
    with pytest.raises(AflowError, match="of Spark's batch 7, which is not in Spark's checkpoint"):
        opened(tmp_path)


def test_state_that_is_missing_is_refused(tmp_path: Path) -> None:
    state = opened(tmp_path)
    file = FileRef("parts/000002-sums-0.part", 10, "00000000")
    with closing(state.store):
        state.begin({})
        state.commit(
            marks(state, EpochWatermarks(0, 100)),
            [EpochPart("sums", 0, file, complete=True)],
            [],
            {},
            batch=None,
            subtasks=1,
        )

    with pytest.raises(AflowError, match="is missing"):
        opened(tmp_path)


def test_the_output_of_an_added_sink_is_recorded_before_the_next_epoch(tmp_path: Path) -> None:
    committed(tmp_path)
    state = opened(tmp_path)
    with closing(state.store):
        state.begin({"out": [{"owner": "a"}]})

    state = opened(tmp_path)
    state.store.close()
    assert state.output_of("out") == [{"owner": "a"}]
    assert state.last.id == 2


def test_a_savepoint_of_another_stream_is_not_taken_for_its_own(tmp_path: Path) -> None:
    def ending(name: str, savepoint: Path) -> EpochState:
        return opened(tmp_path / name, StreamFolders("", None, savepoint, 600, False))

    def commit(state: EpochState, watermark: int) -> None:
        snapshot = OperatorSnapshot(operator={"windows": (b"1",)})
        part = write_epoch_part(
            state.store.folder, state.last.id + 1, "sums", 0, {"sums": snapshot}
        )
        state.commit(
            marks(state, EpochWatermarks(0, watermark)), [part], [], {}, batch=None, subtasks=1
        )

    first = ending("first", tmp_path / "savepoint")
    with closing(first.store):
        first.begin({})
        commit(first, 599)
        first.finish(1)
        assert first.is_finished
    # Killed after the savepoint was written.
    again = ending("first", tmp_path / "savepoint")
    with closing(again.store):
        again.finish(1)
        assert again.is_finished

    other = ending("other", tmp_path / "new")
    with closing(other.store):
        other.begin({})
        commit(other, 100)
        commit(other, 599)
    other = ending("other", tmp_path / "savepoint")
    with (
        closing(other.store),
        pytest.raises(AflowError, match="has another savepoint than that of this stream"),
    ):
        other.finish(1)


def test_a_part_that_the_driver_does_not_see_is_refused(tmp_path: Path) -> None:
    state = opened(tmp_path)
    with closing(state.store):
        file = FileRef("parts/000002-sums-0-x.part", 3, "00000000")
        part = EpochPart("sums", 0, file, complete=True)
        with pytest.raises(AflowError, match="the driver and all executors see alike"):
            state.store.check_written([part])
        (tmp_path / "parts").mkdir(exist_ok=True)
        (tmp_path / file.path).write_bytes(b"ab")
        with pytest.raises(AflowError, match="has 2 bytes here"):
            state.store.check_written([part])
        (tmp_path / file.path).write_bytes(b"abc")
        state.store.check_written([part])
