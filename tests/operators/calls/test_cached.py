"""Steps that call once for records with equal cache keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall, Fallback
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder, CallResults, CallSettings
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.model.tags import Tag
from tests.operators.calls.harness import CallHarness, unused


def step(cache: Cache[Any, Any] | None = None, **settings: Any) -> CallHarness:
    """By default with a cache without bounds that matter."""
    return CallHarness(CallSettings(call=unused, cache=cache or Cache(100), **settings))


class NotFoundError(Exception):
    """The wanted object does not exist."""


# ----------------------------------------------------------------------------------------------- hits and misses


def test_a_result_that_is_kept_leaves_without_a_call() -> None:
    calling = step().push("a").returns("a", 1)
    assert calling.new_values() == [1]

    calling.push("a", at=[7])

    assert calling.asked == []
    assert calling.batches() == [Batch([1], [7])]
    assert (calling.calls.cache_hits, calling.calls.cache_misses, calling.calls.calls) == (1, 1, 1)


def test_what_is_kept_is_found_by_the_key_of_a_value() -> None:
    def city(value: tuple[str, int]) -> str:
        return value[0]

    calling = step(Cache(100, key=city)).push(("Oslo", 1)).returns(("Oslo", 1), "rain")

    calling.push(("Oslo", 2))

    assert calling.new_values() == ["rain", "rain"]


def test_a_result_that_is_too_old_is_asked_for_again() -> None:
    calling = step(Cache(100, ttl=timedelta(seconds=1))).push("a").returns("a", 1).clock(1000)

    calling.push("a")

    assert calling.asked == ["a"]


def test_hits_wait_in_the_order_of_the_stream_where_that_is_promised() -> None:
    calling = step().push("a").returns("a", 1)
    calling.new_values()

    calling.push("b", "a")
    before = calling.new_values()
    calling.returns("b", 2)

    assert (before, calling.new_values()) == ([], [2, 1])


def test_hits_overtake_calls_but_no_watermark_where_order_is_not_promised() -> None:
    calling = step(order=CallOrder.UNORDERED).push("a").returns("a", 1)
    calling.new_values()

    calling.push("b", "a").watermark(5).push("a")
    before = calling.batches()
    calling.returns("b", 2)

    assert before == [Batch([1])]
    assert calling.batches() == [Batch([2]), Watermark(5), Batch([1])]


def test_a_hit_gives_the_turn_to_the_next_record_of_its_key() -> None:
    calling = step(order=CallOrder.BY_KEY).push("a", keys=["k"]).returns("a", 1)
    calling.new_values()

    calling.push("b", "a", "c", keys=["k", "k", "k"]).returns("b", 2)

    assert calling.new_values() == [2, 1]
    assert calling.asked == ["c"]


def test_any_number_of_hits_of_a_key_are_no_recursion() -> None:
    calling = step(order=CallOrder.BY_KEY, capacity=5000)
    calling.push(*["a"] * 5000, keys=["k"] * 5000)

    calling.returns("a", 1)

    assert calling.new_values() == [1] * 5000
    assert calling.calls.cache_hits == 4999


def test_hits_are_found_while_every_slot_is_busy() -> None:
    calling = step(capacity=1, order=CallOrder.UNORDERED).push("a").returns("a", 1)
    calling.new_values()

    calling.push("slow", "a")

    assert calling.new_values() == [1]


def test_what_leaves_for_a_hit_is_made_of_its_own_value() -> None:
    def together(value: str, result: int) -> tuple[str, int]:
        return value, result

    calling = step(Cache(9, key=str.lower), into=together).push("a").returns("a", 1).push("A")

    assert calling.new_values() == [("a", 1), ("A", 1)]


def test_hits_of_a_filter_and_of_a_flat_map_are_hits() -> None:
    keeping = step(results=CallResults.KEEP).push("a").returns("a", True).push("a")
    many = step(results=CallResults.MANY).push("a").returns("a", iter([1, 2])).push("a")

    assert keeping.new_values() == ["a", "a"]
    assert many.new_values() == [1, 2, 1, 2]


# ------------------------------------------------------------------------------------- one call for equal keys


def test_records_whose_key_is_being_called_for_get_the_result_of_that_call() -> None:
    calling = step().push("a", "b", "a").push("a")
    assert calling.asked == ["a", "b"]

    calling.returns("a", 1).returns("b", 2)

    assert calling.new_values() == [1, 2, 1, 1]
    assert (calling.calls.merged, calling.calls.cache_misses, calling.calls.cache_hits) == (2, 2, 0)


def test_records_share_a_call_even_if_its_result_is_not_kept() -> None:
    calling = step(Cache(9, negative_ttl=timedelta(0))).push("a", "a").returns("a", None)

    calling.push("a")

    assert calling.new_values() == [None, None]
    assert calling.asked == ["a"]


def test_those_that_share_a_call_wait_for_its_retries() -> None:
    calling = step(retry=Retry(attempts=2, delay=timedelta(seconds=1))).push("a", "a")

    calling.raises("a", ConnectionError()).push("a")
    while_it_waits = calling.asked
    calling.clock(1000).returns("a", 1)

    assert while_it_waits == []
    assert calling.new_values() == [1, 1, 1]
    assert (calling.calls.calls, calling.calls.cache_misses, calling.calls.merged) == (2, 1, 2)


def test_a_failure_for_good_is_that_of_each_record_and_each_has_its_own_policy() -> None:
    def instead(value: tuple[str, int], error: BaseException) -> str:
        return f"{value[1]}: {error}"

    calling = step(Cache(9, key=lambda value: value[0]), on_error=Fallback(instead))
    calling.push(("a", 1), ("a", 2)).raises(("a", 1), ConnectionError("down"))

    assert calling.new_values() == ["1: down", "2: down"]
    assert calling.calls.fallbacks == 2


def test_what_takes_the_place_of_a_failure_is_not_kept() -> None:
    calling = step(on_error=Fallback(lambda value, error: 0)).push("a").raises("a", OSError())

    calling.push("a")

    assert calling.asked == ["a"]


def test_a_failure_fails_the_job_once_for_all_records_that_share_it() -> None:
    calling = step().push("a", "a")

    with pytest.raises(OperatorError, match=r"failed on record 'a': OSError: down"):
        calling.raises("a", OSError("down"))


def test_the_next_record_of_a_key_calls_again_after_a_failure() -> None:
    calling = step(order=CallOrder.BY_KEY, on_error=Drop()).push("a", "a", keys=["k", "k"])

    calling.raises("a", OSError()).returns("a", 1)

    assert calling.new_values() == [1]
    assert calling.calls.dropped == 1


def test_errors_that_say_that_there_is_nothing_are_kept() -> None:
    tag = Tag[FailedCall[str]]("failed")
    calling = step(Cache(9, errors=NotFoundError), on_error=DeadLetter(tag))
    calling.push("a", "a").raises("a", NotFoundError("no a"))

    calling.push("a")

    assert calling.asked == []
    assert calling.side_values("failed") == [
        FailedCall("a", "NotFoundError", "no a", 1),
        FailedCall("a", "NotFoundError", "no a", 1),
        FailedCall("a", "NotFoundError", "no a", 0),
    ]
    assert calling.calls.cache_hits == 1


def test_the_policy_sees_where_an_error_was_raised_and_the_cache_does_not_hold_it() -> None:
    seen: list[object] = []
    error = NotFoundError("a")
    try:
        raise error
    except NotFoundError:
        assert error.__traceback__ is not None

    def instead(value: str, error: BaseException) -> None:
        seen.append(error.__traceback__)

    step(Cache(9, errors=NotFoundError), on_error=Fallback(instead)).push("a").raises("a", error)

    assert seen != [None]
    assert error.__traceback__ is None


# --------------------------------------------------------------------------------------------------- time is up


def test_a_leader_whose_time_alone_is_up_is_followed_by_the_oldest_that_waits() -> None:
    def until(value: tuple[str, int]) -> int:
        return value[1]

    calling = step(Cache(9, key=lambda value: value[0]), deadline=until, on_error=Drop())
    calling.push(("a", 100), ("a", 900), ("a", 800)).clock(100)

    assert calling.cancelled == [("a", 100)]
    assert calling.asked == [("a", 900)]
    calling.returns(("a", 900), 1)
    assert calling.new_values() == [1, 1]
    assert (calling.calls.dropped, calling.calls.cache_misses, calling.calls.merged) == (1, 2, 1)


def test_a_follower_whose_time_is_up_harms_nobody() -> None:
    def until(value: tuple[str, int]) -> int:
        return value[1]

    calling = step(Cache(9, key=lambda value: value[0]), deadline=until, on_error=Drop())
    calling.push(("a", 900), ("a", 100), ("a", 800)).clock(100)

    assert (calling.cancelled, calling.asked) == ([], [("a", 900)])
    calling.returns(("a", 900), 1)
    assert calling.new_values() == [1, 1]
    assert calling.calls.timeouts == 1


def test_the_time_of_a_follower_begins_with_the_call_that_it_waits_for() -> None:
    calling = step(capacity=1, timeout=1000, on_error=Drop()).push("slow", "a", "a")
    calling.clock(900).returns("slow", 0)

    calling.clock(1899)
    before = calling.calls.timeouts
    calling.clock(1900)

    assert (before, calling.calls.timeouts) == (0, 2)


def test_a_follower_that_comes_while_the_call_is_under_way_has_the_whole_time() -> None:
    calling = step(timeout=1000, on_error=Drop()).push("a").clock(600).push("a")

    calling.clock(1000)
    led = calling.asked
    calling.clock(1599)
    before = calling.calls.timeouts
    calling.clock(1600)

    assert led == ["a"]
    assert (before, calling.calls.timeouts) == (1, 2)
    assert calling.cancelled == ["a", "a"]


def test_a_follower_that_leads_gets_no_more_time() -> None:
    calling = step(timeout=1000, on_error=Drop()).push("a").clock(1).push("a", "a")

    calling.clock(1000).clock(1001)

    assert calling.calls.timeouts == 3
    assert calling.asked == []
    assert not calling.step.busy


def test_a_follower_whose_time_runs_leads_even_while_the_step_is_held_and_its_followers_have_a_time_too() -> (
    None
):
    def until(value: tuple[str, int]) -> int:
        return value[1]

    calling = step(
        Cache(9, key=lambda value: value[0]), deadline=until, on_error=Drop(), capacity=2
    )
    calling.push(("a", 100), ("slow", 5000)).push(("a", 3000))
    calling.step.held = True
    calling.clock(100).push(("a", 900))
    assert calling.asked == [("slow", 5000), ("a", 3000)]

    calling.clock(900)

    assert calling.calls.timeouts == 2
    assert ("a", 3000) not in calling.cancelled


def test_a_key_whose_calls_all_ran_out_of_time_is_free() -> None:
    calling = step(timeout=1000, on_error=Drop()).push("a", "a").clock(1000)

    calling.push("a")

    assert calling.asked == ["a"]


def test_a_leader_whose_deadline_had_passed_before_it_was_called_leaves_the_call_to_others() -> (
    None
):
    def until(value: tuple[str, int]) -> int:
        return value[1]

    calling = step(
        Cache(9, key=lambda value: value[0]), deadline=until, on_error=Drop(), capacity=1
    )
    calling.push(("slow", 5000), ("a", 100), ("a", 900)).clock(200).returns(("slow", 5000), 0)

    assert calling.asked == [("a", 900)]
    assert calling.new_values() == [0]


# -------------------------------------------------------------------------------------------------- what is wrong


def test_a_value_that_cannot_be_a_cache_key_is_named_with_what_to_do() -> None:
    calling = step()

    with pytest.raises(
        OperatorError, match=r"on record \['a'\]: TypeError: the cache key \['a'\] cannot be hashed"
    ):
        calling.push("fine", ["a"])


def test_a_function_for_the_key_that_raises_is_named_with_the_record() -> None:
    calling = step(Cache(9, key=lambda value: value["id"]))

    with pytest.raises(OperatorError, match=r"failed on record \{'x': 1\}: KeyError: 'id'"):
        calling.push({"x": 1})


def test_a_function_that_says_what_is_nothing_and_raises_fails_the_job() -> None:
    calling = step(Cache(9, negative=lambda result: result["found"]), on_error=Drop()).push("a")

    with pytest.raises(OperatorError, match=r"failed on record 'a': KeyError: 'found'"):
        calling.returns("a", {})


# -------------------------------------------------------------------------------------------------- checkpoints


def test_records_that_wait_for_the_call_of_another_are_in_the_snapshot() -> None:
    calling = step().push("a", "b", "a", at=[1, 2, 3])

    settings = CallSettings(call=unused, cache=Cache(100))
    restored = CallHarness(settings, restored=calling.step.snapshot())

    assert restored.asked == ["a", "b"]
    restored.returns("a", 1).returns("b", 2)
    assert restored.batches() == [Batch([1], [1]), Batch([2, 1], [2, 3])]


def test_hits_that_have_not_left_are_in_the_snapshot_with_their_results() -> None:
    calling = step().push("a").returns("a", 1).push("b", "a")

    settings = CallSettings(call=unused, cache=Cache(100))
    restored = CallHarness(settings, restored=calling.step.snapshot())

    assert restored.asked == ["b"]

    restored.returns("b", 2)

    assert restored.values == [2, 1]
