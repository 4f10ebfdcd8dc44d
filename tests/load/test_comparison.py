"""Comparison of saved runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aflow.bench.comparison import compare
from aflow.bench.result import BenchError, BenchResult, Finding, Method, Severity
from tests.load.made_results import run_with


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
