"""Sessions of a fixed gap: merging, firing, lateness, state; without and with a restore after every step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import CheckpointError, FlowDefinitionError, OperatorError
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP
from aflow.model.windows import Windowed
from aflow.operators.accumulation import Accumulation, folding, reducing
from aflow.operators.base import StateSize
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.sessions import SessionAggregateOperator
from aflow.testing import Mode
from tests.operators.backends import BackendHarness as OperatorHarness

Event = tuple[str, int]
Harness = OperatorHarness[Event, Windowed[str, Any]]
StoredRow = tuple[str, int, int, Any, int]
"""Key, start, end, value, firing."""


def append(so_far: list[int], event: Event) -> list[int]:
    so_far.append(event[1])
    return so_far


def extend(a: list[int], b: list[int]) -> list[int]:
    a.extend(b)
    return a


SUM = folding(int, lambda total, event: total + event[1], lambda a, b: a + b)
#: Changes its accumulators in place and emits them unchanged.
LISTED = folding(list[int], append, extend)
LARGEST = reducing(max)


def harness(
    mode: Mode = Mode.STRAIGHT,
    *,
    gap: int = 10,
    accumulation: Accumulation = SUM,
    lateness: int = 0,
    parallelism: int = 1,
    subtask: int = 0,
) -> Harness:
    return OperatorHarness(
        lambda: SessionAggregateOperator(gap, accumulation, lateness=lateness),
        key=lambda event: event[0],
        mode=mode,
        parallelism=parallelism,
        subtask=subtask,
    )


def rows(step: Harness) -> list[StoredRow]:
    return [(w.key, w.window.start, w.window.end, w.value, w.firing) for w in step.values]


def late(step: Harness) -> list[Event]:
    return [record.value for record in step.side(Tag[Event](LATE))]


every_way = pytest.mark.parametrize("mode", Mode)


@every_way
def test_a_session_lasts_from_its_first_record_until_the_gap_after_its_last(mode: Mode) -> None:
    step = harness(mode)
    step.push(("a", 1), 3)
    step.push(("a", 2), 12)
    step.push(("b", 7), 5)

    step.watermark(20)
    before = rows(step)
    step.watermark(21)

    assert before == [("b", 5, 15, 7, 1)]
    assert rows(step) == [("b", 5, 15, 7, 1), ("a", 3, 22, 3, 1)]


@every_way
def test_results_have_the_last_timestamp_of_the_session_and_precede_the_watermark(
    mode: Mode,
) -> None:
    step = harness(mode)
    step.push(("a", 1), 3)

    step.watermark(15)

    first, second = step.output
    assert getattr(first, "timestamp", None) == 12
    assert getattr(second, "timestamp", None) == 15


@every_way
@pytest.mark.parametrize(("time", "together"), [(20, True), (21, False)])
def test_sessions_that_touch_are_one(mode: Mode, time: int, together: bool) -> None:
    step = harness(mode)
    step.push(("a", 1), 10)

    step.push(("a", 2), time)
    step.watermark(MAX_TIMESTAMP)

    apart = [("a", 10, 20, 1, 1), ("a", 21, 31, 2, 1)]
    assert rows(step) == ([("a", 10, 30, 3, 1)] if together else apart)


@every_way
def test_a_record_may_join_two_sessions(mode: Mode) -> None:
    step = harness(mode, accumulation=LISTED)
    step.push(("a", 1), 30)
    step.push(("a", 2), 10)
    step.push(("a", 3), 50)

    step.push(("a", 4), 20)
    step.push(("a", 5), 40)
    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [("a", 10, 60, [2, 1, 4, 3, 5], 1)]


@every_way
def test_a_record_before_a_session_makes_it_begin_earlier(mode: Mode) -> None:
    step = harness(mode)
    step.push(("a", 1), 30)
    step.push(("a", 2), 20)
    step.push(("a", 4), 31)

    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [("a", 20, 41, 7, 1)]


@every_way
def test_a_record_whose_session_would_be_removed_at_once_is_late(mode: Mode) -> None:
    step = harness(mode)
    step.push(("b", 5), 25)
    step.watermark(30)

    step.push_batch([("a", 1), ("a", 2), ("b", 3)], [21, 22, 16])
    step.watermark(MAX_TIMESTAMP)

    assert late(step) == [("a", 1)]
    assert rows(step) == [("a", 22, 32, 2, 1), ("b", 16, 35, 8, 1)]


@every_way
def test_within_the_lateness_a_record_fires_its_session_again_at_once(mode: Mode) -> None:
    step = harness(mode, lateness=5, accumulation=LISTED)
    step.push(("a", 1), 10)
    step.watermark(20)

    step.push(("a", 2), 9)
    step.push(("a", 3), 10)
    step.push(("b", 4), 7)
    step.watermark(24)
    step.push(("a", 5), 10)

    assert rows(step) == [
        ("a", 10, 20, [1], 1),
        ("a", 9, 20, [1, 2], 2),
        ("a", 9, 20, [1, 2, 3], 3),
        ("b", 7, 17, [4], 1),
    ]
    assert late(step) == [("a", 5)]


@every_way
def test_a_fired_session_that_grows_beyond_the_watermark_fires_at_its_new_end(mode: Mode) -> None:
    step = harness(mode, lateness=50)
    step.push(("a", 1), 10)
    step.watermark(22)

    step.push(("a", 2), 19)
    at_once = rows(step)
    step.watermark(27)
    before = rows(step)
    step.watermark(28)

    assert at_once == before == [("a", 10, 20, 1, 1)]
    assert rows(step) == [("a", 10, 20, 1, 1), ("a", 10, 29, 3, 2)]


@every_way
def test_a_fired_and_an_open_session_merged_fire_once_and_continue_the_count(mode: Mode) -> None:
    step = harness(mode, lateness=50)
    step.push(("a", 1), 10)
    step.watermark(25)
    step.push(("a", 2), 9)
    step.push(("a", 4), 30)

    step.push(("a", 8), 20)
    joined = step.size
    step.watermark(MAX_TIMESTAMP)

    assert joined == StateSize(entries=1, event_timers=1)
    assert rows(step) == [
        ("a", 10, 20, 1, 1),
        ("a", 9, 20, 3, 2),
        ("a", 9, 40, 15, 3),
    ]


@every_way
def test_of_two_sessions_that_have_fired_the_greater_count_is_continued(mode: Mode) -> None:
    step = harness(mode, lateness=100)
    step.push_batch([("a", 1), ("a", 2)], [10, 30])
    step.watermark(50)
    step.push(("a", 4), 30)

    step.push(("a", 8), 20)

    assert rows(step) == [
        ("a", 10, 20, 1, 1),
        ("a", 30, 40, 2, 1),
        ("a", 30, 40, 6, 2),
        ("a", 10, 40, 15, 3),
    ]


@every_way
def test_a_session_whose_clean_up_time_lies_beyond_the_end_of_time_is_kept_until_then(
    mode: Mode,
) -> None:
    step = harness(mode, lateness=MAX_TIMESTAMP)
    step.push(("a", 1), 1)
    step.watermark(MAX_TIMESTAMP - 1)
    step.push(("a", 2), 2)
    kept = step.size

    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [("a", 1, 11, 1, 1), ("a", 1, 12, 3, 2)]
    assert kept == StateSize(entries=1, event_timers=1)
    assert step.size == StateSize()


@every_way
def test_long_sessions_and_times_before_1970_are_supported(mode: Mode) -> None:
    step = harness(mode)
    step.push(("a", 1), -(10**15))
    step.push(("a", 2), 10**15)
    step.push(("a", 4), -(10**15) + 10)

    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [
        ("a", -(10**15), 20 - 10**15, 5, 1),
        ("a", 10**15, 10**15 + 10, 2, 1),
    ]


def test_state_is_cleared_with_the_sessions() -> None:
    step = harness(lateness=5)
    for number in range(100):
        step.push((f"key-{number}", 1), 10 * number)
        step.push((f"key-{number}", 1), 10 * number + 3)
        step.watermark(10 * number)
    busy = step.size

    step.watermark(990 + 3 + 10 - 1 + 5)

    gone = step.snapshot()
    assert gone is not None
    assert (busy.entries, busy.event_timers) == (2, 2)
    assert (step.size, gone.keyed) == (StateSize(), {})


@pytest.mark.parametrize("after", [1, 2, 5])
def test_sessions_move_with_their_keys_to_any_parallelism(after: int) -> None:
    events = [(f"key-{number}", number) for number in range(40)]
    first = harness(lateness=100)
    first.push_batch(events, [1] * 40)
    first.watermark(10)
    first.push_batch(events, [30] * 40)
    snapshot = first.snapshot()
    assert snapshot is not None

    found: list[StoredRow] = []
    for subtask in range(after):
        step = harness(lateness=100, parallelism=after, subtask=subtask)
        step.restore(snapshot)
        step.push_batch(own := [event for event in events if owns(step, event)], [0] * len(own))
        step.watermark(MAX_TIMESTAMP)
        found += rows(step)

    assert sorted(found) == sorted(
        row for key, n in events for row in ((key, 0, 11, 2 * n, 2), (key, 30, 40, n, 1))
    )


def test_keys_of_a_subtask_that_was_ahead_keep_their_watermark() -> None:
    halves = [harness(parallelism=2, subtask=subtask) for subtask in range(2)]
    named = [(f"key-{number}", number) for number in range(1, 99)]
    fast, slow = (next(event for event in named if owns(half, event)) for half in halves)
    for half, event, watermark in zip(halves, (fast, slow), (28, 9), strict=True):
        half.push(event, 5)
        half.watermark(watermark)
    snapshots = [half.snapshot() for half in halves]

    step = harness()
    step.restore(*(snapshot for snapshot in snapshots if snapshot is not None))
    step.restart()
    step.push(fast, 19)
    step.push(fast, 20)
    step.watermark(MAX_TIMESTAMP)

    assert rows(step) == [(slow[0], 5, 15, slow[1], 1), (fast[0], 20, 30, fast[1], 1)]
    assert late(step) == [fast]


def owns(step: Harness, event: Event) -> bool:
    context = step.operator.context
    return key_group(event[0], context.key_group_count) in context.key_groups


def test_a_fold_without_merge_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"merge="):
        SessionAggregateOperator(10, Accumulation(lambda v: v, lambda a, _: a))


def test_a_gap_that_is_not_positive_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="gap"):
        SessionAggregateOperator(0, SUM)


def test_an_accumulator_that_cannot_be_stored_says_so_with_its_step_and_key() -> None:
    step = harness(accumulation=folding(object, lambda held, _: held, lambda a, _: a))
    step.push(("a", 1), 1)

    with pytest.raises(CheckpointError, match=r"'step'.*'a'.*of="):
        step.snapshot()


def test_the_error_for_records_without_timestamps_names_the_method_to_call() -> None:
    with pytest.raises(OperatorError, match=r"event_time"):
        harness().push(("a", 1))


def test_a_key_that_cannot_be_one_is_refused_by_name() -> None:
    step: OperatorHarness[Any, Any] = OperatorHarness(
        lambda: SessionAggregateOperator(10, SUM), key=lambda _: float("nan")
    )

    with pytest.raises(OperatorError, match="NaN"):
        step.push(("a", 1), 1)


@pytest.mark.parametrize("times", [[1, 2], [20, 1]])
def test_an_error_of_the_function_names_the_record(times: list[int]) -> None:
    step = harness()
    step.push(("a", 1), 1)

    with pytest.raises(OperatorError, match="'step'") as info:
        step.push_batch([("a", 1), ("a", "x")], times)  # type: ignore[list-item]

    assert (info.value.record, info.value.key, info.value.timestamp) == (("a", "x"), "a", times[1])


def test_an_error_of_result_for_a_late_record_is_reported_once() -> None:
    def fail(total: int) -> int:
        raise ValueError(f"no {total}")

    step = harness(
        accumulation=Accumulation(
            SUM.first, SUM.add, result=fail, merge=SUM.merge, fresh=SUM.fresh
        ),
        lateness=100,
    )
    step.watermark(50)

    with pytest.raises(OperatorError, match=r"'step'.*'a'.*no 1") as info:
        step.push(("a", 1), 1)

    assert isinstance(info.value.__cause__, ValueError)


Steps = list[list[tuple[str, int]] | int]
"""Inputs: batches of keys with timestamps after the watermark, or advances of the watermark."""

steps = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(-40, 40)), min_size=1, max_size=4),
        st.sampled_from([1, 2, 5, 13, 40, 400]),
    ),
    max_size=30,
)


def run(what: Steps, step: Harness) -> tuple[list[StoredRow], list[Event]]:
    """Return the results in the order of emission, those of one time by key, and the late records."""
    now, number = 0, 0
    found: list[StoredRow] = []
    for one in what:
        if isinstance(one, int):
            now += one
            step.watermark(now)
        else:
            events = [(key, number + index) for index, (key, _) in enumerate(one)]
            number += len(events)
            step.push_batch(events, [now + time for _, time in one])
        found += in_order(rows(step)[len(found) :], sort=isinstance(one, int))
    step.watermark(MAX_TIMESTAMP)
    found += in_order(rows(step)[len(found) :], sort=True)
    return found, late(step)


def in_order(found: list[StoredRow], *, sort: bool) -> list[StoredRow]:
    """Sort rows of one time by key: timers of one time fire in any order."""
    ends = [end for _, _, end, _, _ in found]
    assert not sort or ends == sorted(ends)
    return sorted(found, key=lambda row: (row[2], row[0])) if sort else found


def merged_by_hand(what: Steps, gap: int) -> list[StoredRow]:
    """Return the sessions of all records, in any order of arrival."""
    now, number = 0, 0
    records: dict[str, list[tuple[int, int]]] = {}
    for one in what:
        if isinstance(one, int):
            now += one
            continue
        for key, time in one:
            records.setdefault(key, []).append((now + time, number))
            number += 1
    found: list[StoredRow] = []
    for key, of_key in records.items():
        session: list[tuple[int, int]] = []
        for record in [*sorted(of_key), None]:
            if session and (record is None or record[0] > session[-1][0] + gap):
                total = sum(value for _, value in session)
                found.append((key, session[0][0], session[-1][0] + gap, total, 1))
                session = []
            if record is not None:
                session.append(record)
    return sorted(found)


@pytest.mark.parametrize("mode", Mode)
@given(what=steps, gap=st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_any_order_without_late_records_has_the_sessions_of_all_records(
    mode: Mode, what: Steps, gap: int
) -> None:
    step = harness(mode, gap=gap)
    now, number = 0, 0
    for one in what:
        if isinstance(one, int):
            now += one
            # Records are not before now - 40. With a watermark of now - 41 a session that ends there would have fired,
            # and a record of that time, though not late, would create another one.
            step.watermark(now - 42)
        else:
            events = [(key, number + index) for index, (key, _) in enumerate(one)]
            number += len(events)
            step.push_batch(events, [now + time for _, time in one])
    step.watermark(MAX_TIMESTAMP)

    assert sorted(rows(step)) == merged_by_hand(what, gap)
    assert late(step) == []


@given(
    accumulation=st.sampled_from([SUM, LISTED, LARGEST]),
    what=steps,
    gap=st.integers(1, 30),
    lateness=st.sampled_from([0, 4, 25, 100]),
)
@settings(max_examples=150, deadline=None)
def test_a_restore_after_every_step_changes_nothing(
    accumulation: Accumulation, what: Steps, gap: int, lateness: int
) -> None:
    straight, restored, replayed = (
        harness(mode, gap=gap, lateness=lateness, accumulation=accumulation) for mode in Mode
    )

    assert run(what, straight) == run(what, restored) == run(what, replayed)
    assert straight.size == StateSize()
