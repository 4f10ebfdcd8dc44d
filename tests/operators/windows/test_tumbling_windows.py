"""Tumbling windows, and sliding ones without shared panes: firing, lateness, clean-up, state; in all modes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import CheckpointError, OperatorError, RestoreError
from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows
from aflow.machines.windows.triggers import Count
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP
from aflow.model.windows import Windowed
from aflow.operators.accumulation import Accumulation, folding
from aflow.operators.base import StateSize
from aflow.operators.windows.factory import window_operator
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.state.snapshot import merge
from aflow.testing import Mode
from tests.operators.backends import BackendHarness as OperatorHarness

Event = tuple[str, int]
Harness = OperatorHarness[Event, Windowed[str, int]]

SUM = Accumulation(lambda event: event[1], lambda total, event: total + event[1])


def harness(
    mode: Mode = Mode.STRAIGHT,
    *,
    assigner: TumblingWindows | SlidingWindows | None = None,
    lateness: int = 0,
    parallelism: int = 1,
    subtask: int = 0,
) -> Harness:
    chosen = assigner or TumblingWindows(10)
    return OperatorHarness(
        lambda: PaneAggregateOperator(chosen, SUM, lateness=lateness),
        key=lambda event: event[0],
        mode=mode,
        parallelism=parallelism,
        subtask=subtask,
    )


def rows(step: Harness) -> list[tuple[str, int, int]]:
    return [(w.key, w.window.start, w.value) for w in step.values]


def late(step: Harness) -> list[Event]:
    return [record.value for record in step.side(Tag[Event](LATE))]


every_way = pytest.mark.parametrize("mode", Mode)


@every_way
def test_a_window_fires_when_the_watermark_reaches_its_last_timestamp(mode: Mode) -> None:
    step = harness(mode)
    step.push(("a", 1), 3)
    step.push(("a", 2), 9)

    step.watermark(8)
    before = rows(step)
    step.watermark(9)

    assert (before, rows(step)) == ([], [("a", 0, 3)])


@every_way
def test_results_have_the_last_timestamp_of_the_window_and_precede_the_watermark(
    mode: Mode,
) -> None:
    step = harness(mode)
    step.push(("a", 1), 3)

    step.watermark(12)

    first, second = step.output
    assert getattr(first, "timestamp", None) == 9
    assert getattr(second, "timestamp", None) == 12


@every_way
def test_windows_that_are_due_together_fire_in_the_order_of_time(mode: Mode) -> None:
    step = harness(mode)
    step.push(("a", 1), 25)
    step.push(("a", 2), 5)
    step.push(("a", 3), 15)

    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [("a", 0, 2), ("a", 10, 3), ("a", 20, 1)]


@every_way
def test_a_record_whose_windows_were_removed_is_emitted_unchanged_to_the_late_output(
    mode: Mode,
) -> None:
    step = harness(mode)
    step.watermark(9)

    step.push(("a", 1), 9)
    step.push(("a", 2), 10)
    step.watermark(MAX_TIMESTAMP)

    assert late(step) == [("a", 1)]
    assert rows(step) == [("a", 10, 2)]


@every_way
def test_within_the_lateness_a_record_fires_its_window_again_for_its_key_only(mode: Mode) -> None:
    step = harness(mode, lateness=5)
    step.push(("a", 1), 1)
    step.push(("b", 10), 1)
    step.watermark(9)

    step.push(("a", 2), 2)
    step.watermark(13)
    step.push(("c", 7), 3)
    step.watermark(14)
    step.push(("a", 4), 4)

    fired, again = rows(step)[:2], rows(step)[2:]
    assert sorted(fired) == [("a", 0, 1), ("b", 0, 10)]
    assert again == [("a", 0, 3), ("c", 0, 7)]
    assert late(step) == [("a", 4)]


@every_way
def test_results_have_the_number_of_the_firing_of_their_key_and_window(mode: Mode) -> None:
    step = harness(mode, lateness=20)
    step.push(("a", 1), 1)
    step.push(("a", 1), 11)
    step.watermark(9)

    step.push(("a", 2), 2)
    step.push(("b", 7), 2)
    step.push(("a", 4), 2)
    step.push(("b", 1), 2)
    step.watermark(19)

    found = [(w.key, w.window.start, w.value, w.firing) for w in step.values]
    assert found == [
        ("a", 0, 1, 1),
        ("a", 0, 3, 2),
        ("b", 0, 7, 1),
        ("a", 0, 7, 3),
        ("b", 0, 8, 2),
        ("a", 10, 1, 1),
    ]


@every_way
def test_an_emitted_result_does_not_change_with_late_records(mode: Mode) -> None:
    def append(so_far: list[int], event: Event) -> list[int]:
        so_far.append(event[1])
        return so_far

    def extend(a: list[int], b: list[int]) -> list[int]:
        a.extend(b)
        return a

    step: OperatorHarness[Event, Windowed[str, list[int]]] = OperatorHarness(
        lambda: PaneAggregateOperator(
            TumblingWindows(10), folding(list[int], append, extend), lateness=5
        ),
        key=lambda event: event[0],
        mode=mode,
    )
    step.push(("a", 1), 1)
    step.watermark(9)

    step.push(("a", 2), 1)
    step.push(("a", 3), 1)

    assert [w.value for w in step.values] == [[1], [1, 2], [1, 2, 3]]


def test_a_window_is_one_timer_however_many_keys_it_has() -> None:
    step = harness(lateness=5)
    step.push_batch([("a", 1), ("b", 1), ("a", 1)], [1, 1, 11])
    both_open = step.size
    step.watermark(9)
    one_fired = step.size
    step.watermark(24)

    assert both_open == one_fired == StateSize(entries=3, event_timers=2)
    assert step.size == StateSize()


def test_keys_of_a_subtask_that_was_ahead_keep_their_watermark() -> None:
    halves = [harness(parallelism=2, subtask=subtask) for subtask in range(2)]
    groups = [half.operator.context.key_groups for half in halves]
    keys = [next(f"k{n}" for n in range(99) if key_group(f"k{n}") in own) for own in groups]
    for half, key, watermark in zip(halves, keys, (14, 4), strict=True):
        half.push((key, 1), 5)
        half.watermark(watermark)
    snapshots = [half.snapshot() for half in halves]
    fast, slow = keys

    step = harness()
    step.restore(*(snapshot for snapshot in snapshots if snapshot is not None))
    step.restart()
    step.push_batch([(fast, 2), (slow, 2), (fast, 4)], [9, 9, 10])
    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [(slow, 0, 3), (fast, 10, 4)]
    assert late(step) == [(fast, 2)]


@every_way
def test_a_window_whose_clean_up_time_lies_beyond_the_end_of_time_is_kept(mode: Mode) -> None:
    step = harness(mode, lateness=MAX_TIMESTAMP)
    step.push(("a", 1), 1)
    step.watermark(MAX_TIMESTAMP - 1)

    step.push(("a", 2), 2)

    assert rows(step) == [("a", 0, 1), ("a", 0, 3)]


@every_way
def test_a_batch_may_lie_in_several_windows(mode: Mode) -> None:
    step = harness(mode)

    step.push_batch([("a", 1), ("a", 2), ("b", 4), ("a", 8)], [1, 11, 2, 12])
    step.watermark(MAX_TIMESTAMP)

    assert sorted(rows(step)) == [("a", 0, 1), ("a", 10, 10), ("b", 0, 4)]


@every_way
def test_a_record_is_in_each_of_its_sliding_windows_that_was_not_removed(mode: Mode) -> None:
    step = harness(mode, assigner=SlidingWindows(20, 10))
    step.watermark(9)

    step.push(("a", 1), 5)
    step.push(("a", 2), 12)
    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [("a", 0, 3), ("a", 10, 2)]
    assert late(step) == []


def test_state_is_cleared_with_the_windows() -> None:
    step = harness(lateness=5)
    step.push(("a", 1), 1)
    step.watermark(9)
    kept = step.snapshot()

    step.watermark(14)

    gone = step.snapshot()
    assert kept is not None
    assert gone is not None
    assert (len(kept.keyed), gone.keyed) == (1, {})


@pytest.mark.parametrize("after", [1, 2, 5])
def test_windows_move_with_their_keys_to_any_parallelism(after: int) -> None:
    events = [(f"key-{number}", number) for number in range(40)]
    first = harness(lateness=100)
    first.push_batch(events, [1] * 40)
    first.watermark(9)
    first.push_batch(events, [11] * 40)
    snapshot = first.snapshot()
    assert snapshot is not None

    found: list[tuple[str, int, int]] = []
    for subtask in range(after):
        step = harness(lateness=100, parallelism=after, subtask=subtask)
        step.restore(merge([snapshot]))
        step.watermark(MAX_TIMESTAMP)
        found += rows(step)

    assert sorted(found) == sorted((key, 10, value) for key, value in events)


def test_an_accumulator_that_cannot_be_stored_says_so_with_its_step_and_key() -> None:
    step: OperatorHarness[Event, Windowed[str, object]] = OperatorHarness(
        lambda: PaneAggregateOperator(
            TumblingWindows(10), Accumulation(lambda _: object(), lambda held, _: held)
        ),
        key=lambda event: event[0],
    )
    step.push(("a", 1), 1)

    with pytest.raises(CheckpointError, match=r"'step'.*'a'.*of="):
        step.snapshot()


def test_the_error_for_records_without_timestamps_names_the_method_to_call() -> None:
    with pytest.raises(OperatorError, match=r"event_time"):
        harness().push(("a", 1))


def test_an_error_of_the_function_names_the_record() -> None:
    step = harness()

    with pytest.raises(OperatorError, match="'step'") as info:
        step.push_batch([("a", 1), ("a", "x")], [1, 2])  # type: ignore[list-item]

    assert (info.value.record, info.value.key, info.value.timestamp) == (("a", "x"), "a", 2)


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("ab"), st.integers(0, 60)),
            st.integers(0, 60),
        ),
        max_size=25,
    ),
    lateness=st.integers(0, 20),
    assigner=st.sampled_from([TumblingWindows(7), SlidingWindows(10, 4), SlidingWindows(3, 5)]),
)
@settings(max_examples=150, deadline=None)
def test_a_restore_after_every_step_changes_nothing(
    steps: list[tuple[str, int] | int],
    lateness: int,
    assigner: TumblingWindows | SlidingWindows,
) -> None:
    both = [harness(mode, assigner=assigner, lateness=lateness) for mode in Mode]
    for step in both:
        watermark = -1
        for number, what in enumerate(steps):
            if isinstance(what, int):
                watermark = max(watermark, what)
                step.watermark(watermark)
            else:
                step.push((what[0], number), what[1])
        step.watermark(MAX_TIMESTAMP)

    straight, *restored = both

    assert [sorted(rows(step)) for step in restored] == [sorted(rows(straight))] * 2
    assert [late(step) for step in restored] == [late(straight)] * 2


def test_windows_of_another_size_do_not_restore_stored_contents() -> None:
    before = harness(assigner=TumblingWindows(10))
    before.push(("a", 1), 5)
    stored = before.snapshot()
    assert stored is not None

    with pytest.raises(
        RestoreError, match=r"20 ms.*contents of panes of tumbling \(10 ms.*new name"
    ):
        harness(assigner=TumblingWindows(20)).restore(stored)
    with pytest.raises(RestoreError, match=r"sliding \(10 ms every 5 ms"):
        harness(assigner=SlidingWindows(10, 5)).restore(stored)


def test_a_snapshot_of_the_general_step_is_refused_too() -> None:
    logic = WindowLogic(assigner=TumblingWindows(10), trigger=Count(2), apply=len)
    general: Harness = OperatorHarness(
        lambda: window_operator(logic), key=lambda event: event[0], name="step"
    )
    general.push(("a", 1), 5)
    stored = general.snapshot()
    assert stored is not None

    with pytest.raises(RestoreError, match="another kind of windows"):
        harness().restore(stored)
