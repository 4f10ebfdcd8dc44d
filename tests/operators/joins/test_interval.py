"""Interval joins: pairs, bounds, lateness, records without a partner, clean-up, state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import CheckpointError, FlowDefinitionError, OperatorError, RestoreError
from aflow.model.elements import Watermark
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.joins.interval import IntervalJoinOperator
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT, Join
from aflow.state.readable_state import KeySelection
from aflow.testing import At, Mode, TwoInputHarness
from tests.operators.joins.histories import (
    Harness,
    Record,
    Step,
    histories,
    late_downstream,
    lefts,
    play,
    records,
    rights,
)

Pair = tuple[Record | None, Record | None]

A = "a"
B = "b"


def pair(left: Record | None, right: Record | None) -> Pair:
    return left, right


def harness(
    lower: int = -2,
    upper: int = 3,
    *,
    mode: Mode = Mode.STRAIGHT,
    parallelism: int = 1,
    subtask: int = 0,
    typed: bool = True,
    into: Any = pair,
    **options: Any,
) -> Harness:
    of = Record if typed else None
    return TwoInputHarness(
        lambda: IntervalJoinOperator(lower, upper, into, left_type=of, right_type=of, **options),
        left_key=lambda record: record.key,
        right_key=lambda record: record.key,
        mode=mode,
        parallelism=parallelism,
        subtask=subtask,
    )


def left(step: Harness, at: int, number: int = 0, key: str = A) -> Record:
    record = Record(key, at, number)
    step.left(record, at)
    return record


def right(step: Harness, at: int, number: int = 0, key: str = A) -> Record:
    record = Record(key, at, number)
    step.right(record, at)
    return record


every_way = pytest.mark.parametrize("mode", Mode)


@every_way
def test_a_pair_is_emitted_when_its_second_record_arrives_from_either_input(mode: Mode) -> None:
    step = harness(mode=mode)

    first = left(step, 10), right(step, 12)
    second = right(step, 30), left(step, 31)

    assert step.values == [first, (second[1], second[0])]


@every_way
def test_a_pair_has_the_larger_timestamp_of_its_records(mode: Mode) -> None:
    step = harness(mode=mode)

    left(step, 10)
    right(step, 13)
    right(step, 8)

    assert [one.timestamp for one in records(step)] == [13, 10]


@every_way
def test_records_of_different_keys_are_not_joined(mode: Mode) -> None:
    step = harness(mode=mode)

    left(step, 10, key=A)
    right(step, 10, key=B)

    assert step.values == []


@every_way
@pytest.mark.parametrize(
    ("options", "met"),
    [
        ({}, [8, 9, 12, 13]),
        ({"lower_inclusive": False}, [9, 12, 13]),
        ({"upper_inclusive": False}, [8, 9, 12]),
    ],
)
def test_bounds_are_inclusive_unless_set_exclusive(
    mode: Mode, options: dict[str, bool], met: list[int]
) -> None:
    step = harness(-2, 3, mode=mode, **options)
    left(step, 10)

    for at in (7, 8, 9, 12, 13, 14):
        right(step, at)

    assert [found.at for _, found in step.values] == met


@every_way
def test_partners_are_in_time_order_and_those_of_one_timestamp_in_the_order_of_arrival(
    mode: Mode,
) -> None:
    step = harness(mode=mode)
    for number, at in enumerate((12, 9, 12, 10)):
        right(step, at, number)

    left(step, 10)

    assert [found.number for _, found in step.values] == [1, 3, 0, 2]


def test_bounds_without_a_timestamp_between_them_are_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"between 3 ms \(inclusive\) and 3 ms \(excl"):
        IntervalJoinOperator(3, 3, pair, upper_inclusive=False)


@every_way
def test_a_record_before_the_watermark_is_emitted_to_the_late_output_of_its_input(
    mode: Mode,
) -> None:
    step = harness(mode=mode)
    right(step, 10, 1)
    left(step, 10, 2)
    step.watermark(9)
    step.take()

    late_left, late_right = left(step, 8, 3), right(step, 8, 4)

    assert step.take() == []
    assert step.side(Tag[Record](LATE_LEFT)) == [At(late_left, 8)]
    assert step.side(Tag[Record](LATE_RIGHT)) == [At(late_right, 8)]


@every_way
@pytest.mark.parametrize("scale", [1, 100])  # a hundredfold, memory is released later
@pytest.mark.parametrize("kind", Join)
def test_a_record_at_the_watermark_is_late_and_a_millisecond_later_it_finds_all_its_partners(
    mode: Mode, scale: int, kind: Join
) -> None:
    step = harness(-2 * scale, 3 * scale, mode=mode, kind=kind)
    partner = left(step, 7 * scale + 1, 1)
    step.watermark(10 * scale)

    late = right(step, 10 * scale)
    on_time = right(step, 10 * scale + 1)

    assert step.values == [(partner, on_time)]
    assert step.side(Tag[Record](LATE_RIGHT)) == [At(late, 10 * scale)]


@every_way
def test_the_watermark_is_the_smaller_one_of_the_inputs(mode: Mode) -> None:
    step = harness(mode=mode)
    step.left_watermark(100)

    found = left(step, 50), right(step, 50)

    assert step.values == [found]


def test_a_record_without_a_timestamp_is_an_error_that_names_the_step_and_the_input() -> None:
    step = harness()

    with pytest.raises(OperatorError, match=r"'step'.* right input .*event_time"):
        step.right(Record(A, 1, 1))


# ------------------------------------------------------------------------------------ outer joins


@every_way
def test_an_inner_join_emits_watermarks_without_delay(mode: Mode) -> None:
    step = harness(mode=mode)

    step.watermark(10)

    assert step.output == [Watermark(10)]


@every_way
@pytest.mark.parametrize(
    ("kind", "lower", "upper", "delay"),
    [
        (Join.LEFT, -2, 5, 5),
        (Join.RIGHT, -2, 5, 2),
        (Join.FULL, -2, 5, 5),
        (Join.LEFT, -5, -2, 0),
        (Join.RIGHT, 2, 5, 0),
    ],
)
def test_an_outer_join_delays_its_watermark_by_the_time_for_which_a_partner_may_arrive(
    mode: Mode, kind: Join, lower: int, upper: int, delay: int
) -> None:
    step = harness(lower, upper, mode=mode, kind=kind)

    step.watermark(10)
    step.watermark(11)
    step.watermark(MAX_TIMESTAMP)

    assert step.output == [Watermark(at) for at in (10 - delay, 11 - delay, MAX_TIMESTAMP)]


@every_way
def test_a_record_is_emitted_with_none_at_the_first_watermark_that_excludes_a_partner(
    mode: Mode,
) -> None:
    step = harness(-2, 3, mode=mode, kind=Join.FULL)
    one, other = left(step, 10), right(step, 20)

    step.watermark(12)
    before = step.values
    step.watermark(13)
    after_left = step.values
    step.watermark(22)

    assert (before, after_left) == ([], [(one, None)])
    assert records(step) == [At((one, None), 10), At((None, other), 20)]


@every_way
def test_a_record_with_a_partner_is_not_emitted_with_none(mode: Mode) -> None:
    step = harness(-2, 3, mode=mode, kind=Join.FULL)

    found = left(step, 10), right(step, 10)
    step.watermark(MAX_TIMESTAMP)

    assert step.values == [found]


@every_way
def test_each_record_with_a_partner_is_known_when_older_ones_have_expired(mode: Mode) -> None:
    step = harness(0, 3, mode=mode, kind=Join.LEFT)
    alone, paired, last = left(step, 10), left(step, 20), left(step, 30)
    partner = right(step, 21)

    step.watermark(13)
    step.watermark(23)
    step.watermark(33)

    assert step.values == [(paired, partner), (alone, None), (last, None)]


@every_way
@pytest.mark.parametrize(("kind", "sides"), [(Join.LEFT, ["left"]), (Join.RIGHT, ["right"])])
def test_only_the_kept_side_is_emitted_with_none(mode: Mode, kind: Join, sides: list[str]) -> None:
    step = harness(mode=mode, kind=kind)
    left(step, 10)
    right(step, 20)

    step.watermark(MAX_TIMESTAMP)

    assert ["left" if one else "right" for one, _ in step.values] == sides


@every_way
def test_a_record_whose_partners_must_precede_it_is_emitted_with_none_at_once(mode: Mode) -> None:
    step = harness(-9, -5, mode=mode, kind=Join.LEFT)
    step.watermark(10)

    found = left(step, 12)

    assert records(step) == [At((found, None), 12)]
    assert step.size.entries == 0


@every_way
def test_records_without_a_partner_are_emitted_in_time_order(mode: Mode) -> None:
    step = harness(-2, 3, mode=mode, kind=Join.FULL)
    left(step, 30, key=A)
    right(step, 20, key=B)
    left(step, 10, key=B)

    step.watermark(MAX_TIMESTAMP)

    assert [one.timestamp for one in records(step)] == [10, 20, 30]


# ------------------------------------------------------------------------------------- clean-up


@every_way
@pytest.mark.parametrize("kind", Join)
def test_no_state_is_kept_after_the_end_of_time(mode: Mode, kind: Join) -> None:
    step = harness(mode=mode, kind=kind)
    for at in range(50):
        left(step, at, key=f"left {at}")
        right(step, at, key=f"right {at}")
    assert step.size.entries == 100

    step.watermark(MAX_TIMESTAMP)

    assert (step.size.entries, step.size.event_timers) == (0, 0)


@pytest.mark.parametrize("kind", Join)
def test_keys_without_further_records_keep_no_state(kind: Join) -> None:
    step = harness(-100, 100, kind=kind)
    most = 0
    for at in range(0, 20_000, 10):
        left(step, at, key=f"left {at}")
        right(step, at, key=f"right {at}")
        step.watermark(at)
        most = max(most, step.size.entries)

    # Records may expire after 100 ms: 10 of each side; they have at most 25 ms later, 3 more.
    assert most <= 2 * (10 + 3 + 1)


@pytest.mark.parametrize("kind", Join)
def test_the_state_of_a_key_is_bounded_however_many_records_arrive(kind: Join) -> None:
    step = harness(-100, 100, kind=kind)
    most = 0
    for at in range(0, 20_000, 10):
        left(step, at)
        step.watermark(at)
        most = max(most, step.size.entries)

    assert most <= 12


def test_a_busy_key_that_becomes_idle_keeps_no_state() -> None:
    step = harness(-100, 100)
    for at in range(0, 1000, 10):
        left(step, at)
        step.watermark(at)

    step.watermark(1000 + 100 + 5 * 200)

    assert step.size.entries == 0


def test_a_snapshot_has_only_records_that_may_find_a_partner() -> None:
    step = harness(-200, 300)
    left(step, 700, key=A)
    left(step, 800, key=B)
    step.watermark(1000)

    before = step.size.entries
    step.restart()

    assert (before, step.size.entries) == (2, 1)


# ---------------------------------------------------------------------------- failures and state


@pytest.mark.parametrize("batch_is_on_time", [True, False])
def test_an_error_of_the_function_names_the_key_and_both_records(batch_is_on_time: bool) -> None:
    def fail(one: Record, other: Record) -> None:
        raise ValueError("no")

    step = harness(into=fail)
    step.watermark(9)
    one, other = Record(A, 11, 1), Record(A, 10, 2)
    step.left(one, 11)
    batch = [other] if batch_is_on_time else [Record(A, 9, 3), other]

    with pytest.raises(OperatorError, match=r"left record .*11.* right record .*10.*'a'.*no") as e:
        step.right_batch(batch, [each.at for each in batch])

    assert (e.value.key, e.value.record, e.value.timestamp) == (A, (one, other), 10)
    assert isinstance(e.value.__cause__, ValueError)


def test_an_error_of_the_function_for_a_record_without_a_partner_names_it() -> None:
    def fail(one: Record, other: Record | None) -> None:
        raise ValueError("no")

    step = harness(into=fail, kind=Join.LEFT)
    one = left(step, 10)

    with pytest.raises(OperatorError) as e:
        step.watermark(20)

    assert e.value.record == (one, None)


@pytest.mark.parametrize("key", [[1], float("nan")])
@pytest.mark.parametrize("kind", [Join.INNER, Join.LEFT])
def test_a_key_that_cannot_be_one_is_refused(key: Any, kind: Join) -> None:
    step = TwoInputHarness[Any, Any, Any](
        lambda: IntervalJoinOperator(0, 1, pair, kind=kind),
        left_key=lambda _: key,
        right_key=lambda _: key,
    )

    with pytest.raises(OperatorError, match="cannot be a key"):
        step.left("x", 1)


def test_a_record_without_an_encoding_fails_the_checkpoint_and_is_named() -> None:
    step = harness(typed=False)
    left(step, 1)

    with pytest.raises(CheckpointError, match="left records of key 'a'"):
        step.snapshot()


def test_state_is_restored_by_the_owner_of_the_key_at_another_parallelism() -> None:
    before = harness(-5, 5)
    keys = [f"key-{number}" for number in range(20)]
    for key in keys:
        left(before, 10, key=key)
    before.watermark(9)
    snapshot = before.snapshot()
    assert snapshot is not None

    joined: list[str] = []
    for subtask in range(3):
        step = harness(-5, 5, parallelism=3, subtask=subtask)
        step.restore(snapshot)
        for key in keys:
            if key_group(key, 128) * 3 // 128 == subtask:
                right(step, 12, key=key)
        joined += [found.key for _, found in step.values]

    assert sorted(joined) == sorted(keys)


@pytest.mark.parametrize(("kind", "delay"), [(Join.INNER, 0), (Join.FULL, 3)])
def test_watermarks_that_the_inputs_repeat_after_a_restore_are_not_emitted_again(
    kind: Join, delay: int
) -> None:
    before = harness(kind=kind)
    before.watermark(100)
    snapshot = before.snapshot()
    assert snapshot is not None

    after = harness(kind=kind)
    after.restore(snapshot)
    after.watermark(50)
    after.watermark(100)
    repeated = after.take()
    after.watermark(101)

    assert repeated == []
    assert after.take() == [Watermark(101 - delay)]


def test_an_inner_join_cannot_become_an_outer_one() -> None:
    before = harness()
    left(before, 10)
    snapshot = before.snapshot()
    assert snapshot is not None

    with pytest.raises(RestoreError, match=r"the snapshot does not say which have had one"):
        harness(kind=Join.LEFT).restore(snapshot)


def test_an_outer_join_can_become_an_inner_one() -> None:
    before = harness(kind=Join.LEFT)
    one = left(before, 10)
    snapshot = before.snapshot()
    assert snapshot is not None

    after = harness()
    after.restore(snapshot)
    other = right(after, 10)

    assert after.values == [(one, other)]


# ------------------------------------------------------------------------------------ properties


def expected(history: list[Step], lower: int, upper: int, kind: Join) -> list[tuple[int, Pair]]:
    """Return the join of all left records with all right ones."""
    pairs = [
        (one, other)
        for one in lefts(history)
        for other in rights(history)
        if one.key == other.key and lower <= other.at - one.at <= upper
    ]
    met = {record for both in pairs for record in both}
    found: list[tuple[int, Pair]] = [(max(one.at, other.at), (one, other)) for one, other in pairs]
    if kind.keeps_left:
        found += [(one.at, (one, None)) for one in lefts(history) if one not in met]
    if kind.keeps_right:
        found += [(one.at, (None, one)) for one in rights(history) if one not in met]
    return found


bounds = st.tuples(st.integers(-15, 15), st.integers(0, 15)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1])
)


@given(history=histories(), between=bounds, kind=st.sampled_from(Join), mode=st.sampled_from(Mode))
def test_any_order_without_late_records_has_the_join_of_all_records(
    history: list[Step], between: tuple[int, int], kind: Join, mode: Mode
) -> None:
    step = harness(*between, kind=kind, mode=mode)

    play(step, history)

    found = [(one.timestamp, one.value) for one in records(step)]
    assert sorted(found, key=repr) == sorted(expected(history, *between, kind), key=repr)
    assert late_downstream(step) == []
    assert step.size.entries == 0


def test_a_key_that_has_records_of_another_side_during_a_scan_is_found() -> None:
    step = harness()
    step.left(Record(B, 10, 1), 10)
    step.right(Record(A, 10, 2), 10)
    view = step.operator.readable_state()
    assert view is not None
    scan = view.scan(view.names[0], KeySelection(10))
    found = set(next(scan))
    step.left(Record(A, 50, 3), 50)
    step.left_watermark(45)
    step.right_watermark(45)
    for some in scan:
        found.update(some)

    assert A in found
