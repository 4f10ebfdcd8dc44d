"""Whatever comes, fails, takes too long and crashes: what holds for steps that call less often than records come."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import NamedTuple

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aflow.machines.calls.cache import Cache
from aflow.machines.calls.call import Call
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import Fallback
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder, CallSettings
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.state.snapshot import OperatorSnapshot
from tests.operators.calls.harness import CallHarness, unused


class Record(NamedTuple):
    number: int
    wanted: str
    """The cache key."""
    key: str


class Left(NamedTuple):
    record: Record
    result: str


FAILED = "failed"


def wanted(record: Record) -> str:
    return record[1]


def instead(record: Record, error: BaseException) -> str:
    return FAILED


class FewerCallsRules(RuleBasedStateMachine):
    """One step in a job that takes checkpoints, crashes, and reads again what came after the last of them."""

    @initialize(
        order=st.sampled_from(CallOrder),
        cache=st.none() | st.builds(timedelta, milliseconds=st.integers(1, 30)),
        groups=st.none() | st.builds(GroupSize, st.integers(1, 4), st.integers(0, 10)),
        capacity=st.integers(1, 4),
        timed=st.booleans(),
    )
    def begin(
        self,
        order: CallOrder,
        cache: timedelta | None,
        groups: GroupSize | None,
        capacity: int,
        timed: bool,
    ) -> None:
        self.settings = CallSettings(
            call=unused,
            order=order,
            capacity=capacity,
            timeout=25 if timed else None,
            retry=Retry(attempts=2, delay=timedelta(milliseconds=5)),
            on_error=Fallback(instead),
            into=lambda record, result: Left(Record(*record), result),
            cache=None if cache is None else Cache(3, ttl=cache, key=wanted),
            groups=groups,
        )
        self.start(None)
        #: Everything that the source has: records, and watermarks between them.
        self.source: list[Record | Watermark] = []
        #: Number of records that the step has received.
        self.read = 0
        #: Output at the sink: numbers of records, and watermarks.
        self.sink: list[Left | Watermark] = []
        self.checkpoint: tuple[OperatorSnapshot | None, int, int] = (None, 0, 0)
        self.crashed = False

    def start(self, snapshot: OperatorSnapshot | None, now: int = 0) -> None:
        self.calling = CallHarness(self.settings, restored=snapshot, now=now)

    # ------------------------------------------------------------------------------------------ what happens

    @rule(kinds=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=5))
    def records_come(self, kinds: list[tuple[str, str]]) -> None:
        for kind in kinds:
            self.source.append(Record(len(self.source), *kind))
        self.go_on()

    @rule()
    def a_watermark_comes(self) -> None:
        self.source.append(Watermark(len(self.source)))
        self.go_on()

    def go_on(self) -> None:
        """Read what there is, record by record, while the step takes more."""
        while self.read < len(self.source) and not self.calling.step.full:
            one = self.source[self.read]
            self.read += 1
            if isinstance(one, Watermark):
                self.calling.watermark(one.timestamp)
            else:
                keys = [one.key] if self.settings.order is CallOrder.BY_KEY else None
                self.calling.push(one, at=[one.number], keys=keys)
            self.collect()

    def collect(self) -> None:
        for one in self.calling.batches():
            if isinstance(one, Batch):
                self.sink.extend(one.values)
            elif isinstance(one, Watermark):
                self.sink.append(one)

    @precondition(lambda self: self.calling.under_way)
    @rule(data=st.data())
    def a_call_ends(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.calling.under_way))
        self.end(call, data.draw(st.sampled_from(("all", "some", "none"))))

    def end(self, call: Call, how: str) -> None:
        operator = self.calling.step
        if how == "none":
            self.calling.end(call, lambda call: operator.raised(call, OSError()))
        elif self.settings.groups is None:
            self.calling.end(call, lambda call: operator.returned(call, wanted(call.value)))
        else:
            results: list[object] = [wanted(record) for record in call.value]
            if how == "some":
                results[-1] = OSError()
            self.calling.end(call, lambda call: operator.returned(call, results))
        self.collect()
        self.go_on()

    @rule(after=st.integers(1, 12))
    def time_goes_on(self, after: int) -> None:
        self.calling.clock(self.calling.time.at + after)
        self.collect()
        self.go_on()

    @rule()
    def a_checkpoint_is_taken(self) -> None:
        self.checkpoint = self.calling.step.snapshot(), self.read, len(self.sink)

    @rule()
    def the_job_crashes_and_is_restored(self) -> None:
        self.crashed = True
        snapshot, self.read, left = self.checkpoint
        del self.sink[left:]
        self.start(snapshot, self.calling.time.at)
        self.collect()
        self.go_on()

    # ------------------------------------------------------------------------------------------- what holds

    @invariant()
    def no_more_calls_are_under_way_than_allowed(self) -> None:
        if hasattr(self, "calling"):
            assert len(self.calling.under_way) == self.calling.step.running
            assert self.calling.step.running <= self.settings.capacity

    def records_under_way(self) -> list[Record]:
        if self.settings.groups is None:
            return self.calling.asked
        return [record for group in self.calling.asked for record in group]

    @invariant()
    def no_key_is_called_for_twice_at_a_time(self) -> None:
        if not hasattr(self, "calling") or self.settings.timeout is not None:
            return  # a record whose time is up is in its group to the end
        under_way = [Record(*record) for record in self.records_under_way()]
        if self.settings.cache is not None:
            assert max(Counter(one.wanted for one in under_way).values(), default=1) == 1
        if self.settings.order is CallOrder.BY_KEY:
            assert max(Counter(one.key for one in under_way).values(), default=1) == 1

    @invariant()
    def no_group_is_too_large(self) -> None:
        if hasattr(self, "calling") and self.settings.groups is not None:
            size = self.settings.groups.size
            assert all(0 < len(group) <= size for group in self.calling.asked)

    @invariant()
    def who_waits_for_company_has_an_alarm(self) -> None:
        if not hasattr(self, "calling") or not self.calling.step.busy:
            return
        assert self.calling.under_way or self.calling.time.alarm is not None

    def teardown(self) -> None:
        if not hasattr(self, "calling"):
            return
        self.go_on()
        while self.calling.step.busy or self.read < len(self.source):
            self.calling.end_input()
            if self.calling.under_way:
                self.end(self.calling.under_way[0], "all")
            else:
                alarm = self.calling.time.alarm
                assert alarm is not None, "nothing is under way, and nothing will ever happen"
                self.time_goes_on(max(0, alarm - self.calling.time.at))
        self.every_record_has_left_once_and_in_order()

    def every_record_has_left_once_and_in_order(self) -> None:
        left = [one for one in self.sink if isinstance(one, Left)]
        records = [one for one in self.source if isinstance(one, Record)]
        assert sorted(one.record.number for one in left) == [one.number for one in records]
        assert all(one.result in (FAILED, one.record.wanted) for one in left)
        order = [
            one.timestamp if isinstance(one, Watermark) else one.record.number for one in self.sink
        ]
        if self.settings.order is CallOrder.ORDERED:
            assert order == sorted(order)
        if self.settings.order is CallOrder.BY_KEY:
            for key in "xyz":
                numbers = [one.record.number for one in left if one.record.key == key]
                assert numbers == sorted(numbers)
        for index, one in enumerate(self.sink):
            if isinstance(one, Watermark):
                assert max(order[:index], default=-1) < one.timestamp
                assert min(order[index + 1 :], default=one.timestamp + 1) > one.timestamp
        if not self.crashed:  # watermarks that wait are no state: later ones follow
            assert [one for one in self.sink if isinstance(one, Watermark)] == [
                one for one in self.source if isinstance(one, Watermark)
            ]


TestFewerCallsRules = FewerCallsRules.TestCase
TestFewerCallsRules.settings = hypothesis_settings(max_examples=60, stateful_step_count=40)
