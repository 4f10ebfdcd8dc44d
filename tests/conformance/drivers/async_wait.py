"""async_wait.json: the queue of an asynchronous step, and the whole step, with the driver in place of its slots."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

from aflow.errors import OperatorError
from aflow.machines.calls.call import Call
from aflow.machines.calls.on_error import Fail, Fallback, OnError
from aflow.machines.calls.queues import CallQueue, OrderedCalls, UnorderedCalls
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder, CallResults, CallSettings
from aflow.model.elements import Watermark
from aflow.operators.calls.operator import AsyncOperator
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import At, OperatorHarness
from aflow.testing.harness import Element
from tests.conformance.driver import Driver, Outcome, number
from tests.conformance.scenarios import Json, UnknownWord

_QUEUES: Final[Mapping[str, Callable[[], CallQueue]]] = {
    "ordered": OrderedCalls,
    "unordered": UnorderedCalls,
}


class Queue(Driver):
    """A queue, and the step that puts into it: it asks whether there is room, since the queue refuses nothing.

    What it counts is what ``AsyncOperator.full`` counts, against the capacity of the scenario: records whose results
    have not left, and fences.
    """

    def __init__(self, *, mode: str, capacity: int) -> None:
        self._queue = _QUEUES[mode]()
        self._capacity = capacity
        #: Calls whose results have not left, by the name of their entry.
        self._calls: dict[str, Call] = {}

    def do_put(
        self,
        entry: str,
        value: object = None,
        ts: int | None = None,
        watermark: int | None = None,
    ) -> Outcome:
        if self.see_size() >= self._capacity:
            return {"accepted": False}
        if watermark is None:
            self._calls[entry] = Call(value, ts, None)
            self._queue.put([self._calls[entry]])
        else:
            self._queue.put_fence(Watermark(watermark))
        return {"accepted": True}

    def do_complete(self, entry: str, results: Sequence[object]) -> None:
        call = self._calls[entry]
        call.result = results
        self._queue.settle(call)

    def do_pop_completed(self) -> Outcome:
        out = [
            shown
            for one in self._queue.take()
            for shown in (self._left(one) if isinstance(one, list) else [_fence(one)])
        ]
        return {"returns": out}

    def see_size(self) -> int:
        return len(self._queue)

    def see_values_for_snapshot(self) -> list[Json]:
        """The elements of the queue, in order. Completes the calls to get at them, so it is the last check."""
        for call in self._calls.values():
            self.do_complete(
                next(name for name, one in self._calls.items() if one is call), [call.value]
            )
        shown: list[Json] = self.do_pop_completed()["returns"]  # type: ignore[assignment]
        return shown

    def see_empty(self) -> bool:
        return self.see_size() == 0

    def _left(self, run: Sequence[Call]) -> list[Json]:
        self._calls = {name: call for name, call in self._calls.items() if call not in run}
        return [{"value": result, "ts": call.timestamp} for call in run for result in call.result]


Record = tuple[int, int]
"""The value that was called for, and a result."""

When: TypeAlias = str | int
"""``at once``, ``later`` (when the step has nothing else to do), ``released``, ``by hand``, ``never``, or after so
many ms."""


@dataclass(frozen=True)
class Behaviour:
    """The function of a scenario."""

    when: When
    results: Callable[[int], Sequence[int]] | None = None
    """None: it fails."""
    first_run: When | None = None
    """Time of completion before a restore, if different."""
    on_timeout: OnError[Any] | None = None
    """The result of a record that timed out, if the function's description has one."""
    restored_capacity: int | None = None
    """The capacity after a restore, if that is different."""


def _same(value: int) -> Sequence[int]:
    return [value]


def _double(value: int) -> Sequence[int]:
    return [2 * value]


def _double_if_even(value: int) -> Sequence[int]:
    return [] if value % 2 else [2 * value]


#: The result of a record whose timeout only sets a flag.
_TIMED_OUT: Final = -999

_EVERY_3_MS: Final = "x odd: completes with [] ; x even: [2*x]; each after about 3 ms"

_FUNCTIONS: Final[Mapping[str, Behaviour]] = {
    "completes on a pool with [2*x]": Behaviour("later", _double),
    "stays incomplete until released, then [x]": Behaviour("released", _same),
    "completes exceptionally immediately": Behaviour("at once"),
    "never completes": Behaviour("never"),
    "first run incomplete; restored run completes immediately with [x]": Behaviour(
        "at once", _same, first_run="never"
    ),
    "hands its result handles to the test": Behaviour("by hand"),
    "first run: stays incomplete until released; restored run: [2*x], capacity 6": Behaviour(
        "at once", _double, first_run="released", restored_capacity=6
    ),
    "completes with [x] when triggered, on_timeout sets a flag": Behaviour(
        "by hand", on_timeout=Fallback(lambda value, error: [(value, _TIMED_OUT)])
    ),
    "fails after 501 ms on each attempt; on_timeout completes with [-1]": Behaviour(
        501, on_timeout=Fallback(lambda value, error: [(value, -1)])
    ),
    _EVERY_3_MS: Behaviour(3, _double_if_even),
    # A coroutine returns once, so who awaits one cannot be told ten times; a future would refuse it.
    f"{_EVERY_3_MS} ; and the odd case calls complete ten times": Behaviour(3, _double_if_even),
    "[x]": Behaviour("at once", _same),
}

_ORDERS: Final = {
    "ordered": CallOrder.ORDERED,
    "unordered": CallOrder.UNORDERED,
    "keyed_ordered": CallOrder.BY_KEY,
}

_RETRIES: Final[Mapping[str | None, Retry | None]] = {
    None: None,
    "fixed delay on exception, limited attempts": Retry(
        attempts=3, delay=timedelta(milliseconds=10)
    ),
    "fixed delay on empty result, limited attempts": Retry(
        attempts=3, delay=timedelta(milliseconds=10), on_result=lambda results: not results
    ),
    "fixed delay 100 ms, at most 5 attempts, on any exception": Retry(
        attempts=5, delay=timedelta(milliseconds=100)
    ),
}

_TIMEOUTS: Final[Mapping[str, OnError[Any]]] = {
    "default (raise timeout)": Fail(),
    "complete with [3*x]": Fallback(lambda value, error: [(value, 3 * value)]),
}

#: After so many ms without anything to come, a step that has not ended never will.
_LONG: Final = 10_000


class Operator(Driver):
    """One asynchronous step. The calls that it makes end as the scenario's function says."""

    def __init__(
        self,
        *,
        mode: str,
        capacity: int,
        function: str,
        timeout_ms: int | None = None,
        retry: str | None = None,
        on_timeout: str = "default (raise timeout)",
        key: str | None = None,
    ) -> None:
        if key not in (None, "the value"):
            raise UnknownWord(f"key {key!r}")
        if function not in _FUNCTIONS or retry not in _RETRIES or on_timeout not in _TIMEOUTS:
            raise UnknownWord(f"{function!r}, {retry!r} or {on_timeout!r}")
        self._keyed = key is not None
        self._function = _FUNCTIONS[function]
        self._settings = CallSettings(
            call=_not_awaited,
            capacity=capacity,
            order=_ORDERS[mode],
            results=CallResults.MANY,
            timeout=timeout_ms,
            retry=_RETRIES[retry],
            on_error=self._function.on_timeout or _TIMEOUTS[on_timeout],
        )
        self._snapshots: dict[str, OperatorSnapshot | None] = {}
        self._failure: OperatorError | None = None
        self._terminated = False
        self._restored = False
        self._begin()

    def _begin(self) -> None:
        self._step = OperatorHarness[int, Record](
            lambda: AsyncOperator(self._settings),
            key=(lambda value: value) if self._keyed else None,
        )
        #: Calls under way, with the moment at which each began.
        self._under_way: dict[Call, int] = {}
        #: Number of calls for each value.
        self._attempts: Counter[int] = Counter()
        self._released = False
        self._has_out = False
        operator = self._operator
        operator.on_settled = self._settled
        operator.on_cancel = self._cancelled

    @property
    def _operator(self) -> AsyncOperator:
        operator = self._step.operator
        assert isinstance(operator, AsyncOperator)
        return operator

    # ------------------------------------------------------------------------------------------- steps

    def do_element(self, value: int, ts: int | None = None) -> None:
        while self._operator.full:
            assert self._complete_one(), "the step is full, and nothing completes"
            self._work()
        self._step.push(value, ts)
        self._work()

    def do_element_blocked_on_full_queue(self, value: int, ts: int) -> None:
        """As many calls as may be are under way; the step holds the record, as it has room for twice as many."""
        assert self._operator.running == self._settings.capacity
        self._step.push(value, ts)
        self._work()

    def do_watermark(self, at: int | str) -> None:
        self._step.watermark(number(at))
        self._work()

    def do_advance_processing_time(self, to: int) -> None:
        self._step.advance_processing_time(to)
        self._work()

    def do_release(self, yes: bool) -> None:
        assert yes
        self._released = True
        self._work()

    def do_complete(self, element: int, results: Sequence[int]) -> None:
        (call,) = [call for call in self._under_way if call.value == element]
        self._return(call, results)
        self._work()

    def do_complete_from_other_thread_but_do_not_run_mailbox(self, yes: bool) -> None:
        """A slot has the result; the mail that emits it has not run."""
        assert yes
        (call,) = self._under_way
        self._return(call, [call.value])

    def do_wait_until_timeout_timer_time_passed(self, yes: bool) -> None:
        assert yes
        assert self._settings.timeout is not None
        self._step.advance_processing_time(timedelta(milliseconds=self._settings.timeout))

    def do_run_mailbox(self, yes: bool) -> None:
        assert yes
        assert not self._step.output, "the mail ran before"
        self._work()

    def do_snapshot(self, name: str) -> None:
        self._snapshots[name] = self._step.snapshot()

    def do_restore(self, name: str) -> None:
        snapshot = self._snapshots[name]
        assert snapshot is not None
        self._restored = True
        if self._function.restored_capacity is not None:
            self._settings = replace(self._settings, capacity=self._function.restored_capacity)
        self._begin()
        self._step.restore(snapshot)
        self._work()

    def do_end_input(self, yes: bool) -> None:
        """The step ends once all that it was given has left, or it has failed; its clock goes on meanwhile."""
        assert yes
        self._wait(lambda: not self._operator.busy)
        if self._failure is None:
            self._operator.end_input()
        self._terminated = True

    def do_release_and_end_first_run(self, yes: bool) -> None:
        self.do_release(yes)
        self.do_end_input(yes)

    def do_finish_processing(self, yes: bool) -> None:
        assert yes
        assert not self._operator.busy, "to drain would have to wait"
        self._operator.end_input()

    def do_wait_for_outputs(self, count: int) -> None:
        self._wait(lambda: len(self._step.output) >= count)

    def _wait(self, over: Callable[[], bool]) -> None:
        waited = 0
        while not over() and self._failure is None:
            if not self._complete_one():
                assert waited < _LONG, "the step waits for ever"
                waited += 1
                self._step.advance_processing_time(timedelta(milliseconds=1))
            self._work()

    # -------------------------------------------------------------------------------------- as the slots

    def _settled(self) -> None:
        self._has_out = True

    def _cancelled(self, call: Call) -> None:
        del self._under_way[call]

    def _work(self) -> None:
        """Make calls, end those whose time has come, and emit, until there is nothing of that to be done."""
        while self._failure is None and (self._take() or self._emit()):
            pass

    def _take(self) -> bool:
        begun = list(iter(self._operator.take, None))
        self._under_way |= dict.fromkeys(begun, self._step.now)
        self._attempts.update(call.value for call in begun)
        ended = [call for call in self._under_way if self._ends(call)]
        for call in ended:
            self._end(call)
        return bool(begun or ended)

    def _emit(self) -> bool:
        if not self._has_out:
            return False
        self._has_out = False
        try:
            self._operator.emit()
        except OperatorError as exc:
            self._failure = exc
        return True

    def _ends(self, call: Call) -> bool:
        match self._when:
            case "at once":
                return True
            case "released":
                return self._released
            case int(millis):
                return self._step.now >= self._under_way[call] + millis
            case _:
                return False

    def _complete_one(self) -> bool:
        """End the call that began last, which is the worst order there is; False if none ends by itself."""
        if self._when != "later" or not self._under_way:
            return False
        self._end(next(reversed(self._under_way)))
        return True

    @property
    def _when(self) -> When:
        first = self._function.first_run
        return self._function.when if first is None or self._restored else first

    def _end(self, call: Call) -> None:
        if self._function.results is not None:
            self._return(call, self._function.results(call.value))
            return
        del self._under_way[call]
        self._operator.raised(call, RuntimeError("the function failed"))

    def _return(self, call: Call, results: Sequence[int]) -> None:
        del self._under_way[call]
        self._operator.returned(call, [(call.value, result) for result in results])

    # ------------------------------------------------------------------------------------------- facts

    def see_output(self) -> list[Json]:
        return [_shown(element) for element in self._step.output]

    def see_output_segments(self, expected: list[Json]) -> object:
        groups: list[Json] = []
        for shown in self.see_output():
            if "watermark" in shown:
                groups.append(shown)
            elif groups and "any_order" in groups[-1]:
                groups[-1]["any_order"].append(shown)
            else:
                groups.append({"any_order": [shown]})
        same = [_sorted(group) for group in groups] == [_sorted(group) for group in expected]
        return expected if same else groups

    def see_per_key_order(self, expected: Mapping[str, object]) -> Mapping[str, object]:
        return {key: self._of_key(int(key)) for key in expected}

    def see_external_failure(self, expected: str | None) -> str | None:
        match self._failure:
            case None:
                return None
            case OperatorError(__cause__=TimeoutError()):
                return "timeout"
            case _:
                return expected if expected == "present" else repr(self._failure)

    def see_output_values(self) -> list[object]:
        return [shown["value"] for shown in self.see_output()]

    def see_timeout_called(self) -> bool:
        return any(result == _TIMED_OUT for result in self.see_output_values())

    def see_attempts_per_element(self) -> int:
        return max(self._attempts.values())

    def see_terminates(self) -> bool:
        return self._terminated

    def see_active_timers(self) -> int:
        return self._step.size.processing_timers

    def see_in_flight(self) -> int:
        return self._operator.running

    def see_blocked_by_key(self) -> int:
        """Records that are neither under way nor could be."""
        return self._step.size.entries - self._operator.running - self._operator.waiting

    def _of_key(self, key: int) -> list[Json]:
        return [
            _shown(element)
            for element in self._step.output
            if isinstance(element, At) and element.value[0] == key
        ]


def _shown(element: Element[Record]) -> Json:
    if not isinstance(element, At):
        return _fence(element)
    _, result = element.value
    ts = {} if element.timestamp is None else {"ts": element.timestamp}
    return {"value": result, **ts}


def _fence(fence: object) -> Json:
    assert isinstance(fence, Watermark)
    return {"watermark": fence.timestamp}


def _sorted(group: Json) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in group.get("any_order", [group]))


async def _not_awaited(value: int) -> Sequence[int]:
    raise AssertionError("the driver makes the calls")
