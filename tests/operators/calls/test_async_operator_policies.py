"""Error policies of async steps, and the order of what they emit."""

from __future__ import annotations

from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.machines.calls.on_error import DeadLetter, Drop, Fail, FailedCall, Fallback, OnError
from aflow.machines.calls.settings import CallOrder, CallResults
from aflow.model.elements import Watermark
from aflow.model.tags import Tag
from aflow.testing import At
from tests.operators.calls.harness import CallHarness

FAILED = Tag[FailedCall[Any]]("failed")


def failing(on_error: OnError[Any], **settings: Any) -> CallHarness:
    """Records a, b, c with a watermark behind them, of which b has failed and c is done: all waits for a."""
    step = CallHarness(on_error=on_error, **settings)
    step.push("a", "b", "c", at=[1, 2, 3])
    step.watermark(3)
    step.raises("b", ConnectionError("gone"))
    step.returns("c", ["C"] if settings.get("results") is CallResults.MANY else "C")
    return step


def test_fail_names_the_record_its_timestamp_and_the_cause() -> None:
    with pytest.raises(
        OperatorError,
        match=r"step 'step' failed on record 'b', timestamp 2 \(.*\): ConnectionError: gone",
    ) as caught:
        failing(Fail())

    assert (caught.value.record, caught.value.timestamp) == ("b", 2)
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_with_fail_a_timeout_ends_the_job_and_nothing_leaves_behind_it() -> None:
    step = CallHarness(timeout=10, capacity=2)
    step.push("first", at=[0])
    step.advance_processing_time(5)
    step.push("second", at=[5])

    with pytest.raises(OperatorError, match="TimeoutError: no result within 10ms"):
        step.advance_processing_time(11)
    step.mails_wait = True
    step.returns("second", 2)
    with pytest.raises(OperatorError, match="TimeoutError"):
        step.step.emit()

    assert step.output == []


def test_drop_leaves_the_record_out_and_keeps_the_order_of_the_others() -> None:
    step = failing(Drop())

    step.returns("a", "A")

    assert step.output == [At("A", 1), At("C", 3), Watermark(3)]
    assert step.step.calls.dropped == 1


def test_a_step_all_of_whose_records_are_dropped_sends_on_the_watermark_alone() -> None:
    step = CallHarness(on_error=Drop())
    step.push("a", at=[1])
    step.watermark(1)

    step.raises("a", ValueError())

    assert step.output == [Watermark(1)]
    assert not step.step.busy


def test_records_that_are_dropped_on_both_sides_of_a_watermark_leave_the_watermark_alone() -> None:
    step = CallHarness(on_error=Drop())
    step.push("a", at=[1])
    step.watermark(1)
    step.push("b", at=[2])

    step.raises("b", ValueError())
    step.raises("a", ValueError())

    assert step.output == [Watermark(1)]


def test_a_dead_letter_tells_the_record_the_cause_and_the_attempts() -> None:
    step = failing(DeadLetter(FAILED), order=CallOrder.UNORDERED)

    assert step.side(FAILED) == [At(FailedCall("b", "ConnectionError", "gone", 1), 2)]
    assert step.values == ["C"]
    assert step.step.calls.dead_letters == 1


def test_a_dead_letter_leaves_when_it_would_be_its_results_turn() -> None:
    step = failing(DeadLetter(FAILED))
    assert step.side(FAILED) == []

    step.returns("a", "A")

    assert [one.value.value for one in step.side(FAILED)] == ["b"]
    assert step.output == [At("A", 1), At("C", 3), Watermark(3)]


def test_a_dead_letter_of_a_record_without_a_timestamp_has_none() -> None:
    step = CallHarness(on_error=DeadLetter(FAILED))
    step.push("a")

    step.raises("a", ValueError("no"))

    assert step.side(FAILED) == [At(FailedCall("a", "ValueError", "no", 1), None)]


def test_a_dead_letter_that_was_not_emitted_is_restored() -> None:
    step = failing(DeadLetter(FAILED))

    step.restart()

    assert step.asked == ["a"]
    assert step.side(FAILED) == []

    step.returns("a", "A")

    assert step.side(FAILED) == [At(FailedCall("b", "ConnectionError", "gone", 1), 2)]
    assert step.output == [At("A", 1), At("C", 3), Watermark(3)]


def test_a_fallback_takes_the_place_of_the_result() -> None:
    step = failing(Fallback(lambda value, error: f"{value}: {error}"))

    step.returns("a", "A")

    assert step.output == [At("A", 1), At("b: gone", 2), At("C", 3), Watermark(3)]
    assert step.step.calls.fallbacks == 1


def test_a_fallback_may_give_nothing_at_all() -> None:
    step = CallHarness(on_error=Fallback(lambda value, error: None))
    step.push("a")

    step.raises("a", ValueError())

    assert step.values == [None]


def test_a_fallback_of_many_gives_many() -> None:
    step = CallHarness(
        results=CallResults.MANY, on_error=Fallback(lambda value, error: (value, value))
    )
    step.push("a", at=[1])

    step.raises("a", ValueError())

    assert step.output == [At("a", 1), At("a", 1)]


def test_a_fallback_of_many_that_gives_no_list_fails_the_job() -> None:
    step = CallHarness(results=CallResults.MANY, on_error=Fallback(lambda value, error: 5))
    step.push("a")

    with pytest.raises(OperatorError, match="record 'a': TypeError: returned 5, not a list"):
        step.raises("a", ValueError())


@pytest.mark.parametrize("keep", [True, False])
def test_a_fallback_of_a_filter_says_whether_the_record_goes_on(keep: bool) -> None:
    def fallback(value: str, error: BaseException) -> bool:
        return keep

    step = CallHarness(results=CallResults.KEEP, on_error=Fallback(fallback))
    step.push("a")

    step.raises("a", ValueError())

    assert step.values == (["a"] if keep else [])


@pytest.mark.parametrize("policy", [Drop(), DeadLetter(FAILED)], ids=str)
def test_many_results_and_none_leave_in_order(policy: OnError[Any]) -> None:
    step = failing(policy, results=CallResults.MANY)

    step.returns("a", [1, 2])

    assert step.output == [At(1, 1), At(2, 1), At("C", 3), Watermark(3)]


@pytest.mark.parametrize("policy", [Drop(), DeadLetter(FAILED)], ids=str)
def test_a_filter_without_an_answer_sends_nothing_on(policy: OnError[Any]) -> None:
    step = failing(policy, results=CallResults.KEEP)

    step.returns("a", True)

    assert step.output == [At("a", 1), At("c", 3), Watermark(3)]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_policies_hold_for_errors_of_any_kind(error: BaseException) -> None:
    step = CallHarness(on_error=DeadLetter(FAILED))
    step.push("a")

    step.raises("a", error)

    assert [one.value.error for one in step.side(FAILED)] == [type(error).__name__]


def test_a_function_that_cannot_be_awaited_fails_the_job_whatever_the_policy() -> None:
    step = CallHarness(on_error=Drop())
    step.push("a")
    step.step.misused(step.under_way[0], TypeError("write it as async def"))

    with pytest.raises(OperatorError, match="record 'a': TypeError: write it as async def"):
        step.emit()
