"""Steps whose capacity follows what the service can take."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.on_error import Drop
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.settings import CallOrder
from tests.operators.calls.simulated_steps import SimulatedStep, World

SECOND = timedelta(seconds=1)


@dataclass
class Service:
    """Works on ``room`` calls at once, for 100 ms each; others wait."""

    world: World
    room: int
    _busy: list[float] = field(default_factory=list[float])

    def answer(self, value: object) -> tuple[float, object]:
        now = self.world.at
        self._busy = sorted(end for end in self._busy if end > now)
        ahead = len(self._busy) - self.room
        end = 100 + (now if ahead < 0 else self._busy[ahead])
        self._busy.append(end)
        return end - now, value


def adaptive(world: World, service: Service, **settings: Any) -> SimulatedStep:
    limits = Adaptive(start=4, most=500)
    return world.step(answer=service.answer, adaptive=limits, capacity=limits.most, **settings)


def fed_until(step: SimulatedStep, at: float) -> None:
    """As the runtime does: there is input whenever the step takes some."""
    while step.world.at < at:
        while not step.step.full:
            step.push(*range(10))
        step.world.until(min(at, step.world.following() or at))


@pytest.mark.parametrize("order", [CallOrder.ORDERED, CallOrder.UNORDERED])
def test_the_limit_grows_to_what_the_service_takes_and_follows_when_that_changes(
    order: CallOrder,
) -> None:
    world = World()
    service = Service(world, room=40)
    step = adaptive(world, service, order=order)
    found: list[int] = []

    for room in (40, 20, 40):
        service.room = room
        fed_until(step, world.at + 20_000)
        found.append(step.step.counted().limit)

    assert 32 <= found[0] <= 64
    assert 16 <= found[1] <= 32
    assert 32 <= found[2] <= 64


def test_the_service_is_kept_busy() -> None:
    world = World()
    step = adaptive(world, Service(world, room=40), order=CallOrder.UNORDERED)
    fed_until(step, 5000)
    before = len(step.emitted())

    fed_until(step, 15_000)

    assert len(step.emitted()) - before > 0.85 * 400 * 10


def test_never_are_more_calls_under_way_than_the_limit() -> None:
    world = World()
    step = adaptive(world, Service(world, room=40))
    seen: list[tuple[int, int]] = []

    for at in range(0, 10_000, 10):
        before = step.step.counted().limit
        fed_until(step, at)
        seen.append((len(step.ends), max(before, step.step.counted().limit)))

    # After the limit has fallen, those that are too many end by themselves.
    assert all(running <= limit * 2 for running, limit in seen)
    assert sum(running > limit for running, limit in seen) < len(seen) / 10


@pytest.mark.parametrize("slow", range(20, 400, 20))
def test_a_limit_that_grows_makes_room_for_input_though_nothing_can_leave(slow: int) -> None:
    def answer(value: int) -> tuple[float, object]:
        return (60_000 if value == slow else 10), value

    world = World()
    step = world.step(answer=answer, adaptive=Adaptive(start=4), capacity=1000)
    numbers = iter(range(10_000))

    def fill() -> None:
        while not step.step.full:
            step.push(next(numbers))

    step.on_emitted = fill
    fill()
    world.until(5000)

    assert step.emitted() == list(range(slow))
    assert step.step.full  # there is more to take, so to rest would be to miss something


def test_a_step_without_room_does_not_keep_others_from_their_turn() -> None:
    world = World()
    limit = RateLimit[Any](50, per=SECOND, burst=1, shared="api")
    first = world.step(
        "a",
        lambda value: (100_000, value),
        rate=limit,
        adaptive=Adaptive(start=4, most=4),
        capacity=4,
        on_error=Drop(),
    )
    second = world.step("b", rate=limit)

    first.push(*range(200))
    second.push(*range(200))
    world.until(1000)

    assert len(world.values("a")) == 4
    assert len(world.values("b")) == pytest.approx(47, abs=2)


def test_overload_shrinks_the_limit_and_timeouts_are_overload() -> None:
    world = World()
    step = world.step(
        answer=lambda value: (100_000, value),
        adaptive=Adaptive(start=64),
        capacity=1000,
        timeout=200,
        on_error=Drop(),
    )

    fed_until(step, 2000)

    assert step.step.counted().limit < 45
