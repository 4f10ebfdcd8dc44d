"""Runs of flows under load, in virtual time where possible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import aflow as af
from aflow.bench import BenchError, BenchResult, ConstantRate, SourceLoad, run
from aflow.bench.oracle import check_results
from aflow.bench.result import Method, Phase
from aflow.errors import FlowDefinitionError
from aflow.testing.virtual_time import virtual_time
from tests.load.flows import SECOND, after_50_ms, calling, doubling


def number(n: int) -> int:
    return n


async def asynchronous(sent: object, received: object) -> bool:
    return False


def divmod_of(one: int, other: int) -> tuple[int, int]:
    return divmod(one, other)


@virtual_time
async def test_each_record_is_offered_accepted_and_processed_once() -> None:
    result = await run(
        doubling(), {"numbers": number}, rate=100, duration=5 * SECOND, warmup=SECOND
    )

    (source,), (sink,) = result.sources, result.sinks
    assert (source.offered, source.accepted, source.processed) == pytest.approx((500,) * 3, abs=1)
    assert source.offered_per_s == pytest.approx(100, rel=0.01)
    assert sink.results == pytest.approx(500, abs=1)
    assert (result.warmup_s, result.duration_s) == pytest.approx((1, 5))
    assert result.ok


@virtual_time
async def test_records_of_the_warm_up_do_not_count() -> None:
    result = await run(
        doubling(), {"numbers": number}, rate=100, duration=SECOND, warmup=4 * SECOND
    )

    assert result.latency("numbers", "out").count == 100


@virtual_time
async def test_latency_counts_from_the_intended_time_also_while_the_pipeline_stalls() -> None:
    """A call of 1 s for one record after the other: those that wait for the stall are not omitted."""

    async def stall(n: int) -> int:
        if n == 100:
            await asyncio.sleep(1)
        return n

    flow = calling(stall, capacity=1)
    result = await run(flow, {"numbers": number}, rate=100, duration=4 * SECOND, warmup=timedelta())

    figures = result.latency()
    # The 100 records of the stall wait between 0 and 1 s each; the others are processed at once.
    assert figures.max_ms == pytest.approx(1000, rel=0.02)
    assert figures.percentiles_ms["50"] == pytest.approx(0, abs=1)
    assert figures.percentiles_ms["90"] == pytest.approx(600, rel=0.15)


@virtual_time
async def test_the_latency_of_unordered_calls_is_that_of_each_record() -> None:
    async def call(n: int) -> int:
        await asyncio.sleep(1.0 if n % 10 == 0 else 0.02)
        return n

    flow = af.Flow("unordered")
    numbers = flow.source([0], name="numbers")
    numbers.map_async(call, capacity=50, ordered=False, name="call").to(
        af.CollectSink[int](), name="out"
    )
    result = await run(flow, {"numbers": number}, rate=20, duration=20 * SECOND, warmup=SECOND)

    figures = result.latency()
    assert figures.method is Method.RECORDS
    assert figures.percentiles_ms["50"] == pytest.approx(20, rel=0.05)
    assert figures.percentiles_ms["95"] == pytest.approx(1000, rel=0.05)


@virtual_time
async def test_a_closed_loop_has_a_number_of_records_in_flight() -> None:
    flow = calling(after_50_ms, capacity=100)
    result = await run(flow, {"numbers": number}, in_flight=5, duration=5 * SECOND, warmup=SECOND)

    (source,) = result.sources
    assert source.accepted_per_s == pytest.approx(100, rel=0.02)
    assert result.latency().percentiles_ms["50"] == pytest.approx(50, rel=0.02)
    assert source.arrivals == "closed loop, 5 in flight"


@virtual_time
async def test_results_of_windows_are_measured_by_markers_and_the_result_says_so() -> None:
    flow = af.Flow("windows")
    words = flow.source(["a"], name="words").key_by(lambda word: word, name="key")
    windows = words.window(af.Tumbling(SECOND, domain=af.TimeDomain.PROCESSING))
    windows.fold(int, lambda n, _: n + 1, name="count").to(
        af.CollectSink[af.Windowed[str, int]](), name="out"
    )
    result = await run(flow, {"words": ["a", "b"]}, rate=50, duration=5 * SECOND, warmup=SECOND)

    assert result.latency("words", "out").method is Method.MARKERS
    assert any("measured by" in one.text and "markers" in one.text for one in result.findings)
    assert result.sinks[0].results >= 8


@virtual_time
async def test_an_overloaded_pipeline_is_an_error_with_its_bottleneck() -> None:
    flow = calling(after_50_ms, capacity=2)
    result = await run(
        flow,
        {"numbers": number},
        rate=100,
        duration=10 * SECOND,
        patience=SECOND,
        sample_every=SECOND,
    )

    (problem, abandoned) = result.problems
    assert "the pipeline is slower than the load of source 'numbers'" in problem
    assert "the calls of step 'call': 2 of 2 in flight" in problem
    assert "never accepted" in abandoned
    with pytest.raises(BenchError, match="slower than the load"):
        result.check()


@virtual_time
async def test_a_generator_with_too_few_records_is_an_error() -> None:
    result = await run(
        doubling(), {"numbers": iter(range(30))}, rate=10, duration=10 * SECOND, warmup=SECOND
    )

    assert result.problems == [
        "the generator of source 'numbers' ended before the load: it has too few records"
    ]


@virtual_time
async def test_a_source_that_ended_early_does_not_count_as_slower() -> None:
    flow = af.Flow("two")
    short = flow.source([0], name="short")
    short.union(flow.source([0], name="long")).to(af.CollectSink[int](), name="out")

    result = await run(
        flow, {"short": iter(range(30)), "long": number}, rate=10, duration=10 * SECOND
    )

    assert result.problems == [
        "the generator of source 'short' ended before the load: it has too few records"
    ]


@virtual_time
async def test_each_run_with_one_checkpoint_folder_has_all_its_records(tmp_path: Path) -> None:
    for restore in (None, None, "latest"):
        options: dict[str, Any] = {} if restore is None else {"restore": restore}
        result = await run(
            doubling(),
            {"numbers": number},
            rate=10,
            duration=3 * SECOND,
            warmup=SECOND,
            checkpointing=af.Checkpointing(storage=tmp_path, every=SECOND),
            **options,
        )

        assert result.sources[0].accepted == pytest.approx(30, abs=1)
        assert result.ok


@virtual_time
async def test_a_closed_loop_continues_after_a_restart() -> None:
    """The records in flight of the failed attempt are lost, and others take their places."""
    failed: list[int] = []

    async def call(n: int) -> int:
        await asyncio.sleep(0.05)
        if n >= 40 and not failed:
            failed.append(n)
            raise ValueError("no such number")
        return n

    result = await run(
        calling(call, capacity=100),
        {"numbers": number},
        in_flight=5,
        duration=5 * SECOND,
        warmup=SECOND,
        restart=af.restart.FixedDelay(attempts=2, delay=timedelta(milliseconds=100)),
    )

    assert failed
    assert result.restarts == 1
    assert result.sources[0].accepted_per_s == pytest.approx(100, rel=0.05)


@pytest.mark.asyncio
async def test_a_rate_beyond_the_generator_is_refused_before_the_run() -> None:
    def slow(n: int) -> int:
        time.sleep(0.001)
        return n

    with pytest.raises(
        BenchError, match=r"cannot measure 100,000 records per second: the generator"
    ):
        await run(doubling(), {"numbers": slow}, rate=100_000, duration=SECOND)


@pytest.mark.asyncio
async def test_a_generator_that_becomes_slower_than_the_rate_is_reported() -> None:
    def records() -> Iterator[int]:
        yield from range(20_300)  # more than the trial of the generator makes
        while True:
            time.sleep(0.0002)
            yield 0

    result = await run(
        doubling(),
        {"numbers": SourceLoad(records, ConstantRate(40_000))},
        duration=timedelta(seconds=0.8),
        warmup=timedelta(seconds=0.5),
        patience=timedelta(seconds=0.1),
        options=af.Options(watchdog=None),
    )

    slower = [one for one in result.problems if "is slower than the rate" in one]
    assert len(slower) == 1
    assert slower[0].startswith("the generator of source 'numbers'")


@virtual_time
async def test_what_was_measured_before_a_failure_is_kept() -> None:
    def fail(n: int) -> int:
        if n == 250:
            raise ValueError("no such number")
        return n

    flow = af.Flow("failing")
    flow.source([0], name="numbers").map(fail, name="fail").to(af.CollectSink[int](), name="out")
    result = await run(flow, {"numbers": number}, rate=100, duration=10 * SECOND, warmup=SECOND)

    assert result.failure is not None
    assert "no such number" in result.failure
    assert result.duration_s == pytest.approx(1.5, abs=0.1)
    assert result.latency().count == pytest.approx(150, abs=2)
    assert result.problems[0].startswith("the pipeline failed after 2.5 s")


@virtual_time
async def test_a_run_that_is_stopped_has_the_figures_until_then() -> None:
    stop = asyncio.Event()

    def end(sample: object) -> None:
        stop.set()

    result = await run(
        doubling(),
        {"numbers": number},
        rate=100,
        duration=60 * SECOND,
        warmup=timedelta(),
        on_sample=end,
        sample_every=2 * SECOND,
        stop=stop,
    )

    assert result.interrupted
    assert result.sources[0].backlog == 0
    assert result.sources[0].accepted == pytest.approx(200, abs=60)
    assert result.ok
    assert any("interrupted" in one.text for one in result.findings)


@virtual_time
async def test_a_pipeline_that_does_not_end_is_cancelled_and_reported() -> None:
    async def hang(n: int) -> int:
        await asyncio.sleep(3600)
        return n

    result = await run(
        calling(hang), {"numbers": number}, rate=1, duration=3 * SECOND, drain=5 * SECOND
    )

    assert any("did not process everything in time" in one for one in result.problems)


@virtual_time
async def test_a_kept_sink_is_measured_when_it_has_written() -> None:
    written: list[int] = []

    async def write(n: int) -> None:
        await asyncio.sleep(0.1)
        written.append(n)

    result = await run(
        doubling(af.CallbackSink(write)),
        {"numbers": number},
        rate=5,
        duration=4 * SECOND,
        warmup=timedelta(),
        keep=["out"],
    )

    assert written == [2 * n for n in range(20)]
    assert result.latency().percentiles_ms["50"] == pytest.approx(100, rel=0.02)
    assert result.sinks[0].kept


@virtual_time
async def test_sources_that_are_not_named_remain_and_the_run_ends_nevertheless() -> None:
    flow, rules = af.Flow("two"), af.PushSource[int]()
    numbers = flow.source([0], name="numbers")
    numbers.union(flow.source(rules, name="rules")).to(af.CollectSink[int](), name="out")

    result = await run(flow, {"numbers": number}, rate=10, duration=3 * SECOND, warmup=SECOND)

    assert result.sinks[0].results == pytest.approx(30, abs=1)
    assert result.ok


@virtual_time
async def test_the_oracle_gets_all_records_and_results() -> None:
    seen: list[int] = []

    def oracle(sent: dict[str, list[int]], received: dict[str, list[int]]) -> None:
        seen.append(len(sent["numbers"]))
        assert received["out"] == [2 * n for n in sent["numbers"]]

    result = await run(doubling(), {"numbers": number}, rate=10, duration=3 * SECOND, oracle=oracle)

    assert result.ok
    assert seen == [36]


@virtual_time
async def test_wrong_results_are_errors() -> None:
    flow = af.Flow("two-sinks")
    numbers = flow.source([0], name="numbers")
    numbers.to(af.CollectSink[int](), name="old")
    numbers.map(lambda n: -n if n == 7 else n, name="change").to(af.CollectSink[int](), name="new")

    result = await run(
        flow,
        {"numbers": number},
        rate=10,
        duration=3 * SECOND,
        oracle=lambda sent, received: False,
        equal=[("old", "new")],
    )

    assert result.problems == [
        "the results are wrong: the oracle returned False",
        "the results of sinks 'old' and 'new' differ: 1 only in the first, such as 7; 1 only in the second, such as -7",
    ]


@pytest.mark.parametrize(
    ("verdict", "is_right"), [(None, True), (True, True), (0, False), ("", False)], ids=repr
)
def test_an_oracle_says_that_results_are_wrong_by_any_false_value(
    verdict: object, is_right: bool
) -> None:
    assert check_results(lambda sent, received: verdict, [], [], {}) == (
        [] if is_right else [f"the results are wrong: the oracle returned {verdict!r}"]
    )


def test_an_oracle_that_returns_an_awaitable_checks_nothing() -> None:
    (problem,) = check_results(lambda sent, received: asynchronous(sent, received), [], [], {})

    assert problem.startswith("the results were not checked: the oracle returned an awaitable")


@virtual_time
async def test_samples_show_each_phase() -> None:
    samples: list[Phase] = []

    result = await run(
        doubling(),
        {"numbers": number},
        rate=10,
        duration=4 * SECOND,
        warmup=SECOND,
        sample_every=SECOND,
        on_sample=lambda sample: samples.append(sample.phase),
    )

    assert samples[:5] == [Phase.WARMUP, *[Phase.MEASURED] * 4]
    assert [one.accepted["numbers"] for one in result.measured_samples] == [20, 30, 40, 50]


@pytest.mark.asyncio
async def test_periods_that_a_blocked_loop_missed_have_one_sample() -> None:
    def block(n: int) -> int:
        if n == 10:
            time.sleep(0.3)
        return n

    flow = af.Flow("blocked")
    flow.source([0], name="numbers").map(block, name="block").to(af.CollectSink[int](), name="out")
    result = await run(
        flow,
        {"numbers": number},
        rate=100,
        duration=timedelta(seconds=0.6),
        warmup=timedelta(),
        sample_every=timedelta(milliseconds=50),
        options=af.Options(watchdog=None),
    )

    lengths = [one.seconds for one in result.measured_samples]
    assert max(lengths) > 0.29
    # Other programs block the loop, too: a short sample only follows one that was late by nearly a period.
    assert sum(one < 0.005 for one in lengths) <= sum(one > 0.09 for one in lengths)


@virtual_time
async def test_a_saved_result_is_read_again(tmp_path: Path) -> None:
    from aflow.bench import load_result

    path = tmp_path / "run.json"
    result = await run(doubling(), {"numbers": number}, rate=10, duration=SECOND)
    result.save(path)

    assert load_result(path) == result
    assert isinstance(load_result(path), BenchResult)


@pytest.mark.parametrize(
    ("arguments", "message"),
    cast(
        "list[tuple[dict[str, Any], str]]",
        [
            ({"sources": {"other": number}, "rate": 1}, "has no source 'other', but 'numbers'"),
            ({"sources": {}, "rate": 1}, "at least one of its sources: 'numbers'"),
            ({"rate": 1, "keep": ["none"]}, "has no sink 'none', but 'out'"),
            ({}, "has no rate"),
            ({"rate": 1, "in_flight": 3}, "not both"),
            ({"in_flight": 0}, "in_flight of a load"),
            ({"rate": 1, "duration": timedelta(0)}, "duration of a load"),
            ({"rate": 1, "duration": 30}, "duration of a load"),
            ({"rate": 1, "oracle": asynchronous}, "the oracle of a load is a function that is not"),
            ({"rate": 1, "equal": [("out", "x")]}, "equal names sink 'x'"),
            ({"sources": {"numbers": 7}, "rate": 1}, "a function that makes records"),
            ({"sources": {"numbers": lambda: 7}, "rate": 1}, "which is no iterable"),
            ({"sources": {"numbers": divmod_of}, "rate": 1}, "more than one argument"),
            ({"sources": {"numbers": iter(())}, "rate": 1}, "has no records"),
        ],
    ),
    ids=range(14),
)
@pytest.mark.asyncio
async def test_loads_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    sources = arguments.pop("sources", {"numbers": number})

    with pytest.raises(FlowDefinitionError, match=message):
        await run(doubling(), sources, **arguments)


@pytest.mark.asyncio
async def test_a_source_whose_watermarks_are_needed_cannot_be_replaced() -> None:
    flow = af.Flow("watermarks")
    flow.source([0], name="numbers").event_time(
        lambda n: n, source_watermarks=True, name="time"
    ).to(af.CollectSink[int](), name="out")

    with pytest.raises(
        FlowDefinitionError, match="'numbers' cannot be replaced by a load: step 'time'"
    ):
        await run(flow, {"numbers": number}, rate=1)


@pytest.mark.asyncio
async def test_a_sink_whose_results_the_host_takes_cannot_be_kept() -> None:
    flow = af.Flow("results")
    flow.source([0], name="numbers").to(af.ResultSink[int](), name="out")

    with pytest.raises(FlowDefinitionError, match="'out' is a ResultSink"):
        await run(flow, {"numbers": number}, rate=1, keep=["out"])


@pytest.mark.asyncio
async def test_a_function_that_builds_no_flow_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"is no aflow\.Flow"):
        await run(lambda: None, {"numbers": number}, rate=1)  # type: ignore[arg-type, return-value]
