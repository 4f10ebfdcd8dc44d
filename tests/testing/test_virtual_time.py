"""Virtual time: exact, fast, and never silent about a deadlock."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta

import anyio
import anyio.to_thread
import pytest

from aflow.errors import FlowDefinitionError
from aflow.model.time import Clock
from aflow.testing.virtual_time import (
    NothingCanHappen,
    VirtualClock,
    VirtualTimeLoop,
    advance,
    run,
    settle,
    virtual_time,
)

_MOMENT = timedelta(milliseconds=30)


def test_an_hour_of_sleeps_takes_less_than_a_second() -> None:
    async def sleep_minute_by_minute() -> float:
        for _ in range(60):
            await asyncio.sleep(60)
        return asyncio.get_running_loop().time()

    began = time.process_time()
    virtual = run(sleep_minute_by_minute)
    took = time.process_time() - began

    assert virtual == 3600.0
    assert took < 1.0


@virtual_time
async def test_ten_tenths_of_a_second_are_one_second() -> None:
    loop = asyncio.get_running_loop()

    for _ in range(10):
        await asyncio.sleep(0.1)

    assert loop.time() == 1.0


@virtual_time
async def test_timers_fire_at_their_deadline_and_in_its_order() -> None:
    loop = asyncio.get_running_loop()
    fired: list[tuple[str, float]] = []

    def fire(name: str) -> None:
        fired.append((name, loop.time()))

    for name, delay in [("c", 0.3), ("a", 0.0001), ("d", 90_000.5), ("b", 0.2999999)]:
        loop.call_later(delay, fire, name)
    await asyncio.sleep(100_000)

    assert fired == [("a", 0.0001), ("c", 0.3), ("b", 0.3), ("d", 90_000.5)]


@virtual_time
async def test_timers_of_one_deadline_fire_in_the_order_in_which_they_were_set() -> None:
    loop = asyncio.get_running_loop()
    fired: list[int] = []

    for number in range(50):
        loop.call_at(0.3 if number % 2 else 0.1 + 0.2, fired.append, number)
    await asyncio.sleep(1)

    assert fired == list(range(50))


@virtual_time
async def test_a_cancelled_timer_does_not_fire_and_time_does_not_stop_at_it() -> None:
    loop = asyncio.get_running_loop()
    seen: list[float] = []
    loop.call_later(5, seen.append, 5.0).cancel()
    loop.call_later(10, lambda: seen.append(loop.time()))

    await asyncio.sleep(20)

    assert seen == [10.0]


@virtual_time
async def test_a_wait_shorter_than_a_microsecond_still_moves_time() -> None:
    loop = asyncio.get_running_loop()

    await asyncio.sleep(1e-9)

    assert loop.time() == 1e-6


@virtual_time
async def test_a_timeout_ends_the_wait_at_its_deadline() -> None:
    loop = asyncio.get_running_loop()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.Event().wait()

    assert loop.time() == 30.0


@virtual_time
async def test_the_scopes_of_anyio_use_virtual_time_too() -> None:
    with anyio.move_on_after(30) as scope:
        await anyio.sleep_forever()

    assert scope.cancelled_caught
    assert anyio.current_time() == 30.0


@virtual_time(start=datetime(2013, 1, 1, tzinfo=UTC))
async def test_the_clock_shows_epoch_milliseconds_from_the_start_on() -> None:
    clock: Clock = VirtualClock()
    began = clock.now()

    await advance(timedelta(hours=1, milliseconds=1, microseconds=999))

    assert began == 1_356_998_400_000
    assert clock.now() == began + 3_600_001


@virtual_time(start=-5)
async def test_the_clock_may_start_before_the_epoch() -> None:
    clock = VirtualClock()

    await advance(timedelta(milliseconds=2))

    assert clock.now() == -3


# Deadlocks


async def _wait_for_what_never_comes() -> None:
    await asyncio.Event().wait()


def test_a_deadlock_names_the_tasks_and_the_lines_where_they_wait() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_wait_for_what_never_comes(), name="consumer")
            await asyncio.sleep(3)

    with pytest.raises(NothingCanHappen) as caught:
        run(main)

    message = str(caught.value)
    assert "consumer" in caught.value.waiting
    assert len(caught.value.waiting) == 2
    assert "virtual time 3.0 s" in message
    assert "in _wait_for_what_never_comes\n" in message
    assert "await asyncio.Event().wait()" in message


def test_sleeping_for_ever_is_a_deadlock_too() -> None:
    with pytest.raises(NothingCanHappen):
        run(asyncio.sleep(math.inf))


def test_an_idle_thread_does_not_hide_a_deadlock() -> None:
    async def main() -> None:
        await anyio.to_thread.run_sync(int)
        await _wait_for_what_never_comes()

    with pytest.raises(NothingCanHappen, match="Nothing can happen any more"):
        run(main)


def test_the_tasks_of_a_deadlock_are_cancelled_and_the_loop_is_closed() -> None:
    ends: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        try:
            await _wait_for_what_never_comes()
        finally:
            ends.append("cleaned up")

    with pytest.raises(NothingCanHappen):
        run(main)

    assert ends == ["cleaned up"]
    assert loops[0].is_closed()


def test_a_wait_for_a_silent_socket_ends_after_patience() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            await asyncio.get_running_loop().sock_accept(server)

    with pytest.raises(NothingCanHappen, match="for a socket or pipe"):
        run(main, patience=_MOMENT)


# settle and advance


@virtual_time
async def test_settle_runs_all_tasks_that_need_no_time() -> None:
    steps: list[str] = []
    event = asyncio.Event()

    async def chain() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        await asyncio.to_thread(int)
        steps.append("ran")
        event.set()
        await asyncio.sleep(1)
        steps.append("slept")

    async def follower() -> None:
        await event.wait()
        steps.append("followed")

    async with asyncio.TaskGroup() as group:
        group.create_task(chain())
        group.create_task(follower())
        await settle()
        assert steps == ["ran", "followed"]
        assert asyncio.get_running_loop().time() == 0.0


@virtual_time
async def test_settle_runs_timers_that_are_due() -> None:
    loop = asyncio.get_running_loop()
    fired: list[str] = []
    loop.call_at(loop.time(), fired.append, "due")
    loop.call_later(0.000001, fired.append, "not due")

    await settle()

    assert fired == ["due"]


@virtual_time
async def test_of_several_that_settle_each_finds_the_loop_at_rest() -> None:
    steps: list[str] = []

    async def settle_and_go_on(name: str) -> None:
        await settle()
        steps.append(f"{name} settled")
        await asyncio.sleep(0)
        steps.append(f"{name} went on")

    await asyncio.gather(settle_and_go_on("a"), settle_and_go_on("b"))

    assert steps == ["a settled", "a went on", "b settled", "b went on"]


@virtual_time
async def test_a_cancelled_settle_does_not_affect_the_others() -> None:
    first = asyncio.ensure_future(settle())
    await asyncio.sleep(0)

    first.cancel()
    await settle()

    assert first.cancelled()


@virtual_time
async def test_advance_fires_the_timers_on_its_way() -> None:
    loop = asyncio.get_running_loop()
    fired: list[float] = []
    for delay in (10, 20, 30):
        loop.call_later(delay, lambda: fired.append(loop.time()))

    await advance(timedelta(seconds=20))

    assert fired == [10.0, 20.0]
    assert loop.time() == 20.0


@virtual_time
async def test_time_does_not_advance_backwards() -> None:
    with pytest.raises(FlowDefinitionError, match="negative"):
        await advance(timedelta(seconds=-1))


# run and the decorator


def test_run_takes_a_coroutine_or_a_function_and_returns_the_result() -> None:
    async def answer() -> int:
        await asyncio.sleep(3600)
        return 42

    assert run(answer) == 42
    assert run(answer()) == 42


def test_run_raises_errors_of_the_coroutine() -> None:
    async def fail() -> None:
        raise LookupError("no such key")

    with pytest.raises(LookupError, match="no such key"):
        run(fail)


@pytest.mark.parametrize("start", [datetime(2013, 1, 1), 1.5], ids=["naive", "float"])  # noqa: DTZ001
def test_a_start_that_names_no_moment_is_refused(start: datetime) -> None:
    with pytest.raises(FlowDefinitionError, match="start"):
        run(settle, start=start)


def test_patience_must_be_positive() -> None:
    with pytest.raises(FlowDefinitionError, match="patience"):
        VirtualTimeLoop(patience=timedelta(0))


@pytest.mark.parametrize("number", [1, 2])
@virtual_time
async def test_fixtures_and_parameters_reach_a_decorated_test(
    number: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert number in (1, 2)
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


class TestDecoratedMethods:
    @virtual_time
    async def test_know_their_self(self) -> None:
        assert type(self) is TestDecoratedMethods


def test_a_plain_function_cannot_be_decorated() -> None:
    def plain() -> Coroutine[object, None, None]:
        return settle()

    with pytest.raises(FlowDefinitionError, match="async def"):
        virtual_time(plain)


def test_outside_of_virtual_time_the_kit_says_so() -> None:
    async def use_advance() -> None:
        await advance(timedelta(seconds=1))

    with pytest.raises(
        FlowDefinitionError, match=r"VirtualClock\(\) needs virtual time, but no loop"
    ):
        VirtualClock()
    with pytest.raises(FlowDefinitionError, match=r"advance\(\) needs virtual time"):
        asyncio.run(use_advance())
    with pytest.raises(FlowDefinitionError, match=r"settle\(\) needs virtual time"):
        asyncio.run(settle())
