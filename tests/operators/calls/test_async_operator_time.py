"""Asynchronous steps and the clock: timeouts, deadlines, and calls that are made again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall, Fallback
from aflow.machines.calls.retry import Attempt, Retry
from aflow.machines.calls.settings import CallOrder, CallResults
from aflow.model.tags import Tag
from aflow.testing import At, Mode
from tests.operators.calls.harness import CallHarness
from tests.stable_ids import stable

FAILED = Tag[FailedCall[Any]]("failed")
ERROR = ConnectionError("no answer")


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


# ------------------------------------------------------------------------------------------------ timeouts


def itself(value: Any) -> Any:
    return value


def nothing(value: Any, error: BaseException) -> int:
    return 0


def one_key(value: Any) -> str:
    return "one"


def key_until(value: Any) -> Any:
    return value["until"]


def test_time_is_up_exactly_at_the_beginning_of_the_call_and_the_timeout() -> None:
    step = CallHarness(timeout=10, on_error=Drop())
    step.advance_processing_time(5)
    step.push("a")

    step.advance_processing_time(14)
    assert step.cancelled == []
    step.advance_processing_time(15)

    assert step.cancelled == ["a"]


def test_time_begins_with_the_call_and_not_with_the_record() -> None:
    step = CallHarness(timeout=10, capacity=1, on_error=Drop())
    step.push("a", "b")
    step.advance_processing_time(8)
    step.returns("a", 1)

    step.advance_processing_time(17)
    assert step.cancelled == []
    step.advance_processing_time(18)

    assert step.cancelled == ["b"]


def test_a_record_whose_time_is_up_fails_the_job_unless_a_policy_says_otherwise() -> None:
    step = CallHarness(timeout=1500)
    step.push("a")

    with pytest.raises(
        OperatorError, match="record 'a': TimeoutError: no result within 1500ms, in 1 att"
    ):
        step.advance_processing_time(1500)


def test_a_completion_takes_the_moment_away() -> None:
    step = CallHarness(timeout=10)
    step.push("a")
    assert step.size.processing_timers == 1
    step.returns("a", 1)
    assert step.size.processing_timers == 0

    step.advance_processing_time(100)

    assert (step.values, step.step.calls.timeouts) == ([1], 0)


def test_a_completion_whose_mail_has_not_run_beats_the_timeout() -> None:
    step = CallHarness(timeout=10)
    step.mails_wait = True
    step.push("a")
    step.returns("a", 1)

    step.advance_processing_time(20)
    step.emit()

    assert (step.values, step.step.calls.timeouts) == ([1], 0)


def test_what_a_call_gives_after_its_time_counts_no_more() -> None:
    step = CallHarness(timeout=10, on_error=Drop())
    step.push("a")
    (call,) = step.under_way
    step.advance_processing_time(10)

    step.step.returned(call, "late")
    step.step.raised(call, ERROR)

    assert step.values == []
    assert step.step.running == 0
    assert step.step.calls.dropped == 1


@pytest.mark.parametrize("order", CallOrder)
def test_a_record_whose_time_is_up_frees_its_slot(order: CallOrder) -> None:
    step = CallHarness(
        timeout=10,
        capacity=1,
        on_error=Drop(),
        order=order,
        key=len if order is CallOrder.BY_KEY else None,
    )
    step.push("a", "b")

    step.advance_processing_time(10)

    assert step.asked == ["b"]
    step.returns("b", 2)
    assert step.values == [2]


def test_a_timeout_lets_the_records_behind_it_leave_in_order() -> None:
    step = CallHarness(timeout=10, on_error=Fallback(lambda value, error: type(error).__name__))
    step.push("a", "b", at=[1, 2])
    step.returns("b", "B")
    assert step.output == []

    step.advance_processing_time(10)

    assert step.output == [At("TimeoutError", 1), At("B", 2)]


def test_each_record_has_its_own_time() -> None:
    step = CallHarness(timeout=10, on_error=Drop())
    for value, at in (("a", 0), ("b", 3), ("c", 6)):
        step.advance_processing_time(at)
        step.push(value)
    step.returns("b", 2)

    step.advance_processing_time(12)
    assert step.cancelled == ["a"]
    step.advance_processing_time(16)

    assert step.cancelled == ["a", "c"]


def test_after_a_restart_time_begins_anew() -> None:
    step = CallHarness(timeout=10, on_error=Drop())
    step.push("a")
    step.advance_processing_time(8)
    step.restart()

    step.advance_processing_time(17)
    assert step.cancelled == []
    step.advance_processing_time(18)

    assert step.cancelled == ["a"]


# ------------------------------------------------------------------------------------------------ deadlines


def test_a_deadline_is_a_moment_of_the_record() -> None:
    def deadline(value: int) -> datetime:
        return datetime.fromtimestamp(value, UTC)

    step = CallHarness(deadline=deadline, on_error=Drop())
    step.push(2, 1)

    step.advance_processing_time(1000)
    assert step.cancelled == [1]
    step.advance_processing_time(2000)

    assert step.cancelled == [1, 2]


@pytest.mark.parametrize(("timeout", "deadline"), [(10, 50), (50, 10)])
def test_of_a_timeout_and_a_deadline_the_earlier_one_counts(timeout: int, deadline: int) -> None:
    def moment(value: str) -> int:
        return deadline

    step = CallHarness(timeout=timeout, deadline=moment, on_error=Drop())
    step.push("a")

    step.advance_processing_time(9)
    assert step.cancelled == []
    step.advance_processing_time(10)

    assert step.cancelled == ["a"]


def test_a_record_whose_deadline_has_passed_is_not_called_for() -> None:
    step = CallHarness(deadline=itself, on_error=DeadLetter(FAILED))
    step.advance_processing_time(100)

    step.push(100, 101, at=[1, 2])
    step.returns(101, "in time")

    assert step.made == [101]
    assert step.output == [At("in time", 2)]
    (dead,) = step.side(FAILED)
    assert dead == At(
        FailedCall(100, "TimeoutError", "its deadline had passed before it was called", 0), 1
    )
    assert step.step.calls.calls == 1


def test_a_deadline_that_has_passed_lets_the_next_record_of_its_key_go_on() -> None:
    step = CallHarness(deadline=itself, on_error=Drop(), order=CallOrder.BY_KEY, key=one_key)
    step.advance_processing_time(100)

    step.push(50, 99, 200)

    assert step.asked == [200]


@pytest.mark.parametrize("policy", [Drop(), Fallback(nothing)], ids=stable)
def test_a_deadline_function_that_raises_fails_the_job_whatever_the_policy(policy: Any) -> None:
    step = CallHarness(deadline=key_until, on_error=policy)

    with pytest.raises(OperatorError, match=r"record \{\}: KeyError: 'until'") as caught:
        step.push({})

    assert isinstance(caught.value.__cause__, KeyError)
    assert step.made == []


def test_a_deadline_without_a_time_zone_fails_the_job_and_says_what_to_do() -> None:
    def naive(value: str) -> datetime:
        return datetime(2030, 1, 1)  # noqa: DTZ001

    step = CallHarness(deadline=naive)

    with pytest.raises(OperatorError, match=r"the deadline .* has no time zone"):
        step.push("a")


# ------------------------------------------------------------------------------------------------ retries


def test_a_call_that_failed_is_made_again_after_the_delay() -> None:
    step = CallHarness(retry=Retry(delay=ms(10)))
    step.push("a")
    step.raises("a", ERROR)

    step.advance_processing_time(9)
    assert step.asked == []
    step.advance_processing_time(10)
    step.returns("a", 1)

    assert step.values == [1]
    assert (step.step.calls.calls, step.step.calls.retries) == (2, 1)


def test_after_the_last_attempt_the_policy_decides() -> None:
    step = CallHarness(retry=Retry(attempts=3, delay=ms(10)), on_error=DeadLetter(FAILED))
    step.push("a", at=[7])

    for now in (0, 10, 20):
        step.advance_processing_time(now)
        step.raises("a", ERROR)

    assert step.side(FAILED) == [At(FailedCall("a", "ConnectionError", "no answer", 3), 7)]
    assert step.output == []
    assert not step.step.busy


def test_a_record_that_waits_for_its_next_attempt_has_no_slot() -> None:
    step = CallHarness(retry=Retry(delay=ms(10)), capacity=1, order=CallOrder.UNORDERED)
    step.push("a", "b")

    step.raises("a", ERROR)

    assert step.asked == ["b"]


def test_a_key_keeps_its_turn_between_attempts() -> None:
    step = CallHarness(retry=Retry(delay=ms(10)), order=CallOrder.BY_KEY, key=one_key)
    step.push("a", "b")
    step.raises("a", ERROR)
    assert step.asked == []

    step.advance_processing_time(10)
    assert step.asked == ["a"]
    step.returns("a", 1)

    assert step.asked == ["b"]


def test_a_result_that_is_none_is_asked_for_again_and_the_last_one_is_taken() -> None:
    retry = Retry(attempts=2, delay=ms(10), on_result=lambda results: not results)
    step = CallHarness(retry=retry, results=CallResults.MANY)
    step.push("a", "b")
    step.returns("a", [])
    step.returns("b", [])
    step.advance_processing_time(10)

    step.returns("a", [])
    step.returns("b", [2])

    assert step.values == [2]
    assert not step.step.busy


def test_the_time_for_a_record_counts_over_all_attempts() -> None:
    step = CallHarness(timeout=25, retry=Retry(attempts=9, delay=ms(10)), on_error=Drop())
    step.push("a")
    for now in (10, 20):
        step.raises("a", ERROR)
        step.advance_processing_time(now)

    step.advance_processing_time(24)
    assert step.cancelled == []
    step.advance_processing_time(25)

    assert step.cancelled == ["a"]


def test_a_timeout_between_attempts_stops_the_retries() -> None:
    step = CallHarness(
        timeout=15, retry=Retry(attempts=9, delay=ms(10)), on_error=DeadLetter(FAILED)
    )
    step.push("a")
    step.raises("a", ERROR)
    step.advance_processing_time(10)
    step.raises("a", ERROR)

    step.advance_processing_time(100)

    (dead,) = step.side(FAILED)
    assert dead.value == FailedCall("a", "TimeoutError", "no result within 15ms, in 2 attempts", 2)
    assert step.cancelled == []
    assert step.made == ["a", "a"]
    assert step.size.processing_timers == 0


def test_a_timeout_at_the_moment_of_a_retry_wins() -> None:
    step = CallHarness(timeout=10, retry=Retry(delay=ms(10)), on_error=Drop())
    step.push("a")
    step.raises("a", ERROR)

    step.advance_processing_time(10)

    assert step.made == ["a"]
    assert step.step.calls.timeouts == 1


def test_a_timeout_takes_a_record_back_that_waits_for_a_slot_for_its_next_attempt() -> None:
    step = CallHarness(
        timeout=20, retry=Retry(delay=ms(5)), on_error=Drop(), capacity=1, order=CallOrder.UNORDERED
    )
    step.push("a")
    step.advance_processing_time(1)
    step.push("b")
    step.raises("a", ERROR)
    step.advance_processing_time(10)
    assert step.asked == ["b"]

    step.advance_processing_time(20)

    assert step.cancelled == []
    assert step.made == ["a", "b"]
    assert (step.step.running, step.step.waiting) == (1, 0)


def test_retries_that_are_due_together_are_made_in_the_order_of_their_moments() -> None:
    step = CallHarness(retry=Retry(delay=ms(10)))
    step.push("a", "b", "c")
    for value, now in (("c", 0), ("a", 1), ("b", 2)):
        step.advance_processing_time(now)
        step.raises(value, ERROR)

    step.advance_processing_time(12)

    assert step.asked == ["c", "a", "b"]


def test_a_call_that_is_to_be_made_again_goes_before_those_that_were_not_made_yet() -> None:
    step = CallHarness(capacity=1, retry=Retry(delay=ms(10)))
    step.push("a", "b", "c")
    step.raises("a", ERROR)
    step.advance_processing_time(10)

    step.returns("b", 2)

    assert step.asked == ["a"]


def test_a_call_whose_time_runs_is_made_again_while_the_step_is_held_and_no_other_begins() -> None:
    step = CallHarness(capacity=2, timeout=100, retry=Retry(delay=ms(10)), on_error=Drop())
    step.push("a", "b", "c", "d")
    step.step.held = True
    step.raises("a", ERROR)
    step.returns("b", 2)
    assert (step.asked, step.step.waiting) == ([], 0)

    step.advance_processing_time(10)

    assert step.asked == ["a"]


def test_the_time_of_a_record_whose_next_attempt_waits_for_a_slot_is_up_all_the_same() -> None:
    step = CallHarness(capacity=1, timeout=100, retry=Retry(delay=ms(10)), on_error=Drop())
    step.push("a", "b")
    step.advance_processing_time(5)
    step.raises("a", ERROR)
    step.advance_processing_time(100)

    assert (step.asked, step.step.calls.dropped) == (["b"], 1)


def test_nothing_is_made_again_once_the_job_has_to_fail() -> None:
    step = CallHarness(capacity=2, retry=Retry(delay=ms(10)), timeout=15)
    step.mails_wait = True
    step.push("a", "b")
    step.advance_processing_time(5)
    step.raises("b", ERROR)
    step.advance_processing_time(15)

    assert (step.asked, step.step.waiting) == ([], 0)


def test_a_retry_policy_that_raises_fails_the_job_with_the_record() -> None:
    step = CallHarness(retry=Retry(on_result=lambda result: result["ok"]), on_error=Drop())
    step.push("a")

    with pytest.raises(OperatorError, match="record 'a': KeyError: 'ok'"):
        step.returns("a", {})


def test_a_retry_policy_that_gives_no_duration_fails_the_job_with_the_record() -> None:
    class InSeconds:
        def again(self, failed: Attempt, chance: float) -> Any:
            return 5

    step = CallHarness(retry=InSeconds())
    step.push("a")

    with pytest.raises(
        OperatorError, match=r"record 'a': TypeError: InSeconds.*timedelta or None, not int: 5"
    ):
        step.raises("a", ERROR)


def test_a_failure_inside_a_fallback_is_not_retried_and_fails_the_job() -> None:
    def fallback(value: str, error: BaseException) -> int:
        raise LookupError("nothing instead")

    step = CallHarness(retry=Retry(attempts=2, delay=ms(5)), on_error=Fallback(fallback))
    step.push("a")
    step.raises("a", ERROR)
    step.advance_processing_time(5)

    with pytest.raises(
        OperatorError, match="record 'a' after 2 attempts: LookupError: nothing instead"
    ):
        step.raises("a", ERROR)

    assert step.made == ["a", "a"]
    assert step.size.processing_timers == 0


@pytest.mark.parametrize("mode", Mode)
def test_attempts_are_counted_anew_after_a_restart(mode: Mode) -> None:
    step = CallHarness(mode=mode, retry=Retry(attempts=2, delay=ms(5)), on_error=Drop())
    step.push("a")
    step.raises("a", ERROR)
    step.restart()

    step.raises("a", ERROR)
    step.advance_processing_time(5)
    step.returns("a", 1)

    assert step.values == [1]
