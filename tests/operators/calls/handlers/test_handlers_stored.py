"""Handlers in snapshots: what had not left runs again, in its place."""

from __future__ import annotations

from contextlib import closing

import pytest

from aflow.model.key_groups import key_group, ranges
from aflow.model.time import MIN_TIMESTAMP, TimeDomain
from aflow.state.snapshot import merge
from tests.operators.calls.handlers.processes import (
    Adding,
    Doing,
    OnBothClocks,
    Ringing,
    Start,
    do,
    total,
)
from tests.operators.calls.harness import CallHarness


def test_a_handler_under_way_runs_again_after_a_restore(start: Start) -> None:
    step = start(Adding()).push(1, 2, keys=["a", "a"])
    step.resume("a")

    restored = start(Adding(), step.snapshot())

    assert total(restored, "a") is None
    restored.finish()
    assert restored.new_values() == ["a1", "a3"]


def test_a_handler_that_waits_behind_a_fence_is_in_the_snapshot(start: Start) -> None:
    step = start(Adding()).push(1, keys=["a"]).watermark(5).push(2, keys=["b"])
    step.resume("b").resume("b")

    restored = start(Adding(), step.snapshot()).finish()

    assert sorted(restored.new_values()) == ["a1", "b2"]


def test_what_has_left_is_not_in_the_snapshot(start: Start) -> None:
    step = start(Adding()).push(1, 2, keys=["a", "a"])
    step.resume("a").resume("a")

    restored = start(Adding(), step.snapshot()).finish()

    assert restored.new_values() == ["a3"]


def test_a_timer_whose_handler_has_not_come_to_its_end_rings_again(start: Start) -> None:
    step = start(Ringing()).push([3, 5], keys=["a"]).finish().watermark(8)
    step.new_items()

    restored = start(Ringing(), step.snapshot()).finish()

    assert restored.new_items() == [(("a", 3, 8), 3), (("a", 5, 8), 5), (("a", 4, 8), 4), 8]


def test_timers_keep_their_place_between_restored_records(start: Start) -> None:
    step = start(Ringing()).push([3], keys=["a"]).watermark(8).push([20], keys=["a"])

    restored = start(Ringing(), step.snapshot())
    restored.push([30], keys=["a"]).finish()

    assert restored.new_values() == [
        ("a", [3], MIN_TIMESTAMP),
        ("a", 3, 8),
        ("a", [20], 8),
        ("a", [30], 8),
    ]


@pytest.mark.parametrize("behind", [True, False])
def test_event_timers_keep_their_place_in_a_snapshot_behind_a_processing_timer_under_way(
    start: Start, behind: bool
) -> None:
    step = start(OnBothClocks()).push("both", keys=["a"], at=[1]).finish()
    step.clock(50).watermark(100)
    step.push("other", keys=["b"], at=[120])
    if behind:
        step.push("behind", keys=["a"], at=[110])

    restored = start(OnBothClocks(), step.snapshot()).watermark(130)
    restored.finish()

    late = ["a behind"] if behind else []
    values = [one for one in restored.new_items() if one != ("b other", 120)]
    assert [one[0] if isinstance(one, tuple) else one for one in values] == [
        "a event time 90",
        *late,
        100,
        130,
    ]


def test_a_subtask_that_is_restored_from_two_keeps_the_watermark_of_each_key(start: Start) -> None:
    """One former subtask was ahead of the other, whose watermark is that of the restored one."""
    slow, fast = (
        next(key for key in "abcdefghijklmnop" if key_group(key, 128) in groups)
        for groups in ranges(128, 2)
    )
    with closing(CallHarness(handlers=Ringing(), subtask=0, parallelism=2)) as behind:
        former = [behind.push([9], keys=[slow]).watermark(7).snapshot()]
    with closing(CallHarness(handlers=Ringing(), subtask=1, parallelism=2)) as ahead:
        former.append(ahead.push([9], keys=[fast]).watermark(10).snapshot())

    restored = start(Ringing(), merge(former)).push([20], [20], keys=[fast, slow]).finish()
    again = start(Ringing(), restored.snapshot())
    values = restored.new_values() + again.push([21], [21], keys=[fast, slow]).finish().new_values()

    assert [value for value in values if value[0] == fast] == [
        (fast, [9], 10),
        (fast, 9, 10),
        (fast, [20], 10),
        (fast, [21], 10),
    ]
    assert [value for value in values if value[0] == slow] == [
        (slow, [9], MIN_TIMESTAMP),
        (slow, [20], 7),
        (slow, [21], 7),
    ]


def test_the_watermark_of_a_former_subtask_counts_until_this_one_has_reached_it(
    start: Start,
) -> None:
    with closing(CallHarness(handlers=Ringing(), subtask=1, parallelism=2)) as ahead:
        fast = next(key for key in "abcdefghijklmnop" if key_group(key, 128) in ranges(128, 2)[1])
        former = ahead.watermark(10).snapshot()
    with closing(CallHarness(handlers=Ringing(), subtask=0, parallelism=2)) as behind:
        both = merge([former, behind.watermark(7).snapshot()])

    step = start(Ringing(), both)
    for watermark in (8, 11, 12):
        step.push([], keys=[fast]).watermark(watermark)

    assert step.push([], keys=[fast]).finish().new_values() == [
        (fast, [], at) for at in (10, 10, 11, 12)
    ]


def test_a_restored_step_with_nothing_under_way_is_not_busy(start: Start) -> None:
    step = start(Ringing()).push([30], keys=["a"]).finish().watermark(8)

    restored = start(Ringing(), step.snapshot())

    assert not restored.step.busy
    assert restored.watermark(7).new_items() == []
    assert restored.watermark(30).finish().new_items() == [(("a", 30, 30), 30), 30]


def test_processing_timers_are_restored(start: Start) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.set_processing_timer(50)), keys=["a"]).finish()

    restored = start(Doing(), step.snapshot()).clock(50).finish()

    assert restored.new_values() == [(TimeDomain.PROCESSING, 50, None)]


def test_a_watermark_that_waits_for_a_handler_is_emitted_by_restored_subtasks_without_records(
    start: Start,
) -> None:
    """The handler is restored in another subtask, and these have nothing that would let the watermark go."""
    step = start(Adding()).push(1, keys=["a"]).watermark(5)

    for subtask, expected in enumerate(([5], [("a1", None), 5])):
        shared = step.snapshot().restricted_to(ranges(128, 2)[subtask])
        restored = CallHarness(handlers=Adding(), restored=shared, subtask=subtask, parallelism=2)
        with closing(restored):
            assert restored.finish().new_items() == expected
