"""Limits of asynchronous steps in real pipelines, in virtual time: rates, shared rates, and how jobs end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.testing import CollectSink, Crash, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import NothingCanHappen, run, virtual_time
from tests.runtime.calls.limited_service import SECOND, NotedService, check_rate

MS = timedelta(milliseconds=1)


def limited(
    source: af.Source[int] | range, service: NotedService, **options: Any
) -> tuple[af.Flow, CollectSink[int]]:
    flow, sink = af.Flow("limited"), CollectSink[int]()
    flow.source(source, name="numbers").map_async(service.ask, name="ask", **options).to(
        sink, name="out"
    )
    return flow, sink


@pytest.mark.parametrize("capacity", [1, 100, 1000])
@pytest.mark.parametrize(("count", "number"), [(3, 12), (70, 280), (10_000, 20_000)])
def test_the_rate_is_reached_and_not_exceeded(count: int, number: int, capacity: int) -> None:
    limit = af.calls.RateLimit[int](count, per=SECOND)
    service = NotedService(takes=0)
    flow, sink = limited(range(number), service, rate=limit, capacity=capacity)

    took = run_flow(flow).took.total_seconds()

    assert sink.values == list(range(number))
    check_rate(service.begun, limit)
    assert took == pytest.approx((number - limit.units_at_once) / count, rel=0.01)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("chaining", [True, False])
def test_steps_and_subtasks_that_share_a_limit_keep_it_with_retries_and_groups(
    seed: int, chaining: bool
) -> None:
    failed: set[int] = set()

    def fails_once(number: int, now: float) -> bool:
        fails = number % 5 == 0 and number not in failed
        failed.add(number)
        return fails

    limit = af.calls.RateLimit[int](100, per=SECOND, shared="api")
    service = NotedService(fails=fails_once)
    flow, sink = af.Flow("shared"), CollectSink[int]()
    first = flow.source(range(100), name="first").rebalance(3)
    second = flow.source(range(1000, 1100), name="second")
    first.map_async(
        service.ask, name="one by one", rate=limit, retry=af.Retry(delay=10 * MS), ordered=False
    ).to(sink, name="out 1")
    second.map_batch_async(
        service.ask_all, name="groups", size=4, delay=10 * MS, rate=_with_cost(limit)
    ).to(sink, name="out 2")

    took = run_flow(flow, seed=seed, options=af.Options(chaining=chaining)).took.total_seconds()

    assert sorted(sink.values) == [*range(100), *range(1000, 1100)]
    assert len(service.begun) == 220
    check_rate_of_groups(service.begun, limit)
    # A place that is given up may not be taken for a moment, by those who were told to come later.
    assert 2.1 <= took <= 2.6


def _with_cost(limit: af.calls.RateLimit[int]) -> af.calls.RateLimit[int]:
    return af.calls.RateLimit(
        limit.count, per=limit.per, shared=limit.shared, cost=lambda number: 1
    )


def check_rate_of_groups(begun: list[tuple[float, int]], limit: af.calls.RateLimit[int]) -> None:
    """Records of a group that were called for together do not exceed the burst here, so each counts by itself."""
    check_rate(begun, limit)


def test_calls_that_cost_more_than_the_burst_are_made_one_after_the_other() -> None:
    limit = af.calls.RateLimit[int](100, per=SECOND, burst=10, cost=float)
    service = NotedService()
    flow, sink = limited(ScriptedSource(50, 50, 50, 5, 50), service, rate=limit)

    run_flow(flow)

    check_rate(service.begun, limit, float)
    assert service.times == pytest.approx([0, 0.5, 1.0, 1.45, 1.55], abs=0.005)
    assert sink.values == [50, 50, 50, 5, 50]


def test_kept_results_take_nothing_of_the_rate() -> None:
    limit = af.calls.RateLimit[int](1, per=SECOND)
    service = NotedService(takes=0)
    flow, sink = limited(
        ScriptedSource(*[1, 2] * 500), service, rate=limit, cache=af.calls.Cache[int, int](10)
    )

    took = run_flow(flow).took

    assert service.numbers == [1, 2]
    assert (took, len(sink.values)) == (SECOND, 1000)


# ------------------------------------------------------------------------------------- who shares a limit


def test_a_step_that_is_held_leaves_the_rate_to_others() -> None:
    limit = af.calls.RateLimit[int](100, per=SECOND, burst=1, shared="api")
    held, other, slow = NotedService(takes=0), NotedService(takes=0), NotedService(takes=1)
    flow, sink = af.Flow("held"), CollectSink[int]()
    asked = flow.source(range(40), name="in 1").map_async(held.ask, name="held", rate=limit)
    asked.map_async(slow.ask, name="slow", capacity=1).to(sink, name="out 1")
    flow.source(range(3000), name="in 2").map_async(other.ask, name="other", rate=limit).to(
        sink, name="out 2"
    )

    run_flow(flow, options=af.Options(batch_records=1, channel_records=1))

    check_rate(sorted(held.begun + other.begun), limit)
    # It makes a call a second. Not to be there for its turn would cost the others a quarter of each second.
    assert held.within(5, 15) == pytest.approx(10, abs=1)
    assert other.within(5, 15) > 950


def test_a_step_whose_input_has_ended_leaves_the_rate_to_others() -> None:
    limit = af.calls.RateLimit[int](100, per=SECOND, burst=1, shared="api")
    first, second = NotedService(takes=5), NotedService(takes=0)
    flow, sink = af.Flow("ended"), CollectSink[int]()
    flow.source(range(100), name="in 1").map_async(first.ask, name="first", rate=limit).to(
        sink, name="out 1"
    )
    flow.source(range(1000), name="in 2").map_async(second.ask, name="second", rate=limit).to(
        sink, name="out 2"
    )

    run_flow(flow)

    assert second.within(0, 2) == pytest.approx(100, abs=3)
    assert second.within(3, 10) == pytest.approx(700, abs=5)


# --------------------------------------------------------------------------------------------- how jobs end


async def waiting(flow: af.Flow, seconds: float) -> None:
    """Run so long, and then end the job."""
    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        await asyncio.sleep(seconds)
        await job.cancel()


@pytest.mark.parametrize(
    "options",
    [
        {"rate": af.calls.RateLimit[int](1, per=timedelta(hours=1))},
        {"breaker": af.calls.CircuitBreaker(calls=1, pause=timedelta(hours=1), max_pause=None)},
    ],
    ids=["rate", "breaker"],
)
def test_a_job_that_ends_while_calls_wait_leaves_no_timer_behind(options: dict[str, Any]) -> None:
    service = NotedService(fails=lambda number, now: True)
    flow, _ = limited(range(100), service, on_error=af.calls.Drop(), **options)

    async def main() -> None:
        with no_leftovers("the job"):
            await waiting(flow, 10)
        await asyncio.Event().wait()

    with pytest.raises(NothingCanHappen, match=r"virtual time 10\.0 s"):
        run(main)


@virtual_time
async def test_a_job_is_stopped_with_a_drain_when_all_that_it_took_was_called_for() -> None:
    service = NotedService()
    limit = af.calls.RateLimit[int](10, per=SECOND)
    source = ScriptedSource(*range(50), Pause(timedelta(hours=1)))
    flow, sink = limited(source, service, rate=limit)
    loop = asyncio.get_running_loop()

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        await asyncio.sleep(1)
        await job.stop(drain=True)

    assert sink.values == list(range(50))
    assert loop.time() == pytest.approx(4.95, abs=0.01)


# --------------------------------------------------------------------------------------- snapshots and restarts


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 1)])
@virtual_time
async def test_calls_that_wait_are_in_a_savepoint_and_go_on_at_the_rate(
    tmp_path: Path, before: int, after: int
) -> None:
    limit = af.calls.RateLimit[int](50, per=SECOND, shared="api")
    first, second = NotedService(), NotedService()
    options = af.Options(clock=VirtualClock())
    sinks = [CollectSink[int](), CollectSink[int]()]

    def flow(service: NotedService, sink: CollectSink[int]) -> af.Flow:
        made = af.Flow("savepoint")
        numbers = made.source(ScriptedSource(*range(100), Pause(SECOND)), name="numbers")
        numbers.key_by(lambda number: number).map_async(service.ask, name="ask", rate=limit).to(
            sink, name="out"
        )
        return made

    def every_hour(folder: str) -> af.Checkpointing:
        return af.Checkpointing(every=timedelta(hours=1), storage=tmp_path / folder)

    async with flow(first, sinks[0]).start(
        parallelism=before, options=options, checkpointing=every_hour("first")
    ) as job:
        await asyncio.sleep(1.02)
        await job.savepoint(tmp_path / "savepoint")
        await job.cancel()
    async with flow(second, sinks[1]).start(
        parallelism=after,
        options=options,
        checkpointing=every_hour("second"),
        restore=tmp_path / "savepoint",
    ) as job:
        await job.wait()

    assert 50 <= len(first.begun) <= 56
    assert sorted(sinks[0].values + sinks[1].values) == list(range(100))
    check_rate([(at - second.times[0], number) for at, number in second.begun], limit)


def test_a_restarted_job_calls_again_at_the_rate(tmp_path: Path) -> None:
    limit = af.calls.RateLimit[int](20, per=SECOND)
    service = NotedService()
    source = ScriptedSource(*range(30), Pause(SECOND), Crash(), *range(30, 60))
    flow, sink = limited(source, service, rate=limit)

    run_flow(
        flow,
        checkpointing=af.Checkpointing(every=100 * MS, storage=tmp_path),
        restart=af.restart.FixedDelay(attempts=3, delay=SECOND),
    )

    assert sink.values == list(range(60))
    before = [one for one in service.begun if one[0] < 1.5]
    after = [one for one in service.begun if one[0] >= 1.5]
    check_rate(before, limit)
    check_rate([(at - after[0][0], number) for at, number in after], limit)


# ------------------------------------------------------------------------------------- what users get wrong


def broken(value: object) -> Any:
    raise KeyError(f"price of {value}")


async def always_fails(number: int) -> int:
    raise ValueError("no")


@pytest.mark.parametrize(
    "options",
    [
        {"rate": af.calls.RateLimit[int](10, per=SECOND, cost=broken)},
        {"deadline": broken, "rate": af.calls.RateLimit[int](10, per=SECOND)},
        {"breaker": af.calls.CircuitBreaker(on=broken)},
        {"capacity": af.calls.Adaptive(on=broken)},
    ],
    ids=["cost", "deadline", "breaker", "adaptive"],
)
@pytest.mark.parametrize("on_error", [af.calls.Fail(), af.calls.Drop()], ids=repr)
def test_a_function_that_raises_fails_the_job_with_the_record(
    options: dict[str, Any], on_error: Any
) -> None:
    flow, sink = af.Flow("broken"), CollectSink[int]()
    flow.source(range(41, 50), name="in").map_async(
        always_fails, name="ask", on_error=on_error, **options
    ).to(sink, name="out")

    with pytest.raises(af.OperatorError, match="step 'ask' failed on record 41: KeyError: 'price"):
        run_flow(flow)


@pytest.mark.parametrize("cost", [-1, float("nan"), float("inf"), "much", None])
def test_a_cost_that_is_none_fails_the_job_with_the_record(cost: Any) -> None:
    limit = af.calls.RateLimit[int](10, per=SECOND, cost=lambda number: cost)
    flow, _ = limited(range(7, 9), NotedService(), rate=limit, on_error=af.calls.Drop())

    with pytest.raises(
        af.OperatorError, match=r"'ask' failed on record 7: ValueError: RateLimit\.cost must give"
    ):
        run_flow(flow)
