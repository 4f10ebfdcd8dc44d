"""The page of all benchmarks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import results
from bench.harness import Budget, Measurement
from bench.results import Planned, Result, page, run_all

TODAY = datetime(2026, 11, 22, tzinfo=UTC)


def measured(ratio: float) -> Result:
    figures: dict[str, float | int | bool | str] = {"records": 10, "ratio": ratio}
    measurement = Measurement("windows", figures, [Budget("ratio", at_least=0.6)])
    return Result("windows", "sums", json.loads(json.dumps(measurement.as_dict())))


@pytest.mark.parametrize(("ratio", "holds"), [(0.7, "yes"), (0.5, "**no**")])
def test_the_page_has_a_row_for_each_budget_with_its_verdict(ratio: float, holds: str) -> None:
    text = page([measured(ratio)], "2 cores of a kind", TODAY)

    assert f"| `windows` | sums | ratio | {ratio} | ≥ 0.6 | {holds} |\n" in text
    assert "on 2026-11-22 with CPython" in text
    assert "on 2 cores of a kind." in text


def test_the_page_names_the_options_of_the_run() -> None:
    text = page([measured(0.7)], "a CPU", TODAY, ["--records", "1000"])

    assert "Written by `python -m bench all --records 1000` on" in text


def test_the_page_says_which_benchmark_failed() -> None:
    text = page([Result("join", "pairs", {}, "exit status 1")], "a CPU", TODAY)

    assert "| `join` | pairs |  | exit status 1 |  |  |\n" in text


@pytest.mark.slow
def test_each_benchmark_runs_in_a_process_of_its_own_with_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--records", "3000", "--rounds", "1"]
    found = list(
        run_all([Planned("stateless", "a loop", options), Planned("missing", "nothing", options)])
    )

    assert [(one.name, one.error) for one in found] == [
        ("stateless", ""),
        ("missing", "exit status 2"),
    ]
    assert found[0].figures["records"] == 3000
    monkeypatch.setattr(results, "PAGE", tmp_path / "RESULTS.md")
    results.write_page(found)
    assert "`stateless`" in (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    results.write_json(found, tmp_path / "results.json")
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert written["cpu"] == results.cpu_name()
    assert written["benchmarks"]["stateless"]["records"] == 3000
    assert written["benchmarks"]["missing"] == {"error": "exit status 2"}
