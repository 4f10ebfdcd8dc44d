"""A keyed process with timers equals a naive model, with snapshots and restores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from aflow.model.batch import Batch
from aflow.model.time import TimeDomain
from aflow.operators.context import Context
from aflow.operators.keyed_function import KeyedProcess, KeyedProcessOperator
from aflow.state.specs import MapState, ValueState
from aflow.testing import Mode
from tests.operators.driver import Driver

Result = tuple[str, str, int, int]
"""Domain, key, time of the timer, and how many records and timers the key has had."""


@dataclass(frozen=True)
class Command:
    """An action on a timer of the key of a record."""

    key: str
    domain: TimeDomain
    delete: bool
    at: int
    again: int
    """Delay of another timer that is set when it fires; 0: none."""


@dataclass(frozen=True)
class Watermark:
    by: int


@dataclass(frozen=True)
class Clock:
    by: int


Step = list[Command] | Watermark | Clock


class Obedient(KeyedProcess[str, Command, Result]):
    count = ValueState("count", of=int)
    again = MapState("again", key=int, of=int)

    def process(self, value: Command, ctx: Context[str]) -> None:
        ctx.state(self.count).set(ctx.state(self.count).get(0) + 1)
        if value.delete:
            _deleter(ctx, value.domain)(value.at)
        else:
            _setter(ctx, value.domain)(value.at)
            ctx.state(self.again).put(value.at, value.again)

    def on_timer(self, at: int, ctx: Context[str]) -> list[Result]:
        count = ctx.state(self.count)
        count.set(count.get(0) + 1)
        assert ctx.timer_domain is not None
        if later := ctx.state(self.again).get(at, 0):
            _setter(ctx, ctx.timer_domain)(at + later)
        return [(ctx.timer_domain.name, ctx.key, at, count.get(0))]


def _setter(ctx: Context[str], domain: TimeDomain) -> Callable[[int], None]:
    return ctx.set_event_timer if domain is TimeDomain.EVENT else ctx.set_processing_timer


def _deleter(ctx: Context[str], domain: TimeDomain) -> Callable[[int], None]:
    return ctx.delete_event_timer if domain is TimeDomain.EVENT else ctx.delete_processing_timer


@dataclass
class Model:
    """Timers in a set that is searched from end to end."""

    timers: set[tuple[TimeDomain, int, str]] = field(
        default_factory=set[tuple[TimeDomain, int, str]]
    )
    counts: dict[str, int] = field(default_factory=dict[str, int])
    again: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def handle(self, command: Command) -> None:
        self.counts[command.key] = self.counts.get(command.key, 0) + 1
        timer = (command.domain, command.at, command.key)
        if command.delete:
            self.timers.discard(timer)
        else:
            self.timers.add(timer)
            self.again[command.key, command.at] = command.again

    def ring(self, domain: TimeDomain, now: int) -> list[Result]:
        rung: list[Result] = []
        while due := [timer for timer in self.timers if timer[0] is domain and timer[1] <= now]:
            timer = min(due, key=lambda timer: (timer[1], timer[2]))
            self.timers.remove(timer)
            _, at, key = timer
            self.counts[key] += 1
            rung.append((domain.name, key, at, self.counts[key]))
            if later := self.again.get((key, at), 0):
                self.timers.add((domain, at + later, key))
        return rung


COMMANDS = st.builds(
    Command,
    key=st.sampled_from("abc"),
    domain=st.sampled_from(TimeDomain),
    delete=st.booleans(),
    at=st.integers(0, 30),
    again=st.integers(0, 5),
)
STEPS = st.lists(
    st.one_of(
        st.lists(COMMANDS, min_size=1, max_size=6),
        st.builds(Watermark, st.integers(1, 10)),
        st.builds(Clock, st.integers(1, 10)),
    ),
    max_size=20,
)


def by_time_and_key(results: list[Result]) -> list[Result]:
    """Sort results of one time: the order of keys is undefined."""
    return sorted(results, key=lambda result: (result[2], result[1]))


@given(steps=STEPS, mode=st.sampled_from(Mode))
def test_timers_fire_as_in_the_naive_model(steps: list[Step], mode: Mode) -> None:
    driver = Driver(lambda: KeyedProcessOperator(Obedient()), mode=mode)
    model = Model()
    watermark = clock = 0

    for step in steps:
        expected: list[Result] = []
        if isinstance(step, Watermark):
            watermark += step.by
            driver.watermark(watermark)
            expected = model.ring(TimeDomain.EVENT, watermark)
        elif isinstance(step, Clock):
            clock += step.by
            driver.clock(clock)
            expected = model.ring(TimeDomain.PROCESSING, clock)
        else:
            driver.push(*step, keys=[command.key for command in step])
            for command in step:
                model.handle(command)
            if any(command.domain is TimeDomain.PROCESSING for command in step):
                driver.clock(clock)
                expected = model.ring(TimeDomain.PROCESSING, clock)

        emitted = [item for item in driver.batches() if isinstance(item, Batch)]
        results = [value for batch in emitted for value in batch.values]
        assert [result[2] for result in results] == sorted(result[2] for result in results)
        assert by_time_and_key(results) == by_time_and_key(expected)
        for batch in emitted:
            event_time = batch.values[0][0] == TimeDomain.EVENT.name
            assert batch.timestamps == (
                [value[2] for value in batch.values] if event_time else None
            )
