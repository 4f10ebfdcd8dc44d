"""Sliding windows that share panes: the results of windows with panes of their own, at the cost of shared panes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import CheckpointError, OperatorError
from aflow.machines.windows.assigners import SlidingWindows
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.model.windows import Windowed
from aflow.operators.accumulation import Accumulation, folding, reducing
from aflow.operators.windows import split_dict
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.testing import Mode
from tests.operators.backends import BackendHarness as OperatorHarness
from tests.operators.backends import using

Event = tuple[str, int]
Harness = OperatorHarness[Event, Windowed[str, Any]]


def extended(so_far: list[int], event: Event) -> list[int]:
    so_far.append(event[1])
    return so_far


def concatenated(a: list[int], b: list[int]) -> list[int]:
    a.extend(b)
    return a


def inserted(so_far: list[int], event: Event) -> list[int]:
    so_far.append(event[1])
    so_far.sort()
    return so_far


def merged(a: list[int], b: list[int]) -> list[int]:
    a[:] = sorted([*a, *b])
    return a


SUM = folding(int, lambda total, event: total + event[1], lambda a, b: a + b)
#: Changes its accumulators in place and emits them unchanged.
SORTED = folding(list[int], inserted, merged)
#: Keeps the order of panes, which shows whether they are merged in time order.
ORDERED = folding(list[int], extended, concatenated)
#: Values without a neutral element.
LARGEST = reducing(max)


def harness(
    mode: Mode = Mode.STRAIGHT,
    *,
    windows: SlidingWindows | None = None,
    accumulation: Accumulation = SUM,
    lateness: int = 0,
    parallelism: int = 1,
    subtask: int = 0,
    shared: bool = True,
) -> Harness:
    chosen = windows or SlidingWindows(20, 10)
    return OperatorHarness(
        lambda: PaneAggregateOperator(chosen, accumulation, shared=shared, lateness=lateness),
        key=lambda event: event[0],
        mode=mode,
        parallelism=parallelism,
        subtask=subtask,
    )


def rows(step: Harness) -> list[tuple[str, int, Any]]:
    return [(w.key, w.window.start, w.value) for w in step.values]


def firings(step: Harness) -> list[tuple[str, int, Any, int]]:
    return [(w.key, w.window.start, w.value, w.firing) for w in step.values]


def late(step: Harness) -> list[Event]:
    return [record.value for record in step.side(Tag[Event](LATE))]


every_way = pytest.mark.parametrize("mode", Mode)


@every_way
def test_a_record_is_in_each_of_its_windows_which_fire_in_the_order_of_time(mode: Mode) -> None:
    step = harness(mode)
    step.push(("a", 1), 5)
    step.push(("a", 2), 12)

    step.watermark(18)
    before = rows(step)
    step.watermark(MAX_TIMESTAMP)

    assert before == [("a", -10, 1)]
    assert rows(step) == [("a", -10, 1), ("a", 0, 3), ("a", 10, 2)]


@every_way
def test_panes_are_merged_in_the_order_of_time(mode: Mode) -> None:
    step = harness(mode, windows=SlidingWindows(40, 10), accumulation=ORDERED)
    for number in range(8):
        step.push(("a", number), number * 10)
        step.watermark(number * 10)

    step.watermark(MAX_TIMESTAMP)

    assert [value for _, _, value in rows(step)] == [
        list(range(max(0, last - 3), min(last, 7) + 1)) for last in range(11)
    ]


@every_way
def test_a_record_whose_first_windows_have_fired_counts_in_the_others_only(mode: Mode) -> None:
    step = harness(mode)
    step.push(("a", 1), 15)
    step.watermark(19)

    step.push(("a", 2), 14)
    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [("a", 0, 1), ("a", 10, 3)]
    assert late(step) == []


@every_way
def test_records_of_fired_windows_do_not_change_the_panes_of_the_others(mode: Mode) -> None:
    step = harness(mode, windows=SlidingWindows(40, 10), accumulation=SORTED)
    step.push_batch([("a", number) for number in range(4)], [0, 10, 20, 30])
    step.watermark(39)

    step.push(("a", 7), 25)
    step.watermark(49)
    step.push(("a", 8), 35)
    step.watermark(MAX_TIMESTAMP)

    assert rows(step)[3:] == [
        ("a", 0, [0, 1, 2, 3]),
        ("a", 10, [1, 2, 3, 7]),
        ("a", 20, [2, 3, 7, 8]),
        ("a", 30, [3, 8]),
    ]


@every_way
def test_a_record_whose_windows_were_removed_is_emitted_unchanged_to_the_late_output(
    mode: Mode,
) -> None:
    step = harness(mode)
    step.watermark(29)

    step.push(("a", 1), 9)
    step.push(("a", 2), 10)
    step.push(("a", 3), 20)
    step.watermark(MAX_TIMESTAMP)

    assert late(step) == [("a", 1), ("a", 2)]
    assert rows(step) == [("a", 20, 3)]


@every_way
def test_within_the_lateness_a_record_fires_each_of_its_fired_windows_again(mode: Mode) -> None:
    step = harness(mode, lateness=15)
    step.push(("a", 1), 5)
    step.push(("b", 7), 5)
    step.watermark(19)

    step.push(("a", 2), 6)
    step.push(("c", 3), 6)
    step.push(("a", 4), 6)

    first = [("a", -10, 1, 1), ("b", -10, 7, 1), ("a", 0, 1, 1), ("b", 0, 7, 1)]
    again = [("a", -10, 3, 2), ("a", 0, 3, 2)]
    new = [("c", -10, 3, 1), ("c", 0, 3, 1)]
    once_more = [("a", -10, 7, 3), ("a", 0, 7, 3)]
    assert sorted(firings(step)[:4]) == sorted(first)
    assert firings(step)[4:] == again + new + once_more


@every_way
def test_firing_again_does_not_change_the_panes(mode: Mode) -> None:
    step = harness(mode, windows=SlidingWindows(40, 10), accumulation=SORTED, lateness=100)
    step.push_batch([("a", number) for number in range(4)], [0, 10, 20, 30])
    step.watermark(39)

    step.push(("a", 7), 5)
    step.watermark(49)

    assert firings(step)[4:] == [
        ("a", -30, [0, 7], 2),
        ("a", -20, [0, 1, 7], 2),
        ("a", -10, [0, 1, 2, 7], 2),
        ("a", 0, [0, 1, 2, 3, 7], 2),
        ("a", 10, [1, 2, 3], 1),
    ]


@every_way
def test_a_record_between_windows_is_in_none_and_late_only_before_the_watermark(
    mode: Mode,
) -> None:
    step = harness(mode, windows=SlidingWindows(3, 10))
    step.watermark(4)

    step.push_batch([("a", 1), ("a", 2), ("a", 3), ("a", 4)], [4, 5, 12, 13])
    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [("a", 10, 3)]
    assert late(step) == [("a", 1)]


@every_way
def test_years_without_records_are_skipped(mode: Mode) -> None:
    step = harness(mode, windows=SlidingWindows(7, 3))
    step.push(("a", 1), -(10**15))
    step.push(("a", 2), 10**15)

    step.watermark(MAX_TIMESTAMP)

    assert [value for _, _, value in rows(step)] == [1, 1, 2, 2]


@every_way
def test_the_first_windows_of_all_time_fire_too(mode: Mode) -> None:
    step = harness(mode, windows=SlidingWindows(10, 5))
    step.push(("a", 1), MIN_TIMESTAMP)

    step.watermark(MAX_TIMESTAMP)

    assert [value for _, _, value in rows(step)] == [1, 1]


class Counted:
    """A sum that counts its calls."""

    def __init__(self) -> None:
        self.adds = self.merges = 0
        self.accumulation = folding(int, self.add, self.merge)

    def add(self, total: int, event: Event) -> int:
        self.adds += 1
        return total + event[1]

    def merge(self, a: int, b: int) -> int:
        self.merges += 1
        return a + b


def test_a_record_costs_the_same_however_many_windows_it_is_in() -> None:
    counted = Counted()
    step = harness(windows=SlidingWindows(1000, 1), accumulation=counted.accumulation)

    step.push_batch([("a", 1)] * 100, [5] * 100)

    assert (counted.adds, counted.merges) == (100, 0)


def test_a_firing_takes_a_bounded_number_of_merges_for_a_key_on_average() -> None:
    counted = Counted()
    with using("memory"):  # on disk the panes are merged at each firing
        step = harness(windows=SlidingWindows(500, 1), accumulation=counted.accumulation)

    for time in range(3000):
        step.push(("a", 1), time)
        step.watermark(time)

    assert len(step.values) == 3000
    assert counted.merges <= 6 * 3000


def test_an_idle_key_keeps_no_state() -> None:
    step = harness(windows=SlidingWindows(50, 7), lateness=20)
    for time in range(300):
        step.push((f"key-{time // 30}", 1), time)
        step.watermark(time - 5)
    busy = step.size

    last_of_all = 294 + 49 + 20
    step.watermark(last_of_all - 1)
    nearly = step.size
    step.watermark(last_of_all)

    idle = step.size
    snapshot = step.snapshot()
    assert snapshot is not None
    assert 0 < busy.entries <= 6 * 16
    assert nearly.entries > 0
    assert (idle.entries, idle.event_timers, snapshot.keyed) == (0, 0, {})


@pytest.mark.parametrize("after", [1, 2, 5])
def test_windows_move_with_their_keys_to_any_parallelism(after: int) -> None:
    events = [(f"key-{number}", number) for number in range(40)]
    first = harness(lateness=100)
    first.push_batch(events, [1] * 40)
    first.watermark(9)
    first.push_batch(events, [2] * 40)
    snapshot = first.snapshot()
    assert snapshot is not None

    found: list[tuple[str, int, int, int]] = []
    for subtask in range(after):
        step = harness(lateness=100, parallelism=after, subtask=subtask)
        step.restore(snapshot)
        own = [event for event in events if owns(step, event)]
        step.push_batch(own, [3] * len(own))
        step.watermark(MAX_TIMESTAMP)
        found += firings(step)

    assert sorted(found) == sorted(
        row for key, n in events for row in ((key, -10, 3 * n, 3), (key, 0, 3 * n, 1))
    )


def owns(step: Harness, event: Event) -> bool:
    context = step.operator.context
    return key_group(event[0], context.key_group_count) in context.key_groups


def test_keys_of_a_subtask_that_was_ahead_keep_their_watermark() -> None:
    halves = [harness(parallelism=2, subtask=subtask) for subtask in range(2)]
    events = [next(e for e in map(event, range(99)) if owns(half, e)) for half in halves]
    for half, one, watermark in zip(halves, events, (29, 9), strict=True):
        half.push(one, 5)
        half.push(one, 15)
        half.watermark(watermark)
    snapshots = [half.snapshot() for half in halves]
    fast, slow = events

    step = harness()
    step.restore(*(snapshot for snapshot in snapshots if snapshot is not None))
    step.restart()
    step.push(fast, 15)
    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [(slow[0], 0, 2 * slow[1]), (slow[0], 10, slow[1])]
    assert late(step) == [fast]


def event(number: int) -> Event:
    return f"key-{number}", number


def plus(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize("merge", [None, plus], ids=["without merge", "with merge"])
def test_a_record_of_overlapping_windows_is_stored_once_only_if_panes_can_be_merged(
    merge: Callable[[int, int], int] | None,
) -> None:
    step = harness(
        windows=SlidingWindows(20, 10),
        accumulation=Accumulation(
            lambda event: event[1], lambda a, event: a + event[1], merge=merge
        ),
    )

    step.push(("a", 1), 15)

    assert step.size.entries == (2 if merge is None else 1)


def test_an_accumulator_that_cannot_be_stored_says_so_with_its_step_and_key() -> None:
    step = harness(accumulation=folding(object, lambda held, _: held, lambda a, _: a))
    step.push(("a", 1), 1)

    with pytest.raises(CheckpointError, match=r"'step'.*'a'.*of="):
        step.snapshot()


def test_the_error_for_records_without_timestamps_names_the_method_to_call() -> None:
    with pytest.raises(OperatorError, match=r"event_time"):
        harness().push(("a", 1))


@pytest.mark.parametrize("watermark", [0, 19])
def test_an_error_of_the_function_names_the_record(watermark: int) -> None:
    step = harness()
    step.watermark(watermark)

    with pytest.raises(OperatorError, match="'step'") as info:
        step.push_batch([("a", 1), ("a", "x")], [11, 12])  # type: ignore[list-item]

    assert (info.value.record, info.value.key, info.value.timestamp) == (("a", "x"), "a", 12)


def test_an_error_of_merge_names_the_key() -> None:
    def refuse(a: int, b: int) -> int:
        raise ValueError(f"no {a} and {b}")

    step = harness(accumulation=folding(int, lambda total, e: total + e[1], refuse))
    step.push_batch([("a", 1), ("a", 2)], [15, 5])

    with pytest.raises(OperatorError, match=r"'step'.*'a'.*no \d and \d"):
        step.watermark(19)


@dataclass(frozen=True)
class Case:
    """Windows, lateness and input: batches of keys with timestamps, or watermarks by their distance to the last one."""

    windows: SlidingWindows
    lateness: int
    steps: list[list[tuple[str, int]] | int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    slide = draw(st.integers(1, 12))
    return Case(
        SlidingWindows(draw(st.integers(1, 40)), slide, draw(st.integers(-slide + 1, slide - 1))),
        draw(st.sampled_from([0, 0, 3, 17, 60])),
        draw(
            st.lists(
                st.one_of(
                    st.lists(
                        st.tuples(st.sampled_from("abc"), st.integers(-25, 25)),
                        min_size=1,
                        max_size=4,
                    ),
                    st.sampled_from([1, 2, 5, 13, 40, 400]),
                ),
                max_size=30,
            )
        ),
    )


def run(case: Case, step: Harness) -> tuple[list[Any], list[Event]]:
    """Return the results in the order of emission, those of one window by key, and the late records."""
    now, number = 0, 0
    for what in case.steps:
        if isinstance(what, int):
            now += what
            step.watermark(now)
        else:
            events = [(key, number + index) for index, (key, _) in enumerate(what)]
            number += len(events)
            step.push_batch(events, [now + time for _, time in what])
    step.watermark(MAX_TIMESTAMP)
    found = [(w.window, w.firing, w.key, w.value) for w in step.values]
    return grouped(found), late(step)


def grouped(found: list[Any]) -> list[Any]:
    """Return the rows with each run of first results of one window in the order of keys."""
    done: list[Any] = []
    for row in found:
        at = len(done)
        while at and done[at - 1][:2] == row[:2] and done[at - 1][2] > row[2]:
            at -= 1
        done.insert(at, row)
    return done


@pytest.mark.parametrize("mode", Mode)
@given(case=cases(), accumulation=st.sampled_from([SUM, SORTED, LARGEST]))
@settings(max_examples=130, deadline=None)
def test_windows_that_share_panes_have_the_results_of_windows_with_their_own(
    mode: Mode, accumulation: Accumulation, case: Case
) -> None:
    reference = harness(
        accumulation=accumulation,
        windows=case.windows,
        lateness=case.lateness,
        shared=False,
    )
    step = harness(mode, accumulation=accumulation, windows=case.windows, lateness=case.lateness)

    assert run(case, step) == run(case, reference)
    assert step.size.entries == 0 or case.lateness > 0


@given(case=cases())
@settings(deadline=None)
def test_results_and_their_order_do_not_depend_on_how_aggregates_are_split(case: Case) -> None:
    def results() -> list[Windowed[str, Any]]:
        step = harness(accumulation=ORDERED, windows=case.windows, lateness=case.lateness)
        run(case, step)
        return step.values

    whole = results()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_dict, "_MOST", 1)
        assert results() == whole
