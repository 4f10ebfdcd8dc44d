"""Comparison of saved runs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from aflow.bench.comparison import compare
from aflow.bench.machine import MachineInfo, MachineNoise
from aflow.bench.result import (
    BenchError,
    BenchResult,
    CheckpointFigures,
    LatencyFigures,
    LatencySample,
    LoadSample,
    Method,
    Phase,
    ProcessFigures,
    SinkFigures,
    SourceFigures,
)


def run_with(p99_ms: float, *, seed: int, samples: int = 30, noise: float = 0.1) -> BenchResult:
    """Return a result whose samples have a p99 near ``p99_ms``."""
    rng = random.Random(seed)
    taken = [
        LoadSample(
            at_s=number + 1.0,
            seconds=1.0,
            phase=Phase.MEASURED,
            offered={"in": 100 * number},
            accepted={"in": 100 * number},
            processed={"in": 100 * number},
            results={"out": 100 * number},
            latencies=[
                LatencySample(
                    source="in",
                    sink="out",
                    count=100,
                    p50_ms=p99_ms / 4 * rng.uniform(1 - noise, 1 + noise),
                    p99_ms=p99_ms * rng.uniform(1 - noise, 1 + noise),
                    max_ms=p99_ms * 2,
                )
            ],
            tasks={},
            lag_ms={},
            calls={},
            loop_lag_ms=0.1,
            cpu=0.5 * rng.uniform(1 - noise, 1 + noise),
            rss_bytes=1,
            gc_ms=0.0,
            checkpoints=0,
        )
        for number in range(samples)
    ]
    return BenchResult(
        flow="flow",
        started_at="2026-01-01T00:00:00+00:00",
        aflow="0.1.0",
        machine=MachineInfo("cpu", 2, "Linux", "CPython", "uvloop.Loop"),
        noise=MachineNoise(0.1, 0.1, 0.1),
        warmup_s=0.0,
        duration_s=float(samples),
        in_flight=None,
        sources=[
            SourceFigures(
                name="in",
                arrivals="100/s",
                offered=1,
                accepted=1,
                processed=1,
                offered_per_s=100.0,
                accepted_per_s=100.0,
                processed_per_s=100.0,
                backlog=0,
                abandoned=0,
                generator_share=0.0,
                generator_per_s=1e6,
            )
        ],
        sinks=[SinkFigures(name="out", kept=False, results=1, results_per_s=100.0)],
        latencies=[
            LatencyFigures(
                source="in",
                sink="out",
                method=Method.RECORDS,
                count=100,
                mean_ms=p99_ms,
                percentiles_ms={"99": p99_ms},
                max_ms=p99_ms,
                histogram="x",
            )
        ],
        tasks={},
        calls={},
        checkpoints=CheckpointFigures(
            completed=0,
            failed=0,
            duration_p50_ms=0.0,
            duration_max_ms=0.0,
            pause_max_ms=0.0,
            bytes_last=0,
        ),
        blocked=[],
        process=ProcessFigures(
            cpu=0.5,
            rss_max_bytes=1,
            gc_count=0,
            gc_total_ms=0.0,
            gc_max_ms=0.0,
            loop_lag_p50_ms=0.1,
            loop_lag_p99_ms=0.1,
            loop_lag_max_ms=0.1,
        ),
        restarts=0,
        findings=[],
        samples=taken,
    )


def verdicts(before: BenchResult, after: BenchResult) -> dict[str, str]:
    return {one.figure: one.verdict for one in compare(before, after).ratios}


def test_a_clear_difference_is_worse_in_one_direction_and_better_in_the_other() -> None:
    slow, fast = run_with(20, seed=1), run_with(10, seed=2)

    assert verdicts(fast, slow)["p99 in → out (ms)"] == "worse"
    assert verdicts(slow, fast)["p99 in → out (ms)"] == "better"
    assert compare(fast, slow).is_worse
    assert not compare(slow, fast).is_worse


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_difference(seed: int) -> None:
    one, other = run_with(10, seed=seed, noise=0.4), run_with(10, seed=seed + 100, noise=0.4)

    assert set(verdicts(one, other).values()) == {"same"}


def test_a_small_difference_is_within_the_tolerance() -> None:
    one, other = run_with(100, seed=1, noise=0.001), run_with(102, seed=2, noise=0.001)

    assert verdicts(one, other)["p99 in → out (ms)"] == "same"
    small = compare(one, other, tolerance=0.01)
    assert small.is_worse


def test_the_interval_contains_the_true_ratio() -> None:
    found = compare(run_with(10, seed=3, noise=0.3), run_with(15, seed=4, noise=0.3))

    p99 = next(one for one in found.ratios if one.figure.startswith("p99"))
    assert p99.low < 1.5 < p99.high
    assert p99.high - p99.low < 0.3


def test_different_loads_and_machines_are_remarked() -> None:
    one = run_with(10, seed=1)
    load = replace(one.sources[0], arrivals="200/s")
    machine = replace(one.machine, cores=8)

    found = compare(one, replace(one, sources=[load], machine=machine))

    assert any("the loads differ" in remark for remark in found.remarks)
    assert any("the machines differ" in remark for remark in found.remarks)


def test_runs_that_cannot_be_compared_are_refused() -> None:
    one = run_with(10, seed=1)

    with pytest.raises(BenchError, match="different flows"):
        compare(one, replace(one, flow="other"))
    with pytest.raises(BenchError, match="the second run has 3 samples, and 8 are needed"):
        compare(one, run_with(10, seed=1, samples=3))
