"""The generator between a thread that iterates over batches and the event loop that processes them. Needs no Spark."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import threading
import traceback
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import ConnectorError, FlowDefinitionError
from aflow_connectors.spark.executor.bridge import BridgeInput, BridgeOutput, InputFailed, bridged
from aflow_connectors.spark.executor.event_loop import WorkerLoop, worker_loop

#: Seconds after which a test that hangs fails instead.
PATIENCE = 300


@pytest.fixture(autouse=True)
def loop() -> Iterator[WorkerLoop]:
    """The loop of this process, which is no worker of Spark: it ends with the test."""
    begun_with = worker_loop()
    yield begun_with
    for one in {begun_with, worker_loop()}:
        one.close()


async def passing_through(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
    while (batch := await inbox.take()) is not None:
        await outbox.put(batch)


class Endless(Iterator[int]):
    """Counts without end, and records the count."""

    def __init__(self) -> None:
        self.read = 0

    def __next__(self) -> int:
        self.read += 1
        return self.read


class Broken(Iterator[int]):
    """Yields ``before`` batches, and fails."""

    def __init__(self, error: Exception, before: int = 0) -> None:
        self._error = error
        self._left = before

    def __next__(self) -> int:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return self._left


# -- What comes through.


def test_all_batches_come_through_in_their_order() -> None:
    results = list(bridged(iter(range(1_000)), passing_through))

    assert results == list(range(1_000))


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_partition_may_have_any_number_of_batches(batches: int) -> None:
    assert list(bridged(iter(range(batches)), passing_through)) == list(range(batches))


def test_a_batch_may_give_many_results_or_none() -> None:
    async def repeating(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        while (batch := await inbox.take()) is not None:
            for _ in range(batch):
                await outbox.put(batch)

    results = list(bridged(iter([0, 7, 0, 20, 1]), repeating))

    assert results == [7] * 7 + [20] * 20 + [1]


def test_results_may_come_after_the_end_of_the_input() -> None:
    async def summing(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        total = 0
        while (batch := await inbox.take()) is not None:
            total += batch
        await outbox.put(total)

    assert list(bridged(iter(range(100)), summing)) == [4_950]


def test_the_end_of_the_input_is_returned_on_each_call() -> None:
    async def asking_again(inbox: BridgeInput[int], outbox: BridgeOutput[int | None]) -> None:
        for _ in range(4):
            await outbox.put(await inbox.take())

    assert list(bridged(iter([1]), asking_again)) == [1, None, None, None]


def test_work_may_end_before_its_input() -> None:
    batches = Endless()

    async def first_three(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        for _ in range(3):
            await outbox.put(await inbox.take() or 0)

    assert list(bridged(batches, first_three)) == [1, 2, 3]


def test_several_coroutines_may_take_and_put_at_once() -> None:
    async def three_workers(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(passing_through(inbox, outbox))

    results = list(bridged(iter(range(500)), three_workers, prefetch=2, credits=2))

    assert sorted(results) == list(range(500))


def test_partitions_one_after_the_other_run_on_the_same_loop() -> None:
    loops: set[asyncio.AbstractEventLoop] = set()

    async def noting_the_loop(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        loops.add(asyncio.get_running_loop())
        await passing_through(inbox, outbox)

    sums = [sum(bridged(iter(range(10)), noting_the_loop)) for _ in range(100)]

    assert sums == [45] * 100
    assert len(loops) == 1


def test_partitions_side_by_side_do_not_mix() -> None:
    one = bridged(iter(range(50)), passing_through)
    other = bridged(iter(range(50, 100)), passing_through)

    pairs = list(zip(one, other, strict=True))

    assert pairs == [(number, number + 50) for number in range(50)]


def test_a_generator_of_batches_may_itself_be_bridged() -> None:
    inner = bridged(iter(range(100)), passing_through)

    assert sum(bridged(inner, passing_through)) == 4_950


@settings(max_examples=60, deadline=None)
@given(
    prefetch=st.integers(1, 5),
    credits=st.integers(1, 5),
    copies=st.lists(st.integers(0, 4), max_size=25),
    pauses=st.lists(st.sampled_from(["take", "put", "both", "none"]), min_size=1, max_size=7),
    workers=st.integers(1, 3),
)
def test_nothing_is_lost_or_doubled_whoever_waits_for_whom(
    prefetch: int, credits: int, copies: list[int], pauses: list[str], workers: int
) -> None:
    schedule = itertools.cycle(pauses)

    async def work(
        inbox: BridgeInput[tuple[int, int]], outbox: BridgeOutput[tuple[int, int]]
    ) -> None:
        while (batch := await inbox.take()) is not None:
            pause = next(schedule)
            if pause in ("take", "both"):
                await asyncio.sleep(0.0001)
            for copy in range(batch[1]):
                await outbox.put((batch[0], copy))
                if pause in ("put", "both"):
                    await asyncio.sleep(0)

    async def all_workers(
        inbox: BridgeInput[tuple[int, int]], outbox: BridgeOutput[tuple[int, int]]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work(inbox, outbox))

    results = list(
        bridged(iter(enumerate(copies)), all_workers, prefetch=prefetch, credits=credits)
    )

    assert sorted(results) == [(at, copy) for at, many in enumerate(copies) for copy in range(many)]


# -- Bounds.


def test_an_endless_partition_is_read_only_as_far_as_its_results_are_asked_for() -> None:
    batches = Endless()
    results = bridged(batches, passing_through, prefetch=3, credits=2)

    first = list(itertools.islice(results, 100))
    read = batches.read
    results.close()

    assert first == list(range(1, 101))
    # What waits: read ahead, one in the hands of the work, and results.
    assert read <= 100 + 3 + 1 + 2


def test_no_more_is_read_ahead_than_was_allowed() -> None:
    batches = Endless()
    seen: list[int] = []

    async def taking_few(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        for _ in range(3):
            await asyncio.sleep(0.01)
            taken = await inbox.take()
            seen.append(batches.read - (taken or 0))

    assert list(bridged(batches, taking_few, prefetch=5)) == []
    assert max(seen) <= 5


def test_work_waits_once_its_credits_are_spent() -> None:
    put: list[int] = []
    was_full: list[bool] = []
    may_go = threading.Event()

    async def counting(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        for number in range(10):
            was_full.append(outbox.full)
            if outbox.full:
                may_go.set()
            await outbox.put(number)
            put.append(number)

    results = bridged(iter([]), counting, credits=3)
    first = next(results)
    assert may_go.wait(PATIENCE)
    put_meanwhile = len(put)

    assert [first, *results] == list(range(10))
    assert put_meanwhile <= 1 + 3
    assert was_full[:3] == [False, False, False]


# -- Both threads go on.


def test_work_continues_while_the_next_batch_is_awaited() -> None:
    worked = threading.Event()

    def waiting_for_work() -> Iterator[int]:
        yield 1
        assert worked.wait(PATIENCE)
        yield 2

    async def working(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        while (batch := await inbox.take()) is not None:
            await asyncio.sleep(0)
            worked.set()
            await outbox.put(batch)

    assert list(bridged(waiting_for_work(), working)) == [1, 2]


def test_work_continues_while_no_results_are_fetched() -> None:
    worked = threading.Event()

    async def working(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        await outbox.put(1)
        await asyncio.sleep(0)
        worked.set()
        await outbox.put(2)

    results = bridged(iter([]), working)
    first = next(results)

    assert worked.wait(PATIENCE)
    assert [first, *results] == [1, 2]


def test_results_come_out_before_the_partition_has_ended() -> None:
    results = bridged(Endless(), passing_through)

    assert next(results) == 1
    results.close()


def test_only_the_callers_thread_touches_the_iterator() -> None:
    threads: set[int] = set()

    def noting_the_thread() -> Iterator[int]:
        for number in range(50):
            threads.add(threading.get_ident())
            yield number

    assert sum(bridged(noting_the_thread(), passing_through)) == 1_225
    assert threads == {threading.get_ident()}


# -- Errors.


async def failing_on_seven(number: int) -> int:
    if number == 7:
        raise KeyError("no such card")
    return number


async def looking_up(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
    while (batch := await inbox.take()) is not None:
        await outbox.put(await failing_on_seven(batch))


def test_an_error_of_the_work_is_raised_with_the_user_frames() -> None:
    with pytest.raises(KeyError, match="no such card") as caught:
        list(bridged(iter(range(100)), looking_up))

    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "failing_on_seven" in frames
    assert "looking_up" in frames


def test_results_that_were_put_before_a_failure_come_first() -> None:
    results = bridged(iter(range(100)), looking_up)

    got = [next(results) for _ in range(7)]

    assert got == list(range(7))
    with pytest.raises(KeyError):
        next(results)


def test_of_several_errors_the_first_is_raised_and_the_others_are_noted() -> None:
    async def failing(error: Exception) -> None:
        raise error

    async def failing_three_times(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        async with asyncio.TaskGroup() as group:
            for error in (ValueError("one"), KeyError("two"), OSError("three")):
                group.create_task(failing(error))

    with pytest.raises(ValueError, match="one") as caught:
        list(bridged(iter([]), failing_three_times))

    assert caught.value.__notes__ == ["and 2 more failed with it: KeyError: 'two', OSError: three"]


def test_an_error_alone_has_no_note() -> None:
    with pytest.raises(KeyError) as caught:
        list(bridged(iter(range(100)), looking_up))

    assert not hasattr(caught.value, "__notes__")


def test_the_loop_survives_the_errors_of_a_task() -> None:
    with pytest.raises(KeyError):
        list(bridged(iter(range(100)), looking_up))

    assert sum(bridged(iter(range(5)), looking_up)) == 10


def test_an_error_of_the_iterator_is_raised_unchanged() -> None:
    error = OSError("connection to the JVM lost")

    with pytest.raises(OSError, match="connection to the JVM lost") as caught:
        list(bridged(Broken(error, before=3), passing_through))

    assert caught.value is error


def test_work_sees_its_input_fail() -> None:
    seen: list[object] = []
    error = OSError("connection to the JVM lost")

    async def looking(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        try:
            await passing_through(inbox, outbox)
        except InputFailed as exc:
            seen.append(exc.__cause__)
            raise

    with pytest.raises(OSError, match="JVM"):
        list(bridged(Broken(error, before=3), looking))

    assert seen == [error]


def test_work_that_waits_for_credit_sees_its_input_fail() -> None:
    seen: list[Exception] = []

    async def filling(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        try:
            while True:
                await outbox.put(1)
        except InputFailed as exc:
            seen.append(exc)

    with pytest.raises(OSError, match="lost"):
        list(bridged(Broken(OSError("lost")), filling, credits=1))

    assert len(seen) == 1


def test_work_that_makes_nothing_of_its_failed_input_does_not_hide_the_error() -> None:
    async def swallowing(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        try:
            await inbox.take()
        except InputFailed:
            return

    with pytest.raises(OSError, match="lost"):
        list(bridged(Broken(OSError("lost")), swallowing))


def test_work_that_cancels_itself_does_not_pass_for_the_end_of_the_partition() -> None:
    async def cancelling(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        raise asyncio.CancelledError

    with pytest.raises(ConnectorError, match="cancelled by code of its own"):
        list(bridged(iter([1]), cancelling))


@pytest.mark.parametrize("error", [SystemExit("out"), KeyboardInterrupt("stop")], ids=repr)
def test_an_exit_or_interrupt_is_raised_in_the_callers_thread(error: BaseException) -> None:
    async def leaving(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        list(bridged(iter([]), leaving))

    assert caught.value is error
    assert sum(bridged(iter(range(5)), passing_through)) == 10


@pytest.mark.parametrize(
    "error", [SystemExit("out"), KeyboardInterrupt("stop"), GeneratorExit()], ids=repr
)
def test_an_exit_of_the_callers_thread_in_the_iterator_cancels_the_work(
    error: BaseException,
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    def broken() -> Iterator[int]:
        yield 1
        assert begun.wait(PATIENCE)
        raise error

    async def waiting(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(type(error)):
        list(bridged(broken(), waiting))

    assert cancelled.is_set()


def test_an_interrupt_from_the_keyboard_ends_a_caller_that_waits_for_results() -> None:
    cancelled = threading.Event()

    async def interrupting(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        list(bridged(iter([]), interrupting))

    assert cancelled.is_set()


@pytest.mark.parametrize("arguments", [{"prefetch": 0}, {"credits": 0}, {"credits": True}])
def test_bounds_below_one_are_refused_at_once(arguments: dict[str, int]) -> None:
    with pytest.raises(FlowDefinitionError, match="from 1 on"):
        bridged(iter([1]), passing_through, **arguments)


# -- The end of a task.


def test_a_generator_that_is_closed_early_cancels_its_work_and_waits_for_it() -> None:
    cleaned_up: list[str] = []

    async def cleaning_up(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        try:
            await passing_through(inbox, outbox)
        finally:
            await asyncio.sleep(0.01)
            cleaned_up.append("work")

    results = bridged(Endless(), cleaning_up)
    next(results)
    results.close()

    assert cleaned_up == ["work"]


def test_a_generator_that_was_never_started_makes_no_calls() -> None:
    batches = Endless()

    bridged(batches, passing_through).close()

    assert batches.read == 0


def test_a_coroutine_that_leaked_does_not_run_inside_the_next_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leaked: list[str] = []
    keep: set[asyncio.Task[None]] = set()

    async def leaking() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            leaked.append("ended")

    async def careless(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        keep.add(asyncio.get_running_loop().create_task(leaking()))  # awaited by nobody
        await asyncio.sleep(0)
        await passing_through(inbox, outbox)

    results = list(bridged(iter([1, 2]), careless))

    assert results == [1, 2]
    assert leaked == ["ended"]
    assert "leaking" in caplog.text


def test_coroutines_started_before_the_task_continue_after_it(loop: WorkerLoop) -> None:
    """Like a connection pool that was opened for the worker process."""
    asked, answered, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answering() -> None:
        while not stop.is_set():
            await asked.wait()
            asked.clear()
            answered.set()

    async def asking(inbox: BridgeInput[int], outbox: BridgeOutput[str]) -> None:
        asked.set()
        await answered.wait()
        answered.clear()
        await outbox.put("answered")

    pool = loop.begin(answering, lambda: None)
    answers = [list(bridged(iter([]), asking)) for _ in range(3)]
    loop.soon(stop.set)
    loop.soon(asked.set)

    assert answers == [["answered"]] * 3
    assert pool.wait(PATIENCE)
    assert pool.error is None


def test_work_that_ignores_its_cancellation_is_reported_and_left_on_a_loop_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def stubborn(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        loops.append(asyncio.get_running_loop())
        await outbox.put(1)
        while not release.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue

    async def next_task(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        loops.append(asyncio.get_running_loop())

    results = bridged(iter([]), stubborn, grace=0.02)
    next(results)
    results.close()
    list(bridged(iter([]), next_task))
    release.set()

    assert "stubborn at" in caplog.text
    assert loops[0] is not loops[1]


def test_work_that_blocks_the_loop_does_not_delay_closing_the_generator() -> None:
    release = threading.Event()

    async def blocking(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        await outbox.put(1)
        await asyncio.sleep(0)
        release.wait(PATIENCE)  # on the loop: what nobody should do

    results = bridged(iter([]), blocking, grace=0.02)
    next(results)
    results.close()
    release.set()

    assert sum(bridged(iter(range(5)), passing_through)) == 10


def test_a_leaked_coroutine_that_ignores_its_cancellation_is_left_on_a_loop_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    keep: set[asyncio.Task[None]] = set()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue

    async def careless(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        loops.append(asyncio.get_running_loop())
        keep.add(asyncio.get_running_loop().create_task(stubborn()))
        await outbox.put(1)

    async def next_task(inbox: BridgeInput[int], outbox: BridgeOutput[int]) -> None:
        loops.append(asyncio.get_running_loop())

    with caplog.at_level(logging.WARNING):
        results = list(bridged(iter([]), careless, grace=0.02))
    list(bridged(iter([]), next_task))
    release.set()

    assert results == [1]
    assert "stubborn at" in caplog.text
    assert loops[0] is not loops[1]
