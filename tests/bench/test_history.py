"""Figures over time: which changes count as worse."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command_line
from bench.history import (
    append,
    changes,
    incomparable,
    last_two,
    losses,
    regressions,
    run_in,
)


def run(*, ratio: float = 0.7, p99_ms: float = 5.0, cpu: str = "a CPU") -> dict[str, Any]:
    return {
        "cpu": cpu,
        "python": "3.11.7",
        "date": "2026-11-27",
        "benchmarks": {
            "windows": {
                "ratio": ratio,
                "p99_ms": p99_ms,
                "records": 10,
                "budgets": {
                    "ratio": {"bound": "≥ 0.6", "kept": True},
                    "p99_ms": {"bound": "≤ 10", "kept": True},
                },
            }
        },
    }


@pytest.mark.parametrize(
    ("after", "worse"),
    [
        (run(ratio=0.62), ["ratio"]),
        (run(ratio=0.65), []),
        (run(ratio=0.9), []),
        (run(p99_ms=5.6), ["p99_ms"]),
        (run(p99_ms=5.4), []),
        (run(p99_ms=1.0), []),
        (run(p99_ms=-1.0), []),
    ],
)
def test_a_figure_is_worse_beyond_a_tenth_in_the_direction_of_its_budget(
    after: dict[str, Any], worse: list[str]
) -> None:
    assert [one.figure for one in regressions(list(changes(run(), after)))] == worse


def test_figures_without_a_budget_or_in_one_run_only_are_not_compared() -> None:
    before = run()
    before["benchmarks"] = {"another": before["benchmarks"]["windows"]}

    assert list(changes(before, run())) == []
    assert [one.figure for one in changes(run(), run())] == ["ratio", "p99_ms"]


def test_a_figure_below_zero_is_not_worse_if_it_is_as_before() -> None:
    before = run(p99_ms=-1.0)

    assert regressions(list(changes(before, before))) == []
    assert [one.after for one in regressions(list(changes(before, run(p99_ms=-0.8))))] == [-0.8]


def test_benchmarks_and_figures_that_only_the_earlier_run_has_are_losses() -> None:
    before, failed, without = run(), run(), run()
    failed["benchmarks"]["windows"] = {"error": "exit status 1"}
    del without["benchmarks"]["windows"]["ratio"]

    assert list(losses(before, failed)) == ["windows failed: exit status 1"]
    assert list(losses(before, without)) == ["windows has no ratio any more"]
    assert list(losses(before, {**run(), "benchmarks": {}})) == ["windows was not run"]
    assert list(losses(before, before)) == []
    assert list(losses(failed, before)) == []


def test_runs_with_different_numbers_of_records_are_not_compared() -> None:
    after = run(ratio=0.1)
    after["benchmarks"]["windows"]["records"] = 2_000

    assert list(changes(run(), after)) == []
    assert list(incomparable(run(), after)) == [
        "windows is not compared: it ran with 10 records, then with 2,000"
    ]
    assert list(incomparable(run(), run())) == []


def test_the_newest_run_is_compared_with_the_last_one_on_the_same_cpu(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    for one in (run(ratio=0.1), run(ratio=0.2), run(ratio=0.3, cpu="another"), run(ratio=0.4)):
        append(one, history)

    before, after = last_two(history)

    assert before == run(ratio=0.2)
    assert after == run(ratio=0.4)


def test_a_history_with_nothing_to_compare_is_refused(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    with pytest.raises(SystemExit, match=r"has no runs: python -m bench all --history"):
        last_two(history)
    append(run(), history)
    append(run(cpu="another"), history)
    with pytest.raises(SystemExit, match="has one run only on another"):
        last_two(history)


@pytest.mark.parametrize("content", ["", "[]", '{"ratio": 1}', '{"benchmarks": {}}'])
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(content)

    with pytest.raises(SystemExit, match="run"):
        run_in(file)


def test_the_command_ends_with_1_if_a_figure_became_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(run()))
    after.write_text(json.dumps(run(ratio=0.3)))

    def compare(*files: Path) -> None:
        monkeypatch.setattr(sys, "argv", ["bench", "compare", *map(str, files)])
        command_line.main()

    compare(before, before)
    with pytest.raises(SystemExit) as ended:
        compare(before, after)
    assert ended.value.code == 1
    assert "worse" in capsys.readouterr().out
    compare(after, before)
    after.write_text(json.dumps({**run(), "benchmarks": {"windows": {"error": "exit status 1"}}}))
    with pytest.raises(SystemExit) as ended:
        compare(before, after)
    assert ended.value.code == 1
    assert "windows failed: exit status 1" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="takes two files"):
        compare(before)
