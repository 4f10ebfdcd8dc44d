"""Slots live longer than calls: what a call does to its task, or leaves in it, is not seen by the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.testing import CollectSink, VirtualClock, run_flow
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import virtual_time


def calling(
    fn: Callable[[int], Awaitable[Any]],
    numbers: range,
    *,
    capacity: int = 1,
    ordered: bool = True,
    **options: Any,
) -> tuple[af.Flow, CollectSink[Any]]:
    flow, sink = af.Flow("calling"), CollectSink[Any]()
    called = flow.source(numbers).map_async(
        fn, name="ask", capacity=capacity, ordered=ordered, **options
    )
    called.to(sink)
    return flow, sink


# ------------------------------------------------------------------------------------------- cancellation


async def raises_cancelled(number: int) -> int:
    if number == 1:
        raise asyncio.CancelledError
    return number


async def awaits_what_was_cancelled(number: int) -> int:
    if number == 1:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
    return number


async def cancels_itself(number: int) -> int:
    if number == 1:
        _cancel_me()
        await asyncio.sleep(1)
    return number


def _cancel_me() -> None:
    me = asyncio.current_task()
    assert me is not None
    me.cancel()


GIVEN_UP = [raises_cancelled, awaits_what_was_cancelled, cancels_itself]


@pytest.mark.parametrize("fn", GIVEN_UP)
def test_a_cancellation_of_the_functions_own_fails_the_call(
    fn: Callable[[int], Awaitable[int]],
) -> None:
    flow, _ = calling(fn, range(3))

    with pytest.raises(af.OperatorError, match="step 'ask' failed on record 1: CancelledError"):
        run_flow(flow)


@pytest.mark.parametrize("fn", GIVEN_UP)
def test_it_goes_the_way_of_the_policy_and_the_slot_makes_the_next_call(
    fn: Callable[[int], Awaitable[int]],
) -> None:
    flow, sink = calling(fn, range(4), on_error=af.calls.Drop())

    run_flow(flow)

    assert sink.values == [0, 2, 3]


async def old_timeout(number: int) -> int:
    """As timeouts of libraries do that are older than ``Task.uncancel``."""
    if number == 1:
        try:
            _cancel_me()
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            raise TimeoutError("took too long") from None
    return number


def test_a_slot_that_is_cancelled_before_its_first_step_is_replaced() -> None:
    """By a host that cancels whatever tasks it finds."""
    under_way: list[int] = []
    most = 0

    async def ask(number: int) -> int:
        nonlocal most
        if number == 0:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                if task.get_name() == "call of ask":
                    task.cancel()
        under_way.append(number)
        most = max(most, len(under_way))
        await asyncio.sleep(1)
        under_way.remove(number)
        return number

    flow, sink = calling(ask, range(20), capacity=2)
    run_flow(flow)

    assert sink.values == list(range(20))
    assert most == 2


def test_a_timeout_of_a_library_that_cancels_its_task_is_an_error_as_any_other() -> None:
    flow, sink = calling(
        old_timeout, range(4), on_error=af.calls.Fallback(lambda n, error: str(error))
    )

    run_flow(flow)

    assert sink.values == [0, "took too long", 2, 3]


async def swallows_its_own(number: int) -> int:
    if number == 1:
        try:
            _cancel_me()
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            return -1
    return number


async def cancels_its_task_and_returns(number: int) -> int:
    if number == 1:
        _cancel_me()
        return -1
    await asyncio.sleep(1)
    return number


@pytest.mark.parametrize("fn", [swallows_its_own, cancels_its_task_and_returns])
def test_a_call_that_has_cancelled_its_task_and_returns_does_no_harm_to_the_next(
    fn: Callable[[int], Awaitable[int]],
) -> None:
    flow, sink = calling(fn, range(4))

    run_flow(flow)

    assert sink.values == [0, -1, 2, 3]


@virtual_time
async def test_a_cancelled_job_makes_no_other_call_though_one_takes_back_the_cancellation() -> None:
    called: list[int] = []

    async def stubborn(number: int) -> int:
        called.append(number)
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
        return number

    flow, _ = calling(stubborn, range(10))
    async with flow.start() as job:
        await asyncio.sleep(0.5)
        await job.cancel()

    assert called == [0]


# --------------------------------------------------------------------------- structured concurrency inside


async def with_timeout(number: int) -> str:
    try:
        async with asyncio.timeout(2.5):
            await asyncio.sleep(number)
    except TimeoutError:
        return f"{number} too long"
    return f"{number} in time"


def test_a_timeout_inside_a_call_is_the_calls_own() -> None:
    flow, sink = calling(with_timeout, range(1, 5), capacity=2)

    run_flow(flow)

    assert sink.values == ["1 in time", "2 in time", "3 too long", "4 too long"]


async def with_group(number: int) -> int:
    async def half() -> int:
        await asyncio.sleep(1)
        if number == 2:
            raise ValueError("no half")
        return number

    async with asyncio.TaskGroup() as group:
        halves = [group.create_task(half()) for _ in range(2)]
    return sum(one.result() for one in halves)


def test_a_task_group_inside_a_call_fails_as_a_group_and_the_slot_goes_on() -> None:
    flow, sink = calling(
        with_group, range(4), on_error=af.calls.Fallback(lambda n, error: type(error).__name__)
    )

    run_flow(flow)

    assert sink.values == [0, 2, "ExceptionGroup", 6]


def test_a_task_group_inside_a_call_whose_time_is_up_ends_with_all_its_tasks() -> None:
    ended: list[str] = []

    async def part(number: int, name: str) -> None:
        try:
            await asyncio.sleep(3600 if number == 1 else 1)
        finally:
            ended.append(f"{number} {name}")

    async def parts(number: int) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(part(number, "a"))
            group.create_task(part(number, "b"))
        return number

    flow, sink = calling(parts, range(3), timeout=timedelta(seconds=10), on_error=af.calls.Drop())

    outcome = run_flow(flow)

    assert sink.values == [0, 2]
    assert sorted(ended) == [f"{number} {name}" for number in range(3) for name in "ab"]
    assert outcome.took == timedelta(seconds=12)


def test_what_is_shielded_inside_a_call_goes_on_when_its_time_is_up() -> None:
    written: list[int] = []

    async def write(number: int) -> None:
        await asyncio.sleep(3)
        written.append(number)

    async def shielded(number: int) -> int:
        await asyncio.shield(write(number))
        return number

    flow, sink = calling(shielded, range(1), timeout=timedelta(seconds=1), on_error=af.calls.Drop())

    @virtual_time
    async def main() -> None:
        await flow.run(options=af.Options(clock=VirtualClock()))
        assert (sink.values, written) == ([], [])
        await asyncio.sleep(10)

    main()

    assert written == [0]


# --------------------------------------------------------------------------------------- context variables


SEEN: ContextVar[int] = ContextVar("seen", default=0)


async def notes(number: int) -> int:
    before = SEEN.get()
    SEEN.set(number + 10)
    await asyncio.sleep(1)
    assert SEEN.get() == number + 10
    return before


@pytest.mark.parametrize("capacity", [1, 3])
def test_what_a_call_sets_in_context_variables_is_not_seen_by_others(capacity: int) -> None:
    flow, sink = calling(notes, range(6), capacity=capacity)

    run_flow(flow)

    assert sink.values == [0] * 6


@virtual_time
async def test_a_call_sees_the_context_in_which_the_job_was_started() -> None:
    flow, sink = calling(notes, range(3))
    SEEN.set(5)

    await flow.run(options=af.Options(clock=VirtualClock()))

    assert sink.values == [5, 5, 5]
    assert SEEN.get() == 5


# ------------------------------------------------------------------------------ what is no coroutine function


def plain(number: int) -> int:
    return number


def nothing(number: int) -> None:
    return None


@pytest.mark.parametrize("fn", [plain, nothing])
@pytest.mark.parametrize("on_error", [af.calls.Fail(), af.calls.Drop()])
def test_a_function_that_gives_nothing_to_await_fails_the_job_whatever_the_policy(
    fn: Any, on_error: Any
) -> None:
    flow, _ = calling(fn, range(3), on_error=on_error)

    with pytest.raises(af.OperatorError, match="cannot be awaited; write it as async def"):
        run_flow(flow)


def test_a_lambda_that_gives_something_to_await_will_do() -> None:
    flow, sink = calling(lambda number: asyncio.sleep(1, number), range(3))

    run_flow(flow)

    assert sink.values == [0, 1, 2]


async def wrong_type(number: int) -> int:
    return len(number)  # type: ignore[arg-type]


def test_a_type_error_of_the_functions_own_is_an_error_as_any_other() -> None:
    flow, sink = calling(wrong_type, range(3), on_error=af.calls.Drop())

    run_flow(flow)

    assert sink.values == []


# ------------------------------------------------------------------------------- what is more than an error


class Outcome(BaseException):
    """As those of test frameworks, which are no ``Exception``."""


async def leaves(number: int) -> int:
    raise SystemExit(3)


async def fails_the_test(number: int) -> int:
    raise Outcome("failed")


async def well(number: int) -> int:
    return number


def exits(*_: object) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (leaves, {}),
        (well, {"into": exits}),
        (well, {"deadline": exits}),
        (leaves, {"on_error": af.calls.Fallback(exits)}),
    ],
    ids=["call", "into", "deadline", "fallback"],
)
@virtual_time
async def test_a_system_exit_fails_the_job_and_does_not_end_the_program(
    fn: Callable[[int], Awaitable[int]], options: dict[str, Any]
) -> None:
    flow, _ = calling(fn, range(3), **options)

    with no_leftovers("the job"), pytest.raises(af.OperatorError, match="SystemExit"):
        await flow.run(options=af.Options(clock=VirtualClock()))


def test_what_is_no_exception_ends_the_job_and_goes_to_the_host_as_it_is() -> None:
    flow, _ = calling(fails_the_test, range(3), on_error=af.calls.Drop())

    with pytest.raises(Outcome, match="failed"):
        run_flow(flow)


def test_an_interrupt_from_the_keyboard_ends_the_program() -> None:
    async def interrupted(number: int) -> int:
        raise KeyboardInterrupt

    flow, _ = calling(interrupted, range(3), on_error=af.calls.Drop())

    with pytest.raises(KeyboardInterrupt):
        run_flow(flow)


def test_calls_that_complete_at_once_leave_the_loop_to_others() -> None:
    async def at_once(number: int) -> int:
        return number

    flow, sink = calling(at_once, range(20_000), capacity=1)
    turns = 0

    @virtual_time
    async def main() -> None:
        nonlocal turns
        running = asyncio.ensure_future(flow.run(options=af.Options(clock=VirtualClock())))
        while not running.done():
            turns += 1
            await asyncio.sleep(0)
        await running

    main()

    assert sink.values == list(range(20_000))
    assert turns > 50
