"""After any end of a job, each opened reader, step and writer was closed once, and no task is left."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.runtime.attempt import JobAttempt
from aflow.testing import Pause, VirtualClock, run_flow
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.ledger import Broken, Ledger, failing

HOUR = Pause(timedelta(hours=1))
MINUTE = Pause(timedelta(minutes=1))


def two_branches(ledger: Ledger) -> af.Flow:
    """Two sources, each with a step, an exchange, another step and a slow sink; the second source is silent."""
    flow = af.Flow("two branches")
    for name, lines in {"left": (1, MINUTE, 2, HOUR), "right": (HOUR, 3)}.items():
        (
            flow.source(ledger.source(f"{name} source", *lines), name=f"{name} source")
            .process(ledger.step(f"{name} first"), name=f"{name} first")
            .rebalance()
            .process(ledger.step(f"{name} second"), name=f"{name} second")
            .to(ledger.sink(f"{name} sink", takes=timedelta(seconds=10)), name=f"{name} sink")
        )
    return flow


PLACES = [
    f"{act} left {what}"
    for what, acts in {
        "source": ("list", "open", "read", "close"),
        "first": ("open", "process", "close"),
        "second": ("open", "process", "close"),
        "sink": ("open", "write", "flush", "close"),
    }.items()
    for act in acts
] + ["open right second", "open right sink", "close right sink"]


@pytest.mark.parametrize("place", PLACES)
@virtual_time
async def test_a_failure_anywhere_closes_everything_once_and_reaches_the_host(
    place: str,
) -> None:
    ledger = Ledger(failing(place))
    flow = two_branches(ledger)

    with no_leftovers("the job"), pytest.raises((af.AflowError, Broken)) as caught:
        await flow.run(options=af.Options(clock=VirtualClock()))

    assert place in str(caught.value)
    assert ledger.closed == ledger.opened


@pytest.mark.parametrize(
    ("place", "closing"),
    [
        ("read left source", "close left source"),
        ("process left first", "close left first"),
        ("write left sink", "close left sink"),
        ("open left second", "close left first"),
    ],
)
@virtual_time
async def test_if_closing_fails_too_the_host_sees_the_first_failure(
    place: str, closing: str
) -> None:
    flow = two_branches(Ledger(failing(place, closing)))

    with pytest.raises(af.AflowError, match=place):
        await flow.run(options=af.Options(clock=VirtualClock()))


@pytest.mark.parametrize("steps", range(30))
@pytest.mark.parametrize("seed", [None, 1, 2], ids=repr)
def test_a_cancelled_run_closes_everything_however_early(steps: int, seed: int | None) -> None:
    ledger = Ledger()

    @virtual_time(seed=seed)
    async def cancel_after_some_steps() -> None:
        with no_leftovers("the job"):
            running = asyncio.ensure_future(
                two_branches(ledger).run(options=af.Options(clock=VirtualClock()))
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()

    cancel_after_some_steps()

    assert ledger.closed == ledger.opened


@virtual_time
async def test_a_failure_ends_tasks_that_wait_at_that_moment() -> None:
    loop = asyncio.get_running_loop()

    def fail_at_the_second_record(place: str) -> None:
        if place == "process left second" and loop.time() > 0:
            raise Broken("the second record")

    ledger = Ledger(fail_at_the_second_record)
    flow = two_branches(ledger)

    with pytest.raises(af.OperatorError, match="step 'left second' failed on record 2") as caught:
        await flow.run(options=af.Options(clock=VirtualClock()))

    assert loop.time() == 60.0
    assert isinstance(caught.value.__cause__, Broken)
    assert ledger.closed == ledger.opened


@virtual_time
async def test_cancelling_a_job_takes_no_time_and_raises_nothing() -> None:
    loop = asyncio.get_running_loop()
    ledger = Ledger()

    with no_leftovers("the job"):
        async with two_branches(ledger).start(options=af.Options(clock=VirtualClock())) as job:
            await asyncio.sleep(65)
            await job.cancel()

    assert not job.running
    assert loop.time() == 65.0
    assert ledger.closed == ledger.opened


@virtual_time
async def test_an_exception_in_the_block_ends_the_job_at_once_and_is_not_replaced() -> None:
    loop = asyncio.get_running_loop()
    ledger = Ledger()

    async def host() -> None:
        async with two_branches(ledger).start(options=af.Options(clock=VirtualClock())):
            await asyncio.sleep(5)
            raise KeyError("the host's own")

    with no_leftovers("the job"), pytest.raises(KeyError, match="the host's own"):
        await host()

    assert loop.time() == 5.0
    assert ledger.closed == ledger.opened


@virtual_time
async def test_a_job_that_fails_does_not_cancel_its_host() -> None:
    ledger = Ledger(failing("process left first"))

    async def host() -> str:
        async with two_branches(ledger).start(options=af.Options(clock=VirtualClock())) as job:
            await settle()
            assert not job.running
            await asyncio.sleep(100)
            with pytest.raises(af.OperatorError):
                await job.wait()
            return "went on"

    assert await host() == "went on"


@virtual_time
async def test_a_start_that_fails_after_operators_were_opened_closes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(attempt: JobAttempt, checkpointed: object) -> None:
        raise af.CheckpointError("the restored state cannot be copied")

    monkeypatch.setattr(JobAttempt, "_copy_state", fail)
    ledger, flow = Ledger(), af.Flow("start")
    steps = flow.source(ledger.source("in", 1), name="in").process(ledger.step("step"))
    steps.to(ledger.sink("out"), name="out")

    with pytest.raises(af.CheckpointError, match="cannot be copied"):
        await flow.run(checkpointing=af.Checkpointing(storage=tmp_path / "state"))

    assert ledger.closed == ledger.opened == {"step": 1, "out": 1}


def test_a_job_that_ends_by_itself_closes_everything_once() -> None:
    ledger = Ledger()

    outcome = run_flow(two_branches(ledger), parallelism=2)

    assert outcome.took == timedelta(hours=1, minutes=1)
    assert ledger.closed == ledger.opened
    assert ledger.opened["left sink"] == 2
