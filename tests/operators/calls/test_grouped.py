"""Steps that make one call for several records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall, Fallback
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder, CallSettings
from aflow.model.batch import Batch
from aflow.model.elements import IDLE, Watermark
from aflow.model.tags import Tag
from tests.operators.calls.harness import CallHarness, unused

MS = timedelta(milliseconds=1)


def step(size: int = 2, delay: int = 50, **settings: Any) -> CallHarness:
    groups = GroupSize(size, delay)
    return CallHarness(CallSettings(call=unused, groups=groups, **settings))


def what_and_why(value: str, error: BaseException) -> str:
    return f"{value}: {type(error).__name__}"


# -------------------------------------------------------------------------------------------- who goes together


def test_as_many_records_as_a_group_may_have_are_called_for_at_once() -> None:
    calling = step().push("a", "b", "c", at=[1, 2, 3])
    assert calling.asked == [["a", "b"]]

    calling.returns(["a", "b"], [10, 20])

    assert calling.batches() == [Batch([10, 20], [1, 2])]
    assert calling.calls.calls == 1


def test_a_group_that_is_not_full_goes_when_its_first_record_has_waited_for_the_delay() -> None:
    calling = step(3).push("a").clock(30).push("b").clock(49)
    before = calling.asked

    calling.clock(50)

    assert (before, calling.asked) == ([], [["a", "b"]])


def test_those_that_a_full_group_leaves_behind_go_after_their_own_delay() -> None:
    calling = step().push("a").clock(30).push("b", "c")
    assert calling.asked == [["a", "b"]]

    calling.clock(79)
    before = calling.asked
    calling.clock(80)

    assert (before, calling.asked) == ([["a", "b"]], [["a", "b"], ["c"]])


def test_without_a_delay_what_comes_together_goes_together_at_once() -> None:
    calling = step(3, 0).push("a", "b", "c", "d")

    assert calling.asked == [["a", "b", "c"], ["d"]]


def test_a_group_grows_while_all_slots_are_busy() -> None:
    calling = step(3, 0, capacity=1).push("a").push("b").push("c")
    assert calling.asked == [["a"]]

    calling.returns(["a"], [1])

    assert calling.asked == [["b", "c"]]


def test_the_delay_is_over_although_the_alarm_rang_while_all_slots_were_busy() -> None:
    calling = step(3, capacity=1, order=CallOrder.UNORDERED).push("a", "b", "c", "d").clock(60)
    calling.push("e")

    calling.returns(["a", "b", "c"], [1, 2, 3])

    assert calling.asked == [["d", "e"]]


def test_nobody_is_forgotten_behind_a_group_that_had_to_wait_for_a_slot() -> None:
    calling = step(2, capacity=1).push("a", "b", "c", "d").clock(60).push("e")
    calling.returns(["a", "b"], [1, 2]).returns(["c", "d"], [3, 4])
    assert calling.asked == []

    calling.clock(110)

    assert calling.asked == [["e"]]


def test_the_end_of_the_input_hurries_those_that_wait_for_company() -> None:
    calling = step(3).push("a")

    calling.end_input()

    assert calling.asked == [["a"]]


def test_an_idle_input_hurries_those_that_wait_until_it_is_active_again() -> None:
    calling = step(3).push("a")

    calling.idle()
    calling.active()
    calling.push("b")

    assert calling.asked == [["a"]]
    assert calling.clock(50).asked == [["a"], ["b"]]


def test_a_watermark_hurries_nobody_and_leaves_behind_all_records_before_it() -> None:
    calling = step(2).push("a").watermark(5).push("b")
    assert calling.asked == [["a", "b"]]

    calling.returns(["a", "b"], [1, 2])

    assert calling.batches() == [Batch([1]), Watermark(5), Batch([2])]


def test_a_step_that_can_take_no_more_does_not_wait_for_company() -> None:
    calling = step(4, 10_000, capacity=1, order=CallOrder.BY_KEY)

    calling.push(*"abcdefgh", keys=["k"] * 8)

    assert calling.step.full
    assert calling.asked == [["a"]]


def test_a_step_that_takes_no_more_although_results_have_left_does_not_wait_either() -> None:
    retry = Retry(delay=timedelta(hours=1), on=OSError)
    calling = step(4, 10_000, capacity=1, order=CallOrder.UNORDERED, retry=retry).push(*range(14))
    calling.raises([0, 1, 2, 3], OSError()).raises([4, 5, 6, 7], OSError())

    calling.returns([8, 9, 10, 11], [0, 0, 0, 0])

    assert calling.step.full
    assert calling.asked == [[12, 13]]


def test_a_step_that_takes_more_once_results_have_left_waits_for_company() -> None:
    retry = Retry(delay=timedelta(hours=1), on=OSError)
    calling = step(4, 10_000, capacity=1, order=CallOrder.UNORDERED, retry=retry).push(*range(10))
    calling.raises([0, 1, 2, 3], OSError())

    calling.returns([4, 5, 6, 7], [0, 0, 0, 0])

    assert not calling.step.full
    assert calling.asked == []


def test_a_step_holds_as_many_records_as_two_groups_for_each_slot() -> None:
    calling = step(4, capacity=2).push(*range(15))
    before = calling.step.full

    calling.push(15)

    assert (before, calling.step.full) == (False, True)


def test_a_group_has_at_most_one_record_of_a_key_where_keys_have_their_order() -> None:
    calling = step(2, order=CallOrder.BY_KEY).push("a", "b", "c", keys=["k", "k", "l"])
    assert calling.asked == [["a", "c"]]

    calling.returns(["a", "c"], [1, 3]).clock(50)

    assert calling.new_values() == [1, 3]
    assert calling.asked == [["b"]]


def test_who_waits_for_company_is_not_forgotten_when_the_alarm_rings_for_others() -> None:
    settings = CallSettings(
        call=unused, groups=GroupSize(2, 50), timeout=30, on_error=Drop(), cache=Cache(9)
    )
    calling = CallHarness(settings).push("a", "b", "c").clock(30)
    assert calling.cancelled == [["a", "b"]]

    calling.clock(50)

    assert calling.asked == [["c"]]


def test_a_follower_that_leads_while_the_step_is_held_goes_without_waiting_for_company() -> None:
    def until(value: tuple[str, int]) -> int:
        return value[1]

    settings = CallSettings(
        call=unused,
        groups=GroupSize(2, 50),
        deadline=until,
        on_error=Drop(),
        cache=Cache(9, key=lambda value: value[0]),
    )
    calling = CallHarness(settings).push(("a", 100), ("slow", 5000), ("a", 3000))
    assert calling.asked == [[("a", 100), ("slow", 5000)]]
    calling.push(("new", 5000))
    calling.step.held = True

    calling.clock(100)

    assert calling.calls.timeouts == 1
    assert calling.asked[1:] == [[("a", 3000)]]


def test_records_whose_time_is_up_while_a_rate_limit_keeps_them_waiting_are_in_no_call() -> None:
    retry, rate = Retry(delay=timedelta(0)), RateLimit[Any](1, timedelta(seconds=1))
    calling = step(2, rate=rate, retry=retry, timeout=300, on_error=Drop()).push(1, 2)
    calling.raises([1, 2], OSError()).clock(1)

    calling.clock(300)
    late = calling.calls.timeouts
    calling.clock(1000)

    assert (late, calling.asked, calling.cancelled) == (2, [], [])
    assert (calling.step.running, calling.step.busy) == (0, False)


def test_a_group_that_a_rate_limit_keeps_waiting_takes_along_who_comes_meanwhile() -> None:
    rate = RateLimit[Any](1, timedelta(seconds=1))
    calling = step(3, 50, rate=rate).push(1, 2, 3, 4).clock(50)
    assert calling.asked == [[1, 2, 3]]

    calling.push(5).clock(1000)

    assert calling.asked == [[1, 2, 3], [4, 5]]


def test_a_group_is_one_call_for_a_rate_limit_unless_values_have_a_cost() -> None:
    second = timedelta(seconds=1)
    plain = step(2, rate=RateLimit[Any](1, second)).push(1, 1)
    costly = step(2, rate=RateLimit[Any](1, second, cost=lambda value: value)).push(1, 1)

    assert plain.push(1, 1).clock(1000).asked == [[1, 1], [1, 1]]
    assert costly.push(1, 1).clock(1000).asked == [[1, 1]]
    assert costly.clock(2000).asked == [[1, 1], [1, 1]]


def test_records_of_groups_that_are_called_for_do_not_count_as_waiting() -> None:
    calling = step(2).push("a", "b", "c")

    counted = calling.step.counted()

    assert (counted.in_flight, counted.waiting) == (1, 1)
    assert calling.returns(["a", "b"], [1, 2]).step.counted().waiting == 1


# -------------------------------------------------------------------------------------------------- what it gives


def test_keys_that_are_fewer_than_a_group_may_have_do_not_wait_for_others() -> None:
    calling = step(50, 10_000, order=CallOrder.BY_KEY)
    calling.push(1, 2, 3, 4, 5, keys=["k", "l", "k", "l", "k"])
    assert calling.asked == [[1, 2]]

    calling.returns([1, 2], [1, 2]).returns([3, 4], [3, 4])

    assert calling.new_values() == [1, 2, 3, 4]
    assert calling.asked == []


def test_while_a_call_is_under_way_those_behind_it_wait_for_each_other() -> None:
    calling = step(2, order=CallOrder.BY_KEY).push(1, 2, 3, keys=["k", "k", "l"])
    assert calling.asked == [[1, 3]]

    calling.push(4, keys=["m"])
    before = calling.asked
    calling.returns([1, 3], [1, 3])

    assert before == [[1, 3]]
    assert calling.asked == [[4, 2]]


def test_any_sequence_with_a_result_for_each_value_is_taken() -> None:
    calling = step().push("a", "b").returns(["a", "b"], (1, 2))

    assert calling.new_values() == [1, 2]


def test_an_exception_in_place_of_a_result_is_the_failure_of_that_record_alone() -> None:
    calling = step(3, on_error=Fallback(what_and_why)).push("a", "b", "c")

    calling.returns(["a", "b", "c"], [1, KeyError("b"), 3])

    assert calling.new_values() == [1, "b: KeyError", 3]


def test_only_the_record_that_failed_is_called_for_again() -> None:
    calling = step(retry=Retry(attempts=2)).push("a", "b").returns(["a", "b"], [OSError(), 2])

    calling.clock(100).push("c")

    assert calling.asked == [["a", "c"]]
    calling.returns(["a", "c"], [1, 3])
    assert calling.new_values() == [1, 2, 3]
    assert (calling.calls.calls, calling.calls.retries) == (2, 1)


def test_a_result_that_is_none_is_called_for_again_by_itself() -> None:
    retry = Retry(on_result=lambda result: result == 0)
    calling = step(retry=retry).push("a", "b").returns(["a", "b"], [0, 2])

    assert calling.clock(100).clock(150).asked == [["a"]]


def test_a_call_that_fails_is_the_failure_of_all_its_records() -> None:
    tag = Tag[FailedCall[str]]("failed")
    calling = step(on_error=DeadLetter(tag)).push("a", "b").raises(["a", "b"], OSError("down"))

    assert calling.side_values("failed") == [
        FailedCall("a", "OSError", "down", 1),
        FailedCall("b", "OSError", "down", 1),
    ]


def test_a_call_that_fails_is_made_again_for_all_its_records() -> None:
    calling = step(retry=Retry()).push("a", "b").raises(["a", "b"], OSError("down"))

    assert calling.clock(100).asked == [["a", "b"]]


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ([1], r"ValueError: called with 2 values, the function returned 1 results; it has to "),
        ([1, 2, 3], "ValueError: called with 2 values, the function returned 3 results"),
        (None, r"\(2 this time\), the function returned None; it has to return a list"),
        ("ab", "TypeError: called with a list of values .* returned 'ab'"),
        ({"a": 1, "b": 2}, "TypeError: called with a list of values .* returned {'a'"),
        (iter([1, 2]), "TypeError: called with a list of values .* returned <list_iterator"),
    ],
    ids=("short", "long", "none", "text", "mapping", "iterator"),
)
def test_what_is_no_list_of_as_many_results_is_an_error_of_all_records(
    result: object, error: str
) -> None:
    calling = step().push("a", "b")

    with pytest.raises(OperatorError, match=error):
        calling.returns(["a", "b"], result)


def test_a_wrong_number_of_results_goes_the_way_of_other_failures() -> None:
    calling = step(on_error=Fallback(what_and_why)).push("a", "b").returns(["a", "b"], [1])

    assert calling.new_values() == ["a: ValueError", "b: ValueError"]


# ---------------------------------------------------------------------------------------------------- time is up


def test_a_call_is_cancelled_when_the_time_of_all_its_records_is_up() -> None:
    calling = step(timeout=1000, on_error=Drop()).push("a", "b").clock(1000)

    assert calling.cancelled == [["a", "b"]]
    assert calling.step.running == 0
    assert not calling.step.busy


def test_what_a_call_gives_after_it_was_cancelled_counts_no_more() -> None:
    calling = step(timeout=1000, on_error=Drop()).push("a", "b")
    [call] = calling.under_way
    calling.clock(1000)

    calling.step.returned(call, [1, 2])

    assert calling.step.running == 0
    assert calling.new_values() == []


def test_a_record_whose_time_is_up_leaves_the_call_to_the_others() -> None:
    def until(value: tuple[str, int]) -> int:
        return value[1]

    calling = step(deadline=until, on_error=Drop(), order=CallOrder.UNORDERED)
    calling.push(("a", 100), ("b", 900)).clock(100)
    assert (calling.cancelled, calling.step.running) == ([], 1)

    calling.returns([("a", 100), ("b", 900)], [1, 2])

    assert calling.new_values() == [2]
    assert (calling.step.running, calling.calls.timeouts) == (0, 1)


def test_a_record_whose_deadline_had_passed_is_in_no_call() -> None:
    def until(value: tuple[str, int]) -> int:
        return value[1]

    calling = step(3, deadline=until, on_error=Drop()).push(("a", 40), ("b", 900)).clock(50)

    assert calling.asked == [[("b", 900)]]
    assert calling.calls.dropped == 1


def test_a_group_of_which_nobody_is_left_is_not_called_for() -> None:
    calling = step(2, deadline=int, on_error=Drop(), capacity=1).push(900, 900, 5, 5, 800, 800)

    calling.clock(10).returns([900, 900], [1, 1])

    assert calling.asked == [[800, 800]]
    assert calling.calls.dropped == 2


def test_the_time_of_a_record_that_waits_to_be_called_for_again_goes_on() -> None:
    retry = Retry(attempts=9, delay=Retry().delay)
    calling = step(3, 500, timeout=300, retry=retry, on_error=Drop()).push("a", "b", "c")
    calling.returns(["a", "b", "c"], [OSError(), 2, 3]).clock(100)
    assert calling.asked == []

    calling.clock(300)

    assert (calling.new_values(), calling.asked, calling.cancelled) == ([2, 3], [], [])
    assert calling.step.running == 0
    assert calling.clock(10_000).asked == []


# ---------------------------------------------------------------------------------------------------- checkpoints


def test_records_in_line_and_in_calls_are_in_the_snapshot_one_by_one() -> None:
    calling = step(2).push("a", "b", "c", at=[1, 2, 3])
    calling.idle()

    settings = CallSettings(call=unused, groups=GroupSize(3, 50))
    restored = CallHarness(settings, restored=calling.step.snapshot())

    assert restored.asked == [["a", "b", "c"]]
    assert restored.returns(["a", "b", "c"], [1, 2, 3]).batches() == [Batch([1, 2, 3], [1, 2, 3])]


def test_restored_records_wait_for_company_no_longer_than_others() -> None:
    calling = step(2).push("a")

    settings = CallSettings(call=unused, groups=GroupSize(3, 50))
    restored = CallHarness(settings, restored=calling.step.snapshot(), now=1000)

    assert restored.asked == []
    assert restored.clock(1050).asked == [["a"]]


def test_an_idle_input_is_said_behind_the_records_before_it() -> None:
    calling = step(2).push("a")
    calling.idle()

    calling.returns(["a"], [1])

    assert calling.batches() == [Batch([1]), IDLE]


# ------------------------------------------------------------------------------------- while there is no room


def test_records_whose_time_runs_are_called_for_again_without_the_others_while_the_step_is_held() -> (
    None
):
    calling = step(2, retry=Retry(delay=MS * 10), capacity=1).push("a", "b", "c", "d")
    calling.step.held = True
    calling.returns(["a", "b"], [10, ConnectionError("no")])
    assert calling.asked == []

    calling.clock(10)

    assert calling.asked == [["b"]]


def test_a_group_that_the_rate_has_kept_waiting_goes_while_the_step_is_held_if_it_was_begun() -> (
    None
):
    limit = RateLimit[str](1, timedelta(seconds=1))
    calling = step(2, retry=Retry(delay=MS * 10), rate=limit).push("a", "b")
    calling.raises(["a", "b"], ConnectionError("no")).clock(10)
    calling.step.held = True

    calling.clock(1000)

    assert calling.asked == [["a", "b"]]
