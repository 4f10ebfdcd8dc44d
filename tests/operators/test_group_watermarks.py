"""Watermarks of key groups that are ahead of their subtask after a restore."""

from __future__ import annotations

from aflow.model.codecs import PLAIN
from aflow.model.key_groups import KeyGroupRange, key_group, ranges
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.operators.base import OperatorContext
from aflow.operators.group_watermarks import GroupWatermarks, no_group_ahead, restored_watermarks
from aflow.state.snapshot import OperatorSnapshot
from tests.operators.driver import ManualTime, RecordingOutput


def context(subtask: int = 0, parallelism: int = 1) -> OperatorContext:
    time = ManualTime()
    return OperatorContext(
        name="step",
        output=RecordingOutput(),
        clock=time,
        alarm=time,
        subtask=subtask,
        parallelism=parallelism,
        key_groups=ranges(4, parallelism)[subtask],
        key_group_count=4,
    )


def snapshot(*entries: object) -> OperatorSnapshot:
    return OperatorSnapshot({}, {"@watermark": tuple(map(PLAIN.encode, entries))})


def key_of(group: int) -> str:
    return next(key for key in map(str, range(99)) if key_group(key, 4) == group)


def of_groups(watermarks: GroupWatermarks, watermark: int) -> list[int]:
    return [watermarks.of(key_of(group), watermark) for group in range(4)]


def test_each_group_ahead_of_its_subtask_keeps_its_own_watermark() -> None:
    watermark, ahead = restored_watermarks(snapshot([7, 0, 2], [3, 2, 4]), 0, context())

    assert watermark == 3
    assert of_groups(ahead, watermark) == [7, 7, 3, 3]


def test_only_the_groups_of_the_subtask_are_restored() -> None:
    watermark, ahead = restored_watermarks(snapshot([7, 0, 3], [3, 3, 4]), 0, context(1, 2))

    assert of_groups(ahead, watermark) == [3, 3, 7, 3]


def test_a_group_that_is_still_ahead_is_stored_alone_and_restored_with_the_greater_watermark() -> (
    None
):
    _, ahead = restored_watermarks(snapshot([9, 1, 2], [3, 0, 4]), 0, context())
    stored = ahead.after(5).stored(5, KeyGroupRange(0, 4))

    assert [PLAIN.decode(data) for data in stored["@watermark"]] == [[5, 0, 4], [9, 1, 2]]
    watermark, again = restored_watermarks(OperatorSnapshot({}, stored), 0, context())
    assert of_groups(again, watermark) == [5, 9, 5, 5]


def test_no_group_is_ahead_once_the_subtask_has_reached_it() -> None:
    _, ahead = restored_watermarks(snapshot([9, 1, 2], [3, 0, 4]), 0, context())

    assert ahead.after(8)
    assert not ahead.after(9)


def test_the_end_of_time_is_stored_only_if_state_has_outlived_it() -> None:
    none, groups = no_group_ahead(context()), KeyGroupRange(0, 4)

    assert none.stored(MAX_TIMESTAMP, groups) == {}
    assert none.stored(MAX_TIMESTAMP, groups, outlived=True) != {}


def test_a_snapshot_without_watermarks_leaves_the_watermark_as_it_was() -> None:
    watermark, ahead = restored_watermarks(OperatorSnapshot(), MIN_TIMESTAMP, context())

    assert (watermark, bool(ahead)) == (MIN_TIMESTAMP, False)


def test_a_watermark_without_key_groups_as_older_snapshots_have_it_counts_for_the_smallest() -> (
    None
):
    watermark, ahead = restored_watermarks(snapshot(7, 3), MIN_TIMESTAMP, context())

    assert (watermark, bool(ahead)) == (3, False)
