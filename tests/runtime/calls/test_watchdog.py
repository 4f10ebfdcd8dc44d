"""The watchdog on real loops: code that blocks them is found and named.

A loaded machine may run the watchdog late, which then sees nothing of a short blockage. So code here blocks the loop
until the watchdog has reported it.
"""

# ruff: noqa: ASYNC251 — to block the loop is what these tests are about

from __future__ import annotations

import asyncio
import inspect
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop

import aflow as af
from aflow.runtime import clock
from aflow.runtime.calls.reports import BlockedMetrics, CodeLocation, LoopBlocked
from aflow.runtime.job import Job
from aflow.runtime.recovery import JobEvent
from aflow.testing import CollectSink, VirtualClock
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import virtual_time

#: Longer than a loaded machine usually suspends a thread: the loop would count as blocked for so long.
LIMIT = timedelta(milliseconds=100)

#: Real seconds: beyond the limit.
BLOCKING = 0.25

#: Real seconds after which a missing report fails a test.
PATIENCE = 30.0

#: ``REPORTED.get(timeout=PATIENCE)`` blocks the loop until the watchdog reports that. Written in C, as ``time.sleep``.
REPORTED = queue.SimpleQueue[str]()

LOOPS: list[Any] = [asyncio.SelectorEventLoop, uvloop.new_event_loop]


class Listener(logging.Handler):
    """Calls ``functions`` with each message of the watchdog about a loop that is blocked right now."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.functions: list[Callable[[str], object]] = [REPORTED.put]

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "has been blocking" in message:
            for function in self.functions:
                function(message)


@pytest.fixture(autouse=True)
def listener() -> Iterator[Listener]:
    """The last handler of the log: when it is called, ``caplog`` has the message."""
    while not REPORTED.empty():
        REPORTED.get()
    listener = Listener()
    logging.getLogger().addHandler(listener)
    yield listener
    logging.getLogger().removeHandler(listener)


@dataclass
class Ran:
    events: list[JobEvent]
    blocked: BlockedMetrics

    @property
    def only(self) -> LoopBlocked:
        [event] = self.events
        assert isinstance(event, LoopBlocked)
        return event

    @property
    def where(self) -> CodeLocation:
        assert self.only.where is not None
        return self.only.where


async def running(
    flow: af.Flow,
    limit: timedelta | None = LIMIT,
    beside: Callable[[Job], Awaitable[None]] | None = None,
) -> Ran:
    """Run ``flow`` to its end, doing ``beside`` meanwhile."""
    events: list[JobEvent] = []
    async with flow.start(options=af.Options(watchdog=limit), on_event=events.append) as job:
        if beside is not None:
            await beside(job)
        await job.wait()
    return Ran(events, job.metrics().blocked)


def run(flow: af.Flow, loop: Callable[[], asyncio.AbstractEventLoop] = LOOPS[0]) -> Ran:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(running(flow))


def calling(function: Callable[[int], Awaitable[int]], name: str = "score") -> af.Flow:
    flow = af.Flow(f"flow of {name}")
    called = flow.source([1, 2], name="in").map_async(function, name=name)
    called.to(CollectSink[int](), name="out")
    return flow


def line_of(function: Callable[..., object], text: str) -> int:
    """The line of ``function`` on which ``text`` stands."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


async def score(value: int) -> int:
    await asyncio.sleep(0.02)
    if value == 2:
        REPORTED.get(timeout=PATIENCE)
    return value


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
def test_a_call_that_blocks_the_loop_is_named_with_its_step_its_file_and_its_line(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    ran = run(calling(score), loop)

    assert ran.only.step == "score"
    assert ran.where == CodeLocation(
        function=f"{__name__}.score",
        file=__file__,
        line=line_of(score, "REPORTED.get"),
        code="REPORTED.get(timeout=PATIENCE)",
    )


def test_it_says_how_long_and_counts() -> None:
    started_at = time.monotonic()

    async def block(value: int) -> int:
        await asyncio.sleep(0.02)
        if value == 2:
            REPORTED.get(timeout=PATIENCE)
            time.sleep(BLOCKING)
        return value

    ran = run(calling(block))

    # It was reported after the limit, and lasted for BLOCKING after that.
    assert LIMIT.total_seconds() + BLOCKING <= ran.only.seconds < time.monotonic() - started_at
    assert (ran.blocked.times, ran.blocked.longest_ms) == (1, ran.only.seconds * 1000)
    assert [one.report for one in ran.blocked.latest] == [ran.only]
    assert abs(ran.blocked.latest[0].ended_at - time.time() * 1000) < 60_000


def test_the_log_says_so_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    meanwhile: list[str] = []

    async def block(value: int) -> int:
        await asyncio.sleep(0.02)
        if value == 2:
            REPORTED.get(timeout=PATIENCE)
            meanwhile.extend(caplog.messages)
        return value

    with caplog.at_level(logging.WARNING, "aflow.calls"):
        run(calling(block))

    [during] = meanwhile
    assert "job 'flow of score': step 'score', " in during
    assert "has been blocking the event loop for" in during
    assert "asyncio.to_thread" in during
    assert len(caplog.messages) == 2
    assert " blocked the event loop for " in caplog.messages[1]


def wait_for_message(messages: queue.Queue[str]) -> None:
    messages.get(timeout=PATIENCE)


def test_a_blocking_call_of_a_library_is_reported_at_the_line_of_the_user(
    listener: Listener,
) -> None:
    messages = queue.Queue[str]()
    listener.functions.append(messages.put)

    async def block(value: int) -> int:
        await asyncio.sleep(0.02)
        if value == 2:
            wait_for_message(messages)
        return value

    ran = run(calling(block))

    assert ran.where.function == f"{__name__}.wait_for_message"
    assert ran.where.line == line_of(wait_for_message, ".get(")
    assert ran.where.calls == "queue.Queue.get"


def test_a_library_function_that_is_the_function_of_a_step_is_named(listener: Listener) -> None:
    condition = threading.Condition()

    def notify(message: str) -> None:
        with condition:
            condition.notify()

    listener.functions.append(notify)
    flow = af.Flow("f")
    flow.source([PATIENCE], name="in").map(condition.wait, name="wait").to(CollectSink[bool]())

    with condition:
        ran = run(flow)

    assert ran.only.step == "wait"
    assert ran.where.function == "threading.Condition.wait"


def test_of_steps_that_run_as_one_the_right_one_is_named() -> None:
    def block(value: int) -> int:
        REPORTED.get(timeout=PATIENCE)
        return value

    flow = af.Flow("f")
    (
        flow.source([1], name="in")
        .map(lambda value: value, name="before")
        .map(block, name="the one")
        .map(lambda value: value, name="behind")
        .to(CollectSink[int](), name="out")
    )

    ran = run(flow)

    assert ran.only.step == "the one"
    assert ran.where.function.endswith("block")


def test_a_sink_that_blocks_is_named() -> None:
    async def write(value: int) -> None:
        await asyncio.sleep(0.02)
        REPORTED.get(timeout=PATIENCE)

    flow = af.Flow("f")
    flow.source([1], name="in").to(af.CallbackSink(write), name="out")

    assert run(flow).only.step == "out"


def test_a_source_that_blocks_is_named() -> None:
    async def lines() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0.02)
        REPORTED.get(timeout=PATIENCE)
        yield 2

    flow = af.Flow("f")
    flow.source(lines(), name="in").to(CollectSink[int](), name="out")

    assert run(flow).only.step == "in"


@pytest.mark.parametrize("opening", [True, False], ids=["opening", "closing"])
def test_a_resource_that_blocks_is_named_with_its_step(opening: bool) -> None:
    @asynccontextmanager
    async def connected() -> AsyncGenerator[int]:
        await asyncio.sleep(0.02)
        if opening:
            REPORTED.get(timeout=PATIENCE)
        yield 1
        if not opening:
            REPORTED.get(timeout=PATIENCE)

    async def add(value: int, resource: int) -> int:
        return value + resource

    flow = af.Flow("f")
    flow.source([1], name="in").map_async(
        add, name="score", using=af.Resource(connected, name="risk service")
    ).to(CollectSink[int](), name="out")

    ran = run(flow)
    assert (ran.only.step, ran.only.resource) == ("score", "risk service")
    assert ran.where.function.endswith("connected")
    assert str(ran.only).startswith("step 'score', resource 'risk service', ")


def test_a_slow_function_called_for_many_records_is_found() -> None:
    def slow(value: int) -> int:
        time.sleep(0.02)
        return value

    flow = af.Flow("f")
    # As many as the first batch has, so that they are one callback of the loop.
    flow.source(range(32), name="in").map(slow, name="slow").to(CollectSink[int](), name="out")

    assert run(flow).only.step == "slow"


def test_the_hosts_own_code_is_found_and_belongs_to_no_step() -> None:
    unblocked = asyncio.Event()

    async def host(job: Job) -> None:
        await asyncio.sleep(0.02)
        REPORTED.get(timeout=PATIENCE)
        unblocked.set()

    async def nothing(value: int) -> int:
        await unblocked.wait()
        return value

    ran = asyncio.run(running(calling(nothing), beside=host))

    assert ran.only.step is None
    assert ran.where.function.endswith("host")


def test_a_function_that_holds_the_interpreters_lock_is_found_when_it_is_over() -> None:
    async def add(value: int) -> int:
        await asyncio.sleep(0.02)
        return sum(range(30_000_000)) if value == 2 else value

    # On a busy machine the watching thread may get the lock too late to see it.
    ran = next(found for _ in range(5) if (found := run(calling(add))).events)

    assert ran.only.seconds > LIMIT.total_seconds()
    assert str(ran.only).endswith(f"blocked the event loop for {ran.only.seconds:.3f} s")


def test_many_short_callbacks_are_nobodys_fault() -> None:
    done = asyncio.Event()

    async def crowd(job: Job) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.02)
        for _ in range(800):
            loop.call_soon(time.sleep, 0.0005)
        await asyncio.sleep(0)
        done.set()

    async def nothing(value: int) -> int:
        await done.wait()
        return value

    ran = asyncio.run(running(calling(nothing), beside=crowd))

    assert ran.events == []


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True], ids=["a plain step", "an async step"])
def test_the_hand_over_to_worker_threads_is_never_named(
    asynchronous: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While threads write a checkpoint, a busy job lets go of the interpreter's lock, and gets it back late."""
    monkeypatch.setattr(clock, "_WAKE_UP", BLOCKING)
    handed_over: list[float] = []

    async def checkpoint(job: Job) -> None:
        begun = time.monotonic()
        await job.checkpoint()
        handed_over.append(time.monotonic() - begun)

    async def same(value: int) -> int:
        return value

    flow = af.Flow("f")
    numbers = flow.source(range(100_000_000), name="in")
    called = (
        numbers.map_async(same, name="same", capacity=1)
        if asynchronous
        else numbers.map(abs, name="same")
    )
    called.to(af.DiscardSink(), name="out")

    async def main() -> list[JobEvent]:
        events: list[JobEvent] = []
        storage = af.Checkpointing(storage=tmp_path, every=None)
        options = af.Options(watchdog=LIMIT)
        async with flow.start(
            options=options, checkpointing=storage, on_event=events.append
        ) as job:
            await checkpoint(job)
            await job.cancel()
        return events

    events = asyncio.run(main())

    assert handed_over[0] >= BLOCKING
    assert [event for event in events if isinstance(event, LoopBlocked)] == []


def test_of_two_jobs_on_a_loop_only_the_one_whose_step_it_is_reports() -> None:
    unblocked = asyncio.Event()

    async def innocent(value: int) -> int:
        await unblocked.wait()
        return value

    async def guilty(value: int) -> int:
        await score(value)
        unblocked.set()
        return value

    async def both() -> Sequence[Ran]:
        return await asyncio.gather(
            running(calling(innocent, "innocent")), running(calling(guilty))
        )

    one, other = asyncio.run(both())

    assert one.events == []
    assert other.only.step == "score"


def test_a_loop_in_another_thread_is_watched_as_well() -> None:
    found: list[Ran] = []
    thread = threading.Thread(target=lambda: found.append(run(calling(score))))

    thread.start()
    thread.join()

    assert found[0].only.step == "score"


def watchdogs() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if "watchdog" in one.name]


def assert_watchdogs_end() -> None:
    for one in watchdogs():
        one.join(PATIENCE)
    assert watchdogs() == []


@pytest.mark.parametrize(("limit", "threads"), [(LIMIT, 1), (None, 0)], ids=["on", "off"])
def test_there_is_one_thread_while_the_job_runs_and_none_behind_it(
    limit: timedelta | None, threads: int
) -> None:
    seen: list[int] = []

    async def look(job: Job) -> None:
        seen.append(len(watchdogs()))

    async def nothing(value: int) -> int:
        return value

    async def main() -> None:
        with no_leftovers("the job"):
            await running(calling(nothing), limit, beside=look)
        assert_watchdogs_end()

    asyncio.run(main())

    assert seen == [threads]


def test_jobs_of_a_loop_share_one_thread_and_a_job_hears_nothing_of_the_time_before_it() -> None:
    seen: list[int] = []
    over = asyncio.Event()

    async def nothing(value: int) -> int:
        return value

    async def until_over(value: int) -> int:
        await over.wait()
        return value

    async def look(job: Job) -> None:
        seen.append(len(watchdogs()))

    async def later(first: Job) -> None:
        time.sleep(BLOCKING)
        third = await running(calling(nothing, "third"), beside=look)
        assert third.events == []
        # With another limit it needs its own.
        await running(calling(nothing, "fourth"), 2 * LIMIT, beside=look)
        over.set()

    async def both() -> Sequence[Ran]:
        return await asyncio.gather(
            running(calling(until_over, "first"), beside=later),
            running(calling(nothing, "second"), beside=look),
        )

    async def main() -> Sequence[Ran]:
        ran = await both()
        assert_watchdogs_end()
        return ran

    first, _ = asyncio.run(main())

    assert seen == [1, 1, 2]
    # The host's own code belongs to no step: each job that ran at that time is told.
    assert first.only.step is None


@pytest.mark.parametrize("ending", ["failure", "cancellation"])
def test_no_thread_is_left_however_the_job_ends(ending: str) -> None:
    async def fail(value: int) -> int:
        raise KeyError(value)

    async def hang(value: int) -> int:
        await asyncio.sleep(3600)
        return value

    async def main() -> None:
        task = asyncio.ensure_future(running(calling(fail if ending == "failure" else hang)))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or isinstance(task.exception(), af.OperatorError)
        assert_watchdogs_end()

    asyncio.run(main())


@virtual_time
async def test_nobody_watches_a_loop_of_virtual_time() -> None:
    seen: list[threading.Thread] = []

    async def look(value: int) -> int:
        await asyncio.sleep(3600)
        seen.extend(watchdogs())
        return value

    flow = calling(look)

    await flow.run(options=af.Options(clock=VirtualClock()))
    await calling(look).run()

    assert seen == []


@pytest.mark.parametrize("limit", [timedelta(0), timedelta(seconds=-1), 3])
def test_a_limit_that_makes_no_sense_is_refused(limit: Any) -> None:
    with pytest.raises(af.FlowDefinitionError, match=r"Options\.watchdog"):
        af.Options(watchdog=limit)
