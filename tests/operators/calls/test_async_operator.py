"""Asynchronous steps: in which order results leave, how many calls are under way, and what a restart does."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import Drop
from aflow.machines.calls.queues import HELD
from aflow.machines.calls.settings import CallOrder, CallResults
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE, Watermark
from aflow.testing import At, Mode
from tests.operators.calls.harness import CallHarness
from tests.stable_ids import stable

NAIVE = datetime(2025, 1, 1)  # noqa: DTZ001
FEWER_CALLS: list[dict[str, Any]] = [{}, {"cache": Cache(10)}, {"groups": GroupSize(2, 0)}]
UNORDERED, BY_KEY = CallOrder.UNORDERED, CallOrder.BY_KEY


def first_letter(value: str) -> str:
    return value[0]


def quotient(value: int, result: int) -> float:
    return value / result


@pytest.fixture(params=[CallOrder.ORDERED, CallOrder.UNORDERED])
def step(request: pytest.FixtureRequest) -> CallHarness:
    return CallHarness(order=request.param)


# ------------------------------------------------------------------------------------------------ order


def test_ordered_results_leave_as_the_records_came_in() -> None:
    step = CallHarness()
    step.push("a", "b", "c")

    step.returns("c", 3)
    step.returns("b", 2)
    assert step.values == []
    step.returns("a", 1)

    assert step.values == [1, 2, 3]


def test_unordered_results_leave_as_the_calls_complete() -> None:
    step = CallHarness(order=UNORDERED)
    step.push("a", "b", "c")

    for value in ("c", "a", "b"):
        step.returns(value, value.upper())

    assert step.values == ["C", "A", "B"]


def test_results_have_the_timestamps_of_their_records(step: CallHarness) -> None:
    step.push("a", at=[7])
    step.push("b")
    step.push("c", at=[9])
    for value in "abc":
        step.mails_wait = value != "c"
        step.returns(value, value)

    assert step.output == [At("a", 7), At("b", None), At("c", 9)]


def test_a_fence_waits_for_the_calls_before_it_and_is_not_overtaken(step: CallHarness) -> None:
    step.push("a", at=[1])
    step.watermark(5)
    step.push("b", at=[6])

    step.returns("b", 2)
    assert step.output == []
    step.returns("a", 1)

    assert step.output == [At(1, 1), Watermark(5), At(2, 6)]


def test_idle_and_active_keep_their_place_as_watermarks_do(step: CallHarness) -> None:
    step.push("a")
    step.idle()
    step.active()
    step.push("b")

    step.returns("b", 2)
    step.returns("a", 1)

    assert step.output == [At(1, None), IDLE, ACTIVE, At(2, None)]


def test_fences_pass_at_once_while_nothing_is_in_flight(step: CallHarness) -> None:
    step.watermark(1)
    step.idle()
    step.active()

    assert step.output == [Watermark(1), IDLE, ACTIVE]


def test_a_watermark_does_not_overtake_a_result_whose_mail_has_not_run(step: CallHarness) -> None:
    step.mails_wait = True
    step.push("a", at=[1])
    step.returns("a", "A")

    step.watermark(5)
    assert step.output == []
    step.emit()

    assert step.output == [At("A", 1), Watermark(5)]


def test_a_second_record_of_a_key_waits_for_the_first() -> None:
    step = CallHarness(order=BY_KEY, key=first_letter)
    step.push("a1", "a2", "b1")
    assert step.asked == ["a1", "b1"]

    step.returns("a1", 1)

    assert step.asked == ["b1", "a2"]
    assert step.values == [1]


def test_a_key_that_fails_and_is_dropped_lets_the_next_record_go_on() -> None:
    step = CallHarness(order=BY_KEY, key=first_letter, on_error=Drop())
    step.push("a1", "a2")

    step.raises("a1", ValueError())

    assert step.asked == ["a2"]


def test_watermarks_split_what_leaves_a_keyed_step_into_epochs() -> None:
    step = CallHarness(order=BY_KEY, key=first_letter)
    step.push("a1", "b1")
    step.watermark(1)
    step.push("c1", "a2")
    assert step.asked == ["a1", "b1", "c1"]

    for value in ("c1", "b1", "a1", "a2"):
        step.returns(value, value)

    assert step.output == [
        *(At("b1", None), At("a1", None), Watermark(1)),
        *(At("c1", None), At("a2", None)),
    ]


def test_a_key_that_cannot_be_hashed_fails_with_the_record() -> None:
    step = CallHarness(order=BY_KEY)

    with pytest.raises(
        OperatorError, match=r"step 'step' failed on record 'a', key .*list"
    ) as caught:
        step.operator.process(Batch(["a"], None, [["no", "key"]]))  # type: ignore[list-item]

    assert caught.value.record == "a"
    assert step.size.entries == 0


@pytest.mark.parametrize("settings", FEWER_CALLS, ids=str)
@pytest.mark.parametrize(
    "key", [float("nan"), object(), NAIVE, "\ud800", frozenset([1])], ids=stable
)
def test_a_key_that_no_keyed_step_takes_fails_with_the_record(
    key: object, settings: dict[str, Any]
) -> None:
    step = CallHarness(order=BY_KEY, **settings)

    with pytest.raises(OperatorError, match=r"step 'step' failed on record 'b'") as caught:
        step.operator.process(Batch(["a", "b"], None, ["good", key]))

    assert caught.value.record == "b"
    assert step.size.entries == 0


# ----------------------------------------------------------------------------------------------- capacity


def test_calls_under_way_are_never_more_than_the_capacity() -> None:
    step = CallHarness(capacity=2)
    step.push("a", "b", "c")
    assert step.asked == ["a", "b"]

    step.returns("b", 2)

    assert step.asked == ["a", "c"]


@pytest.mark.parametrize("order", [CallOrder.ORDERED, CallOrder.UNORDERED])
def test_a_failed_call_frees_its_place(order: CallOrder) -> None:
    step = CallHarness(capacity=2, order=order, on_error=Drop())
    step.push("a", "b", "c", "d")

    step.raises("a", ValueError()).returns("b", 2).raises("c", ValueError())

    assert step.step.counted().in_flight == 1
    assert step.step.counted().calls == 4
    assert step.push("e", "f").asked == ["d", "e"]


def test_a_step_is_full_with_twice_its_capacity_of_records_and_fences() -> None:
    step = CallHarness(capacity=2)
    step.push("a", "b")
    step.watermark(1)
    assert not step.step.full

    step.push("c")

    assert step.step.full


def test_a_fence_that_waits_for_its_mail_only_takes_room_all_the_same() -> None:
    step = CallHarness(capacity=1)
    step.mails_wait = True
    step.push("a")
    step.returns("a", 1)
    step.watermark(1)
    assert step.step.full

    step.emit()

    assert not step.step.full


@pytest.mark.parametrize("order", [UNORDERED, BY_KEY])
def test_results_that_wait_for_an_earlier_watermark_have_a_bound_of_their_own(
    order: CallOrder,
) -> None:
    step = CallHarness(capacity=2, order=order, key=str if order is BY_KEY else None)
    step.push("slow")
    step.watermark(0)
    fast = 0
    while not step.step.full:
        step.push(fast)
        step.returns(fast, fast)
        fast += 1
    assert fast == HELD * 2 * 2

    step.returns("slow", "slow")

    assert not step.step.full
    assert len(step.values) == fast + 1


def test_watermarks_that_wait_for_an_unordered_call_have_a_bound_of_their_own() -> None:
    step = CallHarness(capacity=1, order=UNORDERED)
    step.push("slow")
    watermarks = 0
    while not step.step.full:
        step.watermark(watermarks)
        watermarks += 1
    assert watermarks == HELD * 2

    step.returns("slow", "slow")

    assert not step.step.full


def test_no_call_begins_while_the_step_is_held(step: CallHarness) -> None:
    step.step.held = True
    step.push("a")
    assert (step.asked, step.step.waiting) == ([], 0)

    step.step.resume()

    assert step.step.waiting == 1


def test_calls_are_counted(step: CallHarness) -> None:
    step.push("a", "b")
    step.returns("a", 1)

    counted = step.step.counted()

    assert (counted.calls, counted.in_flight, counted.waiting) == (2, 1, 0)


# ------------------------------------------------------------------------------------- kinds of results


def test_a_call_may_give_any_number_of_results() -> None:
    step = CallHarness(results=CallResults.MANY)
    step.push("none", "two", "one", at=[1, 2, 3])

    step.returns("none", ())
    step.returns("two", (number for number in (1, 2)))
    step.returns("one", [3])

    assert step.output == [At(1, 2), At(2, 2), At(3, 3)]


@pytest.mark.parametrize("order", [CallOrder.ORDERED, CallOrder.UNORDERED])
def test_calls_of_many_results_may_complete_together_and_some_fail(order: CallOrder) -> None:
    step = CallHarness(results=CallResults.MANY, order=order, on_error=Drop())
    step.push("a", "b", "c", "d")
    _, _, complete = step.step.scheduler.plain_parts()

    for value, result in (("b", 3), ("a", [1, 2]), ("c", []), ("d", [4])):  # 3 is no list
        call = next(one for one in step.under_way if one.value == value)
        step.under_way.remove(call)
        call.result = result
        complete(call)
    step.step.emit()

    assert step.values == [1, 2, 4]
    assert not step.step.busy


def test_a_call_that_gives_no_list_where_one_is_due_has_failed() -> None:
    step = CallHarness(results=CallResults.MANY)
    step.push("a")

    with pytest.raises(OperatorError, match="record 'a': TypeError: returned 5, not a list"):
        step.returns("a", 5)


def test_a_filter_sends_the_records_on_for_which_something_true_was_given() -> None:
    step = CallHarness(results=CallResults.KEEP)
    step.push("a", "b", "c", at=[1, 2, 3])

    for value, keep in (("a", [0]), ("b", None), ("c", 1)):
        step.returns(value, keep)

    assert step.output == [At("a", 1), At("c", 3)]


def test_a_filter_whose_answer_is_neither_true_nor_false_fails_with_the_record() -> None:
    class Neither:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    step = CallHarness(results=CallResults.KEEP)
    step.push("a")

    with pytest.raises(OperatorError, match="record 'a': ValueError: ambiguous"):
        step.returns("a", Neither())


def test_a_function_that_puts_value_and_result_together_fails_with_the_record() -> None:
    step = CallHarness(into=quotient)
    step.push(6, 5)
    step.returns(6, 3)
    assert step.values == [2]

    with pytest.raises(OperatorError, match="record 5: ZeroDivisionError"):
        step.returns(5, 0)


# ------------------------------------------------------------------------------------------------ failure


def test_a_call_that_fails_fails_the_job_by_a_mail_and_nothing_leaves_behind_it() -> None:
    step = CallHarness(order=UNORDERED)
    step.mails_wait = True
    step.push("a", "b", at=[1, 2])
    step.raises("a", ValueError("no"))
    step.returns("b", 2)

    with pytest.raises(
        OperatorError, match="step 'step' failed on record 'a', timestamp 1"
    ) as caught:
        step.emit()

    assert isinstance(caught.value.__cause__, ValueError)
    assert step.output == []


def test_a_record_that_failed_the_job_is_called_for_again_after_a_restart(
    step: CallHarness,
) -> None:
    step.mails_wait = True
    step.push("a", "b")
    step.raises("a", ValueError("no"))

    step.restart()

    assert step.asked == ["a", "b"]


def test_no_call_begins_after_the_job_has_failed() -> None:
    step = CallHarness(capacity=1)
    step.mails_wait = True
    step.push("a", "b")
    step.raises("a", ValueError("no"))

    step.step.resume()

    assert step.step.waiting == 0
    assert step.step.take() is None


def test_of_several_failures_the_first_is_the_one_that_is_told() -> None:
    step = CallHarness()
    step.mails_wait = True
    step.push("a", "b")
    step.raises("b", ValueError("first"))
    step.raises("a", ValueError("second"))

    with pytest.raises(OperatorError, match="first"):
        step.emit()


# ------------------------------------------------------------------------------------------------ restart


@pytest.mark.parametrize("order", [CallOrder.ORDERED, CallOrder.UNORDERED])
def test_records_that_fill_the_step_are_called_for_again_in_order_and_before_all_others(
    order: CallOrder,
) -> None:
    step = CallHarness(capacity=2, order=order)
    step.push("a", "b", "c", "d")

    step.restart()
    assert (step.step.full, step.asked) == (True, ["a", "b"])
    step.push("e")
    for value in "abcde":
        step.returns(value, value)

    assert step.values == ["a", "b", "c", "d", "e"]


def test_a_result_that_waited_for_others_is_restored() -> None:
    step = CallHarness()
    step.push("a", "b")
    step.returns("b", 2)

    step.restart()
    step.returns("a", 1)

    assert step.values == [1, 2]
    assert step.made == ["a", "b", "a"]


def test_what_has_left_is_not_called_for_again(step: CallHarness) -> None:
    step.push("a", "b")
    step.returns("a", 1)

    step.restart()

    assert step.asked == ["b"]


@pytest.mark.parametrize("order", CallOrder)
def test_restored_records_belong_to_the_epoch_before_the_first_new_watermark(
    order: CallOrder,
) -> None:
    step = CallHarness(order=order, key=first_letter if order is BY_KEY else None)
    step.push("a1", "b1", at=[1, 2])
    step.restart()
    step.watermark(1000)
    step.push("c1", "a2", at=[5, 6])

    for value in ("c1", "b1", "a1", "a2"):
        step.returns(value, value)

    first, rest = step.output[:2], step.output[2:]
    assert {one.value for one in first if isinstance(one, At)} == {"a1", "b1"}
    assert rest == [Watermark(1000), At("c1", 5), At("a2", 6)]


def test_a_key_stays_in_order_over_a_restart() -> None:
    step = CallHarness(order=BY_KEY, key=first_letter)
    step.push("a1", "a2", "a3")
    step.returns("a1", 1)

    step.restart()
    assert step.asked == ["a2"]
    step.returns("a2", 2)
    step.returns("a3", 3)

    assert step.values == [1, 2, 3]


@pytest.mark.parametrize("mode", Mode)
def test_results_leave_once_whatever_is_snapshotted_between_them(mode: Mode) -> None:
    step = CallHarness(mode=mode, capacity=2)
    step.push(1, 2, 3, 4, at=[1, 2, 3, 4])

    while step.under_way:
        value = step.asked[0]
        step.returns(value, value * 10)

    assert step.output == [At(value * 10, value) for value in (1, 2, 3, 4)]


def test_a_step_says_how_much_it_holds(step: CallHarness) -> None:
    sizes: list[Any] = [step.size.entries]
    step.push("a", "b")
    sizes.append(step.size.entries)
    step.returns("a", 1)
    sizes.append(step.size.entries)

    assert sizes == [0, 2, 1]
