"""The scheduler with each combination of cache, groups, keys, limits, time and retries: rules that always hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.breaker import CircuitBreaker
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.call import NO_RESULT, Call
from aflow.machines.calls.groups import Group, GroupSize
from aflow.machines.calls.limits import StepLimits
from aflow.machines.calls.on_error import Drop, Fallback
from aflow.machines.calls.queues import CallQueue, OrderedCalls, UnorderedCalls
from aflow.machines.calls.rate import RateLimit, SharedBuckets
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.scheduler import CallScheduler
from aflow.machines.calls.settings import CallOrder, CallSettings
from aflow.model.elements import Watermark
from aflow.model.time import Timestamp

MS = timedelta(milliseconds=1)


def unused(value: Any) -> Any:
    raise AssertionError(f"called for {value!r}")


def modulo_7(value: int) -> int:
    return value % 7


class SchedulerRules(RuleBasedStateMachine):
    """One scheduler, its clock and the running calls, in a job that takes checkpoints, fails and is restored."""

    @initialize(
        order=st.sampled_from(CallOrder),
        cached=st.booleans(),
        groups=st.none() | st.builds(GroupSize, st.integers(1, 4), st.integers(0, 10)),
        rate=st.booleans(),
        breaker=st.booleans(),
        adaptive=st.booleans(),
        capacity=st.integers(1, 5),
        timeout=st.none() | st.integers(5, 60),
        attempt_timeout=st.none() | st.integers(1, 4),
        retry=st.none() | st.just(Retry(attempts=2, delay=5 * MS)),
        drops=st.booleans(),
    )
    def start(
        self,
        order: CallOrder,
        cached: bool,
        groups: GroupSize | None,
        rate: bool,
        breaker: bool,
        adaptive: bool,
        capacity: int,
        timeout: int | None,
        attempt_timeout: int | None,
        retry: Retry | None,
        drops: bool,
    ) -> None:
        self.settings = CallSettings(
            call=unused,
            order=order,
            capacity=capacity,
            adaptive=Adaptive(start=1, most=capacity) if adaptive else None,
            rate=RateLimit[Any](100, timedelta(seconds=1), burst=3) if rate else None,
            breaker=CircuitBreaker(calls=2, pause=20 * MS) if breaker else None,
            timeout=timeout,
            attempt_timeout=attempt_timeout,
            retry=retry,
            on_error=Drop() if drops else Fallback(lambda value, error: "failed"),
            cache=Cache[int, Any](5, ttl=30 * MS, key=modulo_7) if cached else None,
            groups=groups,
        )
        self.now: Timestamp = 0
        #: The input: records, which are their positions, and watermarks with theirs.
        self.source: list[int | Watermark] = []
        #: The number of elements that the scheduler has received.
        self.read = 0
        #: Emitted calls and watermarks.
        self.emitted: list[Call | Watermark] = []
        #: The elements in the queue, and the numbers of elements read and emitted.
        self.checkpoint: tuple[list[int | Watermark], int, int] = ([], 0, 0)
        self.start_scheduler()

    def start_scheduler(self) -> None:
        settings = self.settings
        limited = settings.rate or settings.breaker or settings.adaptive
        ordered = settings.order is CallOrder.ORDERED
        queue: CallQueue = OrderedCalls() if ordered else UnorderedCalls()
        self.scheduler = CallScheduler(
            settings, queue, limits=StepLimits(settings, SharedBuckets()) if limited else None
        )
        self.alarm: Timestamp | None = None
        self.running: list[Call] = []

    # ------------------------------------------------------------------------------------------ events

    @rule(records=st.integers(1, 6))
    def records_arrive(self, records: int) -> None:
        self.source += range(len(self.source), len(self.source) + records)
        self.read_on()

    @rule()
    def a_watermark_arrives(self) -> None:
        self.source.append(Watermark(len(self.source)))
        self.read_on()

    @rule()
    def a_checkpoint_is_taken(self) -> None:
        queue = self.scheduler.queue
        elements: list[int | Watermark] = [call.value for call in queue.calls]
        for number, (preceding, fence) in enumerate(queue.fences):
            assert isinstance(fence, Watermark)
            elements.insert(preceding + number, fence)
        self.checkpoint = elements, self.read, len(self.emitted)

    @rule()
    def the_job_fails_and_is_restored(self) -> None:
        elements, self.read, emitted = self.checkpoint
        del self.emitted[emitted:]
        self.start_scheduler()
        self.put(elements)
        self.read_on()

    def read_on(self) -> None:
        """Put the input up to each watermark while the scheduler takes more."""
        while self.read < len(self.source) and not self.scheduler.full:
            following = self.source[self.read :]
            fences = (at for at, one in enumerate(following, 1) if isinstance(one, Watermark))
            elements = following[: next(fences, len(following))]
            self.read += len(elements)
            self.put(elements)

    def put(self, elements: Sequence[int | Watermark]) -> None:
        for is_fence, several in groupby(elements, lambda one: isinstance(one, Watermark)):
            self.advance()
            if is_fence:
                for fence in several:
                    assert isinstance(fence, Watermark)
                    self.scheduler.queue.put_fence(fence)
            else:
                self.scheduler.put([self.call_for(one) for one in several])
            self.act()

    def call_for(self, value: Any) -> Call:
        by_key = self.settings.order is CallOrder.BY_KEY
        call = Call(value, value, value % 3 if by_key else None)
        call.cache_key = modulo_7(value) if self.settings.cache else None
        return call

    @rule()
    def slots_take_calls(self) -> None:
        for _ in range(20):
            self.advance()
            if (call := self.scheduler.take()) is not None:
                self.running.append(call)
            self.act()
            if call is None and not self.scheduler.waiting:
                return

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(["result", "error", "error in a group"]))
    def a_call_ends(self, data: st.DataObject, outcome: str) -> None:
        self.end(data.draw(st.sampled_from(self.running)), outcome)

    def end(self, call: Call, outcome: str) -> None:
        self.running.remove(call)
        self.advance()
        if outcome == "error":
            self.scheduler.raised(call, ConnectionError())
        elif isinstance(call, Group):
            results: list[object] = [f"result of {value}" for value in call.value]
            if outcome == "error in a group":
                results[0] = ConnectionError()
            self.scheduler.returned(call, results)
        else:
            self.scheduler.returned(call, f"result of {call.value}")
        self.act()

    @rule(millis=st.integers(1, 15))
    def time_passes(self, millis: int) -> None:
        until = self.now + millis
        while self.alarm is not None and self.alarm <= until:
            self.now, self.alarm = max(self.now, self.alarm), None
            self.advance()
            self.scheduler.on_time()
            self.act()
        self.now = until

    @rule()
    def room_downstream_ends(self) -> None:
        self.scheduler.blocked = True

    @rule()
    def there_is_room_again(self) -> None:
        self.scheduler.unblock()
        self.act()

    @rule(quiet=st.booleans())
    def the_input_pauses_or_goes_on(self, quiet: bool) -> None:
        self.scheduler.on_quiet(quiet)
        self.act()

    def advance(self) -> None:
        self.scheduler.advance(self.now, self.now / 1000)

    def act(self) -> None:
        """Carry out the instructions."""
        instructions = self.scheduler.instructions
        for call in instructions.cancelled:
            self.running.remove(call)
        instructions.cancelled.clear()
        if instructions.wake_at is not None:
            self.alarm = min(self.alarm or instructions.wake_at, instructions.wake_at)
            instructions.wake_at = None
        instructions.wakes = instructions.makes_room = False
        self.scheduler.settle_completed()
        for one in self.scheduler.queue.take():
            if isinstance(one, list):
                self.emitted += one
            else:
                assert isinstance(one, Watermark)
                self.emitted.append(one)

    # ------------------------------------------------------------------------------------------- rules

    @invariant()
    def running_calls_are_those_that_slots_have_and_fit_the_capacity(self) -> None:
        if hasattr(self, "scheduler"):
            assert self.scheduler.running == len(self.running) <= self.settings.capacity

    @invariant()
    def no_failure_is_invented(self) -> None:
        if hasattr(self, "scheduler"):
            assert self.scheduler.instructions.failure is None

    @invariant()
    def one_call_runs_for_each_key_and_each_cache_key(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        records = [one for call in self.running for one in self.records(call) if not one.done]
        if self.settings.order is CallOrder.BY_KEY:
            assert max(Counter(one.key for one in records).values(), default=1) == 1
        if self.settings.cache is not None:
            assert max(Counter(modulo_7(one.value) for one in records).values(), default=1) == 1

    @invariant()
    def groups_are_not_too_large(self) -> None:
        if hasattr(self, "scheduler") and self.settings.groups is not None:
            size = self.settings.groups.size
            assert all(1 <= len(call.value) <= size for call in self.running)

    @invariant()
    def calls_that_wait_will_start(self) -> None:
        if not hasattr(self, "scheduler") or not self.scheduler.queue.calls:
            return
        self.advance()
        waits = self.scheduler.blocked or self.alarm is not None
        assert self.running or self.scheduler.waiting or waits, "no call runs, and no time is set"

    def records(self, call: Call) -> list[Call]:
        return call.company if isinstance(call, Group) else [call]

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.unblock()
        self.scheduler.on_quiet(True)
        for _ in range(2_000):
            self.read_on()
            self.slots_take_calls()
            if len(self.emitted) == len(self.source):
                break
            if self.running:
                self.end(self.running[0], "result")
            else:
                assert self.alarm is not None, "no call runs, and no time is set"
                self.time_passes(max(1, self.alarm - self.now))
        self.each_record_was_settled_once_in_order()

    def each_record_was_settled_once_in_order(self) -> None:
        numbers: list[int] = [
            one.timestamp if isinstance(one, Watermark) else one.value for one in self.emitted
        ]
        assert sorted(numbers) == list(range(len(self.source)))
        if self.settings.order is CallOrder.ORDERED:
            assert numbers == sorted(numbers)
        calls = [one for one in self.emitted if isinstance(one, Call)]
        for key in range(3 if self.settings.order is CallOrder.BY_KEY else 0):
            of_key = [call.value for call in calls if call.key == key]
            assert of_key == sorted(of_key)
        for at, one in enumerate(self.emitted):
            if isinstance(one, Watermark):  # it overtakes nothing, and nothing overtakes it
                assert set(numbers[:at]) == set(range(one.timestamp))
        for call in calls:
            if call.result is NO_RESULT or call.result == "failed":
                assert call.error is not None
            elif self.settings.cache is None:
                assert call.result == f"result of {call.value}"
            else:
                assert modulo_7(int(call.result.split()[-1])) == modulo_7(call.value)


TestSchedulerRules = SchedulerRules.TestCase
TestSchedulerRules.settings = hypothesis_settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
