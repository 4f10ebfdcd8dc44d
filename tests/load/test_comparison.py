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
    Finding,
    LatencyFigures,
    LatencySample,
    LoadSample,
    Method,
    Phase,
    ProcessFigures,
    Severity,
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

    slower, faster = compare(fast, slow), compare(slow, fast)
    assert {one.figure: one.verdict for one in slower.ratios}["p99 in → out (ms)"] == "worse"
    assert {one.figure: one.verdict for one in faster.ratios}["p99 in → out (ms)"] == "better"
    assert slower.is_worse
    assert not faster.is_worse


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


def test_figures_that_are_missing_in_the_second_run_are_worse() -> None:
    one, other = run_with(10, seed=1), run_with(10, seed=2)
    without = replace(
        other, latencies=[], samples=[replace(sample, latencies=[]) for sample in other.samples]
    )

    found = compare(one, without)

    assert found.is_worse
    assert [text.partition(":")[0] for text in found.missing] == [
        "p50 in → out (ms)",
        "p99 in → out (ms)",
    ]
    assert not compare(without, other).is_worse


def test_results_that_vanish_are_worse() -> None:
    one, other = run_with(10, seed=1), run_with(10, seed=2)
    samples = [replace(sample, results={"out": 0}) for sample in other.samples]

    assert verdicts(one, replace(other, samples=samples))["results out (/s)"] == "worse"


def test_a_run_with_new_errors_is_worse() -> None:
    one = run_with(10, seed=1)
    failed = replace(one, findings=[Finding(severity=Severity.ERROR, text="it failed")])

    assert compare(one, failed).is_worse
    assert not compare(failed, failed).is_worse


def test_latencies_by_markers_are_remarked() -> None:
    one = run_with(10, seed=1)
    markers = replace(one.latencies[0], method=Method.MARKERS, sink="windows", histogram="")

    found = compare(one, replace(one, latencies=[*one.latencies, markers]))

    assert any("by markers, which are not compared" in text for text in found.remarks)


def test_samples_count_by_their_length() -> None:
    one, other = run_with(10, seed=1), run_with(10, seed=2)
    instants = [
        replace(sample, seconds=1e-6, cpu=1000.0, at_s=sample.at_s + 1e-6)
        for sample in other.samples
    ]
    mixed = [sample for pair in zip(other.samples, instants, strict=True) for sample in pair]

    cpu = next(
        figure
        for figure in compare(one, replace(other, samples=mixed)).ratios
        if figure.figure.startswith("cpu")
    )

    assert cpu.verdict == "same"
    assert cpu.after == pytest.approx(0.5, rel=0.1)


def test_runs_that_cannot_be_compared_are_refused() -> None:
    one = run_with(10, seed=1)

    with pytest.raises(BenchError, match="different flows"):
        compare(one, replace(one, flow="other"))
    with pytest.raises(BenchError, match="the second run has 3 samples, and 8 are needed"):
        compare(one, run_with(10, seed=1, samples=3))
