"""The first record of a key passes, others do not for a while: straight and with a restore after each step."""

from __future__ import annotations

from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import OperatorError
from aflow.model.tags import Tag
from aflow.operators.base import StateSize
from aflow.operators.deduplicate import DUPLICATES, DeduplicateOperator
from aflow.testing import Mode, OperatorHarness

Harness = OperatorHarness[str, str]
DROPPED = Tag[str](DUPLICATES)

all_modes = pytest.mark.parametrize("mode", Mode)


def harness(mode: Mode = Mode.STRAIGHT, *, within: int | None = None) -> Harness:
    """The first letter of a value is its key."""
    return OperatorHarness(lambda: DeduplicateOperator(within), key=lambda v: v[0], mode=mode)


@all_modes
def test_each_key_passes_once_without_a_bound(mode: Mode) -> None:
    step = harness(mode)

    step.push_batch(["a1", "b1", "a2"])
    step.push("b2")
    step.push("c1")

    assert step.values == ["a1", "b1", "c1"]
    assert [record.value for record in step.side(DROPPED)] == ["a2", "b2"]
    assert step.size == StateSize(3)


@all_modes
def test_a_key_passes_again_once_it_is_far_enough_away(mode: Mode) -> None:
    step = harness(mode, within=10)

    step.push("a1", 100)
    step.push("a2", 109)
    step.push("a3", 110)
    step.push("a4", 119)
    step.push("a5", 125)

    assert step.values == ["a1", "a3", "a5"]


@all_modes
def test_a_record_out_of_order_is_measured_in_both_directions(mode: Mode) -> None:
    step = harness(mode, within=10)

    step.push_batch(["a1", "a2", "a3", "a4"], [100, 91, 90, 105])

    assert step.values == ["a1", "a3"]


@all_modes
@pytest.mark.parametrize(
    ("times", "passing"),
    [([100, 0, 1], [100, 0]), ([0, 100, 1], [0, 100]), ([100, 50, 0, 45, 10], [100, 50, 0, 10])],
    ids=["older than the newest", "before one that is newer by now", "between older ones"],
)
def test_a_record_out_of_order_is_compared_with_all_that_have_passed(
    mode: Mode, times: list[int], passing: list[int]
) -> None:
    step = harness(mode, within=10)

    for at in times:
        step.push(f"a{at}", at)

    assert step.values == [f"a{at}" for at in passing]


@all_modes
def test_older_ones_are_forgotten_one_by_one(mode: Mode) -> None:
    step = harness(mode, within=10)
    for at in (100, 50, 0):
        step.push("a", at)

    sizes = [step.size.entries]
    for at in (9, 59, 109):
        step.watermark(at)
        sizes.append(step.size.entries)

    assert sizes == [3, 2, 1, 0]
    assert step.size == StateSize(0)


@all_modes
def test_a_key_that_no_record_in_time_can_repeat_is_forgotten(mode: Mode) -> None:
    step = harness(mode, within=100)
    for number in range(50):
        step.push(f"{chr(ord('a') + number % 26)}{number}", number)

    step.watermark(90)
    before = step.size
    step.watermark(160)

    assert before.entries == 26
    assert step.size == StateSize(0)


def test_records_without_timestamps_cannot_be_compared() -> None:
    step = harness(within=10)

    with pytest.raises(OperatorError, match="event_time"):
        step.push("a1")


@given(
    records=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=60),
    within=st.integers(1, 20),
)
def test_passing_records_of_a_key_in_order_are_apart(
    records: list[tuple[str, int]], within: int
) -> None:
    step = harness(within=within)
    ordered = sorted(records, key=lambda record: record[1])

    for key, at in ordered:
        step.push(key, at)
        step.watermark(at - 1)

    expected: list[str] = []
    last: dict[str, int] = {}
    for key, at in ordered:
        if key not in last or at - last[key] >= within:
            last[key] = at
            expected.append(key)
    assert step.values == expected


@given(times=st.lists(st.integers(0, 80), max_size=40), within=st.integers(1, 20))
def test_on_time_in_any_order_no_two_that_pass_are_closer_and_no_other_is_dropped(
    times: list[int], within: int
) -> None:
    step = harness(within=within)

    for at in times:
        step.push("a", at)

    passed: list[int] = []
    for at in times:
        if all(abs(at - other) >= within for other in passed):
            passed.append(at)
    assert [getattr(record, "timestamp", None) for record in step.output] == passed


@pytest.mark.parametrize("within", [None, 10], ids=["for ever", "for a while"])
@pytest.mark.parametrize("bad", [["list"], float("nan")], ids=["unhashable", "not equal to itself"])
def test_an_unsupported_key_is_named_with_its_record(within: int | None, bad: object) -> None:
    step: OperatorHarness[tuple[str, object], object] = OperatorHarness(
        lambda: DeduplicateOperator(within), key=itemgetter(1)
    )

    with pytest.raises(OperatorError, match="cannot be a key") as caught:
        step.push_batch([("fine", 1), ("wrong", bad)], [1, 2])

    assert caught.value.record == ("wrong", bad)
