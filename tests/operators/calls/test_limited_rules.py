"""Rules of steps with limits: the rate holds at all times, and each record is emitted once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.breaker import CircuitBreaker
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import Fallback
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder
from tests.operators.calls.simulated_steps import SimulatedStep, World

MS = timedelta(milliseconds=1)

#: Events: records arrive, time passes, downstream is full, downstream has capacity, the step is restored.
Event = tuple[str, int, int]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "pass", "pass", "hold", "go on", "restore", "watermark"]),
        st.integers(0, 1),
        st.sampled_from([1, 3, 10, 40, 333, 1000]),
    ),
    max_size=30,
)


def members(value: Any) -> list[int]:
    """The numbers that a call is for: one, or a group."""
    return cast("list[int]", value) if isinstance(value, list) else [value]


def _deadline(value: int) -> int:
    return value * 20


@dataclass
class Limits:
    """Of steps in a test; they share the rate."""

    count: int
    burst: int | None
    costs: bool
    options: dict[str, Any]
    #: Number of steps.
    steps: int
    #: Seed of the durations and results of calls.
    salt: int

    def rate(self) -> RateLimit[Any]:
        return RateLimit(
            self.count,
            per=timedelta(seconds=1),
            burst=self.burst,
            shared="all",
            cost=self.cost if self.costs else None,
        )

    def cost(self, value: Any) -> float:
        return float((value * 7 + self.salt) % 5)

    def cost_of_call(self, value: Any) -> float:
        if not self.costs:
            return 1.0
        return sum(map(self.cost, members(value)))


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    grouped = draw(st.booleans())
    cached = draw(st.booleans())
    adaptive = Adaptive(start=3, most=8) if draw(st.booleans()) else None
    breaker = CircuitBreaker(
        failures=0.5,
        calls=3,
        window=1000 * MS,
        pause=draw(st.sampled_from([20, 400])) * MS,
        max_pause=1000 * MS,
        probes=draw(st.integers(1, 3)),
        fail_fast=draw(st.booleans()),
    )
    options: dict[str, Any] = {
        "capacity": 8 if adaptive else draw(st.sampled_from([1, 2, 50])),
        "adaptive": adaptive,
        "breaker": breaker if draw(st.booleans()) else None,
        "groups": GroupSize(3, draw(st.sampled_from([0, 25]))) if grouped else None,
        "cache": Cache[Any, Any](5, key=lambda value: value % 13) if cached else None,
        "order": draw(st.sampled_from(CallOrder)),
        "timeout": draw(st.sampled_from([None, 60, 700])),
        "retry": draw(st.sampled_from([None, Retry(delay=0 * MS), Retry(delay=50 * MS)])),
        "on_error": Fallback[Any](lambda value, error: value),
    }
    if draw(st.booleans()):
        options["deadline"] = _deadline
    return Limits(
        count=draw(st.sampled_from([3, 70, 1000])),
        burst=draw(st.sampled_from([None, 1, 5])),
        costs=draw(st.booleans()),
        options=options,
        steps=draw(st.integers(1, 2)),
        salt=draw(st.integers(0, 100)),
    )


@dataclass
class Story:
    """Steps to which something happens."""

    limits: Limits
    world: World = field(default_factory=World)
    steps: list[SimulatedStep] = field(default_factory=list[SimulatedStep])
    #: Values that came, and that left steps that are no more.
    came: list[list[int]] = field(default_factory=list[list[int]])
    left: list[list[int]] = field(default_factory=list[list[int]])
    watermark: int = 0
    _number: int = 0

    def __post_init__(self) -> None:
        for index in range(self.limits.steps):
            self.steps.append(self._step(index))
            self.came.append([])
            self.left.append([])

    def _step(self, index: int, restored: Any = None) -> SimulatedStep:
        return self.world.step(
            f"step {index}",
            self._answer,
            rate=self.limits.rate(),
            restored=restored,
            **self.limits.options,
        )

    def _answer(self, value: Any) -> tuple[float, object]:
        """The service: some calls take long, and for some time all fail."""
        number = members(value)[0]
        takes = (1, 10, 10, 150)[(number + self.limits.salt) % 4]
        fails = (self.world.at // 500) % 3 == 1 or (number + self.limits.salt) % 11 == 0
        return takes, ConnectionError("down") if fails else value

    def happens(self, event: Event) -> None:
        what, number, much = event
        index = number % len(self.steps)
        step = self.steps[index]
        if what == "push":
            self._push(index, min(much, 40))
        elif what == "pass":
            self.world.until(self.world.at + much)
        elif what == "hold":
            step.block()
        elif what == "go on":
            step.unblock()
        elif what == "watermark":
            self.watermark += 1
            step.watermark(self.watermark)
        else:
            self._restore(index)

    def _push(self, index: int, many: int) -> None:
        values = list(range(self._number, self._number + many))
        self._number += many
        self.came[index].extend(values)
        by_key = self.limits.options["order"] is CallOrder.BY_KEY
        self.steps[index].push(*values, keys=[one % 5 for one in values] if by_key else None)

    def _restore(self, index: int) -> None:
        """In a job all are, with new buckets; here the bucket is the old one, so that its bound holds throughout."""
        old = self.steps[index]
        snapshot = old.step.snapshot()
        old.lose()
        self.left[index].extend(old.emitted())
        self.steps[index] = self._step(index, snapshot)

    def end(self) -> None:
        for step in self.steps:
            step.unblock()
        for _ in range(3000):
            if not any(step.step.busy for step in self.steps):
                return
            for step in self.steps:
                step.end_input()
            self.world.until(self.world.at + 1000)
        raise AssertionError("something is never called for")

    def result(self, value: int) -> int:
        """Return what equal records share: with a cache some get the result of another one."""
        return value % 13 if self.limits.options["cache"] else value

    def all_left(self, index: int) -> list[int]:
        return self.left[index] + self.steps[index].emitted()


def check_rate(story: Story) -> None:
    """A bucket that holds the burst had for each call what it costs, or was full."""
    rate = story.limits.rate()
    burst = float(rate.units_at_once)
    level, last = burst, 0.0
    for call in story.world.begun:
        cost = story.limits.cost_of_call(call.value)
        level = min(burst, level + (call.at - last) * rate.count / 1000)
        assert not cost or level > min(cost, burst) - 1e-6, f"{call} found {level} and costs {cost}"
        level, last = level - cost, call.at


@settings(max_examples=100, deadline=None)
@given(limits(), EVENTS)
def test_whatever_happens_the_rate_holds_and_each_record_leaves_once(
    limits: Limits, events: list[Event]
) -> None:
    story = Story(limits)

    for event in events:
        story.happens(event)
    story.end()

    check_rate(story)
    for index, came in enumerate(story.came):
        left = list(map(story.result, story.all_left(index)))
        expected = list(map(story.result, came))
        if limits.options["order"] is not CallOrder.ORDERED:
            left.sort()
            expected.sort()
        assert left == expected


@settings(max_examples=100, deadline=None)
@given(limits(), EVENTS)
def test_whoever_may_begin_has_begun(limits: Limits, events: list[Event]) -> None:
    limits.steps = 1
    # That its deadline has passed, or that a group has no hope for others, is seen in time, but not at once.
    limits.options.pop("deadline", None)
    limits.options["groups"] = limits.options["groups"] and GroupSize(3, 0)
    story = Story(limits)

    for event in events:
        story.happens(event)
        step = story.steps[0]
        assert step.step.take() is None, "a call may start, and no slot asks for it"
