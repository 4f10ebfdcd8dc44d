"""Figures of ``python -m bench all`` over time: ``bench/history.jsonl``, and the comparison of two runs.

A figure is worse if it differs from the earlier one by more than ``TOLERANCE`` in the direction in which its budget
bounds it. A benchmark that has failed, or a figure that is missing, is worse, too. Figures of different CPUs or numbers
of records are not compared: these change ratios, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

HISTORY: Final = Path(__file__).with_name("history.jsonl")

#: Share by which a figure differs between two quiet runs of the same code.
TOLERANCE: Final = 0.1

Run = dict[str, Any]
"""The content of ``python -m bench all --json``: machine, day, and figures by benchmark."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure with a budget in two runs."""

    benchmark: str
    figure: str
    before: float
    after: float
    at_least: bool
    """True if larger is better."""

    @property
    def worse(self) -> bool:
        """True if the figure is worse than before by more than ``TOLERANCE``."""
        # Differences may be below 0, such as an added latency.
        tolerated = abs(self.before) * TOLERANCE
        if self.at_least:
            return self.after < self.before - tolerated
        return self.after > self.before + tolerated

    @property
    def better(self) -> bool:
        """True if the figure is better than before by more than ``TOLERANCE``."""
        swapped = Change(self.benchmark, self.figure, self.after, self.before, self.at_least)
        return swapped.worse


def append(run: Run, history: Path = HISTORY) -> None:
    """Append a run as a line to the history."""
    with history.open("a", encoding="utf-8") as out:
        out.write(json.dumps(run, separators=(",", ":")) + "\n")


def last_two(history: Path = HISTORY) -> tuple[Run, Run]:
    """Return the last run of the history and the one before it on the same CPU. Raises ``SystemExit``."""
    runs: list[Run] = []
    if history.exists():
        with history.open(encoding="utf-8") as lines:
            runs = [json.loads(line) for line in lines if line.strip()]
    if not runs:
        raise SystemExit(f"{history} has no runs: python -m bench all --history appends one")
    *earlier, newest = runs
    same = [run for run in earlier if run["cpu"] == newest["cpu"]]
    if not same:
        raise SystemExit(f"{history} has one run only on {newest['cpu']}: nothing to compare with")
    return same[-1], newest


def run_in(file: Path) -> Run:
    """Return the run in a file of ``python -m bench all --json``. Raises ``SystemExit``."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise SystemExit(f"{file} cannot be read as a run: {exc}") from exc
    run = cast("Run", found) if isinstance(found, dict) else Run()
    if not {"benchmarks", "cpu", "date"} <= run.keys():
        raise SystemExit(f"{file} is no run of all benchmarks: python -m bench all --json FILE")
    return run


def changes(before: Run, after: Run) -> Iterator[Change]:
    """Yield the figures with a budget that are in both runs, with the same number of records."""
    for name, figures in after["benchmarks"].items():
        earlier = before["benchmarks"].get(name, {})
        for figure, budget in figures.get("budgets", {}).items():
            if figure in earlier and earlier.get("records") == figures.get("records"):
                yield Change(
                    name,
                    figure,
                    float(earlier[figure]),
                    float(figures[figure]),
                    budget["bound"].startswith("≥"),
                )


def losses(before: Run, after: Run) -> Iterator[str]:
    """Yield, in words, each benchmark and each figure with a budget that only the earlier run has."""
    for name, earlier in before["benchmarks"].items():
        if "error" in earlier:
            continue
        figures = after["benchmarks"].get(name)
        if figures is None:
            yield f"{name} was not run"
        elif "error" in figures:
            yield f"{name} failed: {figures['error']}"
        else:
            for figure in earlier.get("budgets", {}):
                if figure not in figures:
                    yield f"{name} has no {figure} any more"


def incomparable(before: Run, after: Run) -> Iterator[str]:
    """Yield, in words, each benchmark whose figures are of different numbers of records."""
    for name, figures in after["benchmarks"].items():
        counts = [one.get("records") for one in (before["benchmarks"].get(name, {}), figures)]
        if None not in counts and counts[0] != counts[1]:
            yield f"{name} is not compared: it ran with {counts[0]:,} records, then with {counts[1]:,}"


def regressions(found: Sequence[Change]) -> list[Change]:
    """Return the figures that became worse."""
    return [one for one in found if one.worse]
