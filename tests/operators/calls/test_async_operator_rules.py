"""Whatever comes in, completes, fails, runs out of time or is restarted: what holds for all asynchronous steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall, Fallback, OnError
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder, CallResults
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.tags import Tag
from aflow.testing import At, Mode
from tests.operators.calls.harness import CallHarness

RETRY = Retry(attempts=3, delay=timedelta(milliseconds=4))
FAILED = Tag[FailedCall[int]]("failed")

Fence = Watermark | Idle | Active


@dataclass(frozen=True)
class Record:
    """An input, and its place in the stream."""

    index: int
    value: int
    timestamp: int | None

    @property
    def key(self) -> int:
        return key_of(self.value)


def key_of(value: int) -> int:
    return value % 3


def result_of(value: int, results: CallResults) -> Any:
    match results:
        case CallResults.ONE:
            return ("result", value)
        case CallResults.MANY:
            return [("result", value)] * (value % 4)
        case CallResults.KEEP:
            return value % 2 == 0


def fallback_for(results: CallResults) -> Fallback[int]:
    match results:
        case CallResults.ONE:
            return Fallback(lambda value, error: ("instead", value))
        case CallResults.MANY:
            return Fallback(lambda value, error: (("instead", value),))
        case CallResults.KEEP:
            return Fallback(lambda value, error: True)


class StepRules(RuleBasedStateMachine):
    """Against the list of all that came in and has not left."""

    @initialize(
        order=st.sampled_from(CallOrder),
        results=st.sampled_from(CallResults),
        mode=st.sampled_from([Mode.STRAIGHT, *Mode]),
        capacity=st.integers(1, 6),
        timeout=st.none() | st.just(10),
        retry=st.sampled_from([None, None, RETRY]),
        policy=st.sampled_from(["drop", "dead letter", "fallback"]),
    )
    def begin(
        self,
        order: CallOrder,
        results: CallResults,
        mode: Mode,
        capacity: int,
        timeout: int | None,
        retry: Retry | None,
        policy: str,
    ) -> None:
        on_error: dict[str, OnError[int]] = {
            "drop": Drop(),
            "dead letter": DeadLetter(FAILED),
            "fallback": fallback_for(results),
        }
        self.order, self.results, self.capacity, self.policy = order, results, capacity, policy
        self.timed = timeout is not None
        self.index = 0
        self.watermark = 0
        #: Records by value, all that ever came.
        self.records: dict[int, Record] = {}
        #: Fences that have not left, with their places.
        self.fences: list[tuple[int, Fence]] = []
        #: Emitted results of each value.
        self.left: dict[int, list[Any]] = {}
        #: The last place of anything that left: of a fence, of a record, and of a record of each key.
        self.last_fence = self.last_record = -1
        self.last_of_key: dict[int, int] = {}
        #: Values whose calls have failed at least once.
        self.failed: set[int] = set()
        #: Values whose calls returned: they are not called for again, whatever is restarted.
        self.answered: set[int] = set()
        #: The options on which it depends what a snapshot has to contain.
        self.stored_with: dict[str, Any] = {"results": results, "on_error": on_error[policy]}
        self.step = CallHarness(
            key=key_of if order is CallOrder.BY_KEY else None,
            mode=mode,
            order=order,
            capacity=capacity,
            timeout=timeout,
            retry=retry,
            **self.stored_with,
        )
        self.step.on_replaced = self.restarted

    # ------------------------------------------------------------------------------------ what happens

    @rule(count=st.integers(1, 3), timed=st.booleans())
    def push(self, count: int, timed: bool) -> None:
        values = [len(self.records) + one for one in range(count)]
        times = [self.watermark + value % 5 for value in values] if timed else None
        for at, value in enumerate(values):
            self.records[value] = Record(self.place(), value, None if times is None else times[at])
        self.step.push(*values, at=times)
        self.look()

    @rule(by=st.integers(1, 3))
    def move_watermark(self, by: int) -> None:
        self.watermark += by
        self.fences.append((self.place(), Watermark(self.watermark)))
        self.step.watermark(self.watermark)
        self.look()

    @rule()
    def fall_idle_and_wake(self) -> None:
        for fence, say in ((IDLE, self.step.idle), (ACTIVE, self.step.active)):
            self.fences.append((self.place(), fence))
            say()
            self.look()

    @precondition(lambda self: self.step.under_way)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        self.give_result(data.draw(st.sampled_from(self.step.asked)))

    @precondition(lambda self: self.step.under_way)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        value = data.draw(st.sampled_from(self.step.asked))
        self.failed.add(value)
        self.step.raises(value, RuntimeError(f"no answer for {value}"))
        self.look()

    @rule(by=st.integers(1, 12))
    def let_time_pass(self, by: int) -> None:
        self.step.advance_processing_time(timedelta(milliseconds=by))
        self.look()

    @rule()
    def restart(self) -> None:
        stored = self.values_to_call()
        settled = [call.value for call in self.step.step.scheduler.queue.calls if call.has_outcome]
        self.step.restart()

        first = stored if self.order is not CallOrder.BY_KEY else first_of_keys(stored)
        assert stored == sorted(stored)
        assert not set(settled).intersection(self.step.asked), "a settled call was made again"
        assert self.step.asked == first[: self.capacity]
        self.look()

    def teardown(self) -> None:
        if not hasattr(self, "step"):
            return
        steps = 0
        while self.step.step.busy:
            steps += 1
            assert steps < 500, "the step never comes to an end"
            if self.step.under_way:
                self.give_result(max(self.step.asked))
            else:
                self.step.advance_processing_time(timedelta(milliseconds=1))
                self.look()
        assert self.fences == [], "fences were lost"
        for record in self.records.values():
            self.check_all_has_left(record)

    def place(self) -> int:
        self.index += 1
        return self.index

    def give_result(self, value: int) -> None:
        self.answered.add(value)
        self.step.returns(value, result_of(value, self.results))
        self.look()

    def values_to_call(self) -> list[int]:
        """The records in a snapshot without results, as a step with room for all of them calls for them."""
        snapshot = self.step.snapshot()
        assert snapshot is not None
        reader = CallHarness(order=CallOrder.UNORDERED, capacity=1000, **self.stored_with)
        reader.restore(snapshot)
        return reader.asked

    # ----------------------------------------------------------------------------------- what must hold

    def look(self) -> None:
        """Check what has left since the last time."""
        for element in self.step.take():
            if isinstance(element, At):
                self.record_left(element)
            else:
                self.fence_left(element)

    def record_left(self, element: At[Any]) -> None:
        result = element.value
        value: int = result if self.results is CallResults.KEEP else result[1]
        record = self.records[value]
        self.left.setdefault(value, []).append(result)
        assert element.timestamp == record.timestamp
        assert record.index > self.last_fence, "left behind a fence that came later"
        assert all(place > record.index for place, _ in self.fences), "overtook a fence"
        if self.order is CallOrder.ORDERED:
            assert record.index >= self.last_record, "overtook a record"
        if self.order is CallOrder.BY_KEY:
            assert record.index >= self.last_of_key.get(record.key, -1), "overtook its key"
        self.last_record = max(self.last_record, record.index)
        self.last_of_key[record.key] = record.index

    def fence_left(self, fence: Fence) -> None:
        place, expected = self.fences.pop(0)
        assert fence == expected
        self.last_fence = place
        if self.order is CallOrder.ORDERED:
            assert place > self.last_record

    def restarted(self) -> None:
        """Watermarks that waited are stored; idleness is not: the restored channels tell it again."""
        self.look()
        self.fences = [one for one in self.fences if isinstance(one[1], Watermark)]

    def check_all_has_left(self, record: Record) -> None:
        value, left = record.value, self.left.get(record.value, [])
        dead = [one for one in self.step.side(FAILED) if one.value.value == value]
        assert len(dead) <= 1
        if dead:
            assert left == []
            assert dead[0].timestamp == record.timestamp
            assert value in self.failed or self.timed
            return
        assert left in self.may_leave(value)

    def may_leave(self, value: int) -> list[list[Any]]:
        """Return the possible outputs for a value without a dead letter: its results, or its fallback."""
        good, fallback = leaves_for(value, self.results)
        if not (value in self.failed or self.timed):
            return [good]
        match self.policy:
            case "drop":
                return [good, []]
            case "fallback":
                return [good, fallback]
            case _:
                return [good]

    @invariant()
    def calls_under_way_are_never_more_than_the_capacity(self) -> None:
        if hasattr(self, "step"):
            assert len(self.step.under_way) <= self.capacity
            assert self.step.step.running == len(self.step.under_way)

    @invariant()
    def no_call_that_returned_is_made_again(self) -> None:
        if hasattr(self, "step"):
            assert self.answered.isdisjoint(self.step.asked)

    @invariant()
    def keys_have_one_call_each(self) -> None:
        if hasattr(self, "step") and self.order is CallOrder.BY_KEY:
            keys = [key_of(value) for value in self.step.asked]
            assert len(keys) == len(set(keys))


def leaves_for(value: int, results: CallResults) -> tuple[list[Any], list[Any]]:
    """Return the outputs for the result of a value, and for its fallback."""
    result = result_of(value, results)
    match results:
        case CallResults.ONE:
            return [result], [("instead", value)]
        case CallResults.MANY:
            return result, [("instead", value)]
        case CallResults.KEEP:
            return [value] if result else [], [value]


def first_of_keys(values: list[int]) -> list[int]:
    keys = [key_of(value) for value in values]
    return [value for at, value in enumerate(values) if keys.index(keys[at]) == at]


StepRules.TestCase.settings = settings(deadline=None, max_examples=250, stateful_step_count=40)
TestAnyAsynchronousStep = StepRules.TestCase
