"""The benchmarks run, verify their results and report them; their speed is not tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS, main
from bench.harness import compare

RECORDS = 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    # Fairness takes long; others have tests of their own: tests/bench/nexmark, tests/spark, and tests/connectors.
    [
        one.name
        for one in BENCHMARKS
        if one.name not in ("fairness", "spark", "connectors", "nexmark", "nexmark_history")
    ],
)
def test_a_benchmark_verifies_its_result_and_writes_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures.json"
    monkeypatch.setattr("bench.calls.rates.SLOW", 0.02)  # the run waits for the last calls
    monkeypatch.setattr("bench.calls.limits.FIXED", (200,))
    monkeypatch.setattr(
        sys, "argv", ["bench", name, "--records", str(RECORDS), "--rounds", "1", "--json", str(out)]
    )

    main()

    figures = json.loads(out.read_text())
    assert (figures["name"], figures["records"], figures["verified"]) == (name, RECORDS, True)
    assert name in capsys.readouterr().out


def test_without_a_name_the_benchmarks_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench"])

    main()

    listed = capsys.readouterr().out
    assert all(one.name in listed for one in BENCHMARKS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stateless", "--only", "map"], "--only: stateless has no parts"),
        (["all", "--only", "q1"], "--only: all runs all benchmarks"),
        (["crash", "--only", "q1"], "--only: crash kills pipelines, service, not q1"),
    ],
    ids=["no parts", "all", "crash"],
)
def test_parts_that_do_not_exist_are_refused(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])

    with pytest.raises(SystemExit, match="2"):
        main()

    assert message in capsys.readouterr().err


def test_a_run_with_another_result_than_the_baseline_measures_nothing() -> None:
    with pytest.raises(SystemExit, match="different result"):
        compare("wrong", 1, lambda: 1, lambda: 2, at_least=0.5, rounds=1)
