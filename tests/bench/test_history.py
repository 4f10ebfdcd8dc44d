"""Figures over time: which changes count as worse."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command_line
from bench.history import append, changes, last_two, regressions, run_in


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


@pytest.mark.parametrize("content", ["", "[]", '{"ratio": 1}'])
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
    with pytest.raises(SystemExit, match="takes two files"):
        compare(before)
