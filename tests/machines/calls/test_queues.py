"""In which order calls leave each queue, case by case; `test_queues_rules.py` says what holds for all cases."""

from __future__ import annotations

import pytest

from aflow.machines.calls.call import Call
from aflow.machines.calls.queues import CallQueue, KeyTurns, OrderedCalls, UnorderedCalls
from aflow.model.elements import ACTIVE, IDLE, Watermark


@pytest.fixture(params=[OrderedCalls, UnorderedCalls])
def queue(request: pytest.FixtureRequest) -> CallQueue:
    made: CallQueue = request.param()
    return made


def calls(*values: object) -> list[Call]:
    return [Call(value, None, None) for value in values]


def of_keys(*keys: object) -> list[Call]:
    return [Call(None, None, key) for key in keys]


def taken(queue: CallQueue) -> list[object]:
    """Return what may be emitted, runs as lists of values."""
    return [[call.value for call in one] if isinstance(one, list) else one for one in queue.take()]


def test_an_empty_queue_emits_nothing(queue: CallQueue) -> None:
    assert not queue.has_out
    assert queue.take() == []


def test_a_call_that_is_not_settled_remains(queue: CallQueue) -> None:
    queue.put(calls("a"))

    assert not queue.has_out
    assert queue.take() == []


def test_a_settled_call_is_done_and_emitted_once(queue: CallQueue) -> None:
    (call,) = calls("a")
    queue.put([call])

    queue.settle(call)

    assert call.done
    assert queue.has_out
    assert taken(queue) == [["a"]]
    assert taken(queue) == []


def test_ordered_calls_are_emitted_in_the_order_of_arrival_in_one_run() -> None:
    queue = OrderedCalls()
    a, b, c = put = calls(*"abc")
    queue.put(put)

    queue.settle(c)
    queue.settle(b)
    assert not queue.has_out
    queue.settle(a)

    assert taken(queue) == [["a", "b", "c"]]


def test_unordered_calls_are_emitted_in_the_order_of_completion() -> None:
    queue = UnorderedCalls()
    a, b, c = put = calls(*"abc")
    queue.put(put)

    queue.settle(c)
    queue.settle(a)
    assert taken(queue) == [["c", "a"]]
    queue.settle(b)

    assert taken(queue) == [["b"]]


def test_a_fence_waits_for_all_calls_before_it(queue: CallQueue) -> None:
    a, b = put = calls(*"ab")
    queue.put(put)
    queue.put_fence(Watermark(1))

    queue.settle(a)
    assert taken(queue) == [["a"]]
    queue.settle(b)

    assert taken(queue) == [["b"], Watermark(1)]


def test_a_settled_call_waits_for_the_fence_before_it(queue: CallQueue) -> None:
    a, b = calls(*"ab")
    queue.put([a])
    queue.put_fence(Watermark(1))
    queue.put([b])

    queue.settle(b)
    assert not queue.has_out
    assert taken(queue) == []
    queue.settle(a)

    assert taken(queue) == [["a"], Watermark(1), ["b"]]


def test_consecutive_fences_are_emitted_together_and_in_order(queue: CallQueue) -> None:
    (a,) = calls("a")
    queue.put([a])
    for fence in (Watermark(1), IDLE, ACTIVE, Watermark(2)):
        queue.put_fence(fence)

    queue.settle(a)

    assert taken(queue) == [["a"], Watermark(1), IDLE, ACTIVE, Watermark(2)]


def test_segments_without_an_open_call_are_emitted_together(queue: CallQueue) -> None:
    a, b, c = calls(*"abc")
    queue.put([a])
    queue.put_fence(Watermark(1))
    queue.put([b])
    queue.put_fence(Watermark(2))
    queue.put([c])

    queue.settle(b)
    queue.settle(a)

    assert taken(queue) == [["a"], Watermark(1), ["b"], Watermark(2)]


def test_a_fence_after_a_settled_call_is_taken_after_it(
    queue: CallQueue,
) -> None:
    (a,) = calls("a")
    queue.put([a])
    queue.settle(a)

    queue.put_fence(Watermark(1))

    assert taken(queue) == [["a"], Watermark(1)]


def test_a_fence_counts_until_it_has_left(queue: CallQueue) -> None:
    (a,) = calls("a")
    queue.put_fence(Watermark(1))
    queue.put([a])
    queue.put_fence(Watermark(2))
    counted = [len(queue)]

    for act in (queue.take, lambda: queue.settle(a), queue.take):
        act()
        counted.append(len(queue))

    assert counted == [3, 2, 2, 0]


def test_the_first_call_of_a_key_is_ready_at_once() -> None:
    a, b, again = put = of_keys("a", "b", "a")
    turns = KeyTurns()

    assert turns.admit(put) == [a, b]
    assert turns.blocked == 1
    assert turns.release("a") is again
    assert turns.blocked == 0


def test_a_key_without_open_calls_is_removed() -> None:
    (a,) = of_keys("a")
    (later,) = of_keys("a")
    turns = KeyTurns()
    turns.admit([a])

    assert turns.release("a") is None
    assert turns.admit([later]) == [later]


def test_keys_that_are_equal_share_their_turns() -> None:
    one, true, float_one = put = of_keys(1, True, 1.0)
    turns = KeyTurns()

    assert turns.admit(put) == [one]
    assert turns.release(1) is true
    assert turns.release(True) is float_one


def test_a_key_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        KeyTurns().admit(of_keys(["a", "list"]))


def test_a_result_that_is_there_follows_the_call_before_it_when_that_is_settled() -> None:
    """A call with a result counts as settled, and may be settled later again: as those of a snapshot are."""
    queue, (one, two) = OrderedCalls(), calls("one", "two")
    queue.put([one, two])
    two.result = 2

    queue.settle(one)
    first = taken(queue)
    queue.settle(two)

    assert first == [["one", "two"]]
    assert taken(queue) == []
