"""What ``aflow demo backfill`` shows at its end: what was computed where, and whether it comes to the same."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from aflow.backfill.contents import StateRow, rows_of, stored_parts
from aflow.cli.demo.history.comparing import Compared
from aflow.cli.demo.history.files import HistoryFiles, HistoryRun
from aflow.cli.demo.tables import counted
from aflow.runtime.metrics import JobMetrics
from aflow_connectors.spark import Backfilled

#: Steps of the table, in the order of the pipeline.
_STEPS: Final = (
    "departed",
    "airport hours",
    "worst hours",
    "known aircraft",
    "stretches of aircraft",
    "silence",
    "ask the registry",
    "grounded in a week",
    "plausible",
    "storms",
    "hours near storms",
    "around storms",
)


def show_steps(
    console: Console, done: Backfilled, live: JobMetrics, whole: JobMetrics, opened: dict[str, str]
) -> None:
    """Print how many records each step got where, and what it had open between the two parts (see ``open_at``)."""
    on_spark = Counter[str]()
    for step in done.steps:
        on_spark[step.name] += step.records_in
    table = _table(
        "What was computed where: records into each step",
        ("Spark", "then live", "all live"),
        first="step",
    )
    table.add_column("open between")
    for name in _STEPS:
        numbers = on_spark[name], live.steps[name].records_in, whole.steps[name].records_in
        table.add_row(name, *(f"{number:,}" for number in numbers), opened.get(name, ""))
    console.print(table)


def show_results(console: Console, compared: Sequence[Compared]) -> None:
    """Print how many rows there are, and how many have no equal."""
    table = _table("Results: rows", ("Spark", "then live", "all live", "differences"), first="")
    for one in compared:
        numbers = one.history, one.live, one.whole, one.differences
        table.add_row(one.sink.replace("_", " "), *(f"{number:,}" for number in numbers))
    console.print(table)


def show_totals(
    console: Console, seconds: dict[str, float], files: HistoryFiles, differences: int
) -> None:
    """Print how long it took, where the files are, and the verdict."""
    times = ", ".join(f"{what} {took:.1f} s" for what, took in seconds.items())
    both = f"{HistoryRun.HISTORY.value}, {HistoryRun.LIVE.value}"
    for line in (
        f"{times}; together {sum(seconds.values()):.1f} s.",
        f"Files: {files.folder}{os.sep}{{{both}, {HistoryRun.WHOLE.value}, savepoint}}; "
        f"'aflow savepoint show {files.savepoint}' shows what went from Spark to the live job.",
        f"Row for row, Spark and then live against all live: differences: {differences:,}.",
    ):
        console.print(line, soft_wrap=True, markup=False)


def open_at(savepoint: Path) -> dict[str, str]:
    """By step, in words, what a savepoint holds that is unfinished. Raises ``RestoreError`` if it cannot be read."""
    found: dict[str, Counter[str]] = {}
    for part in stored_parts(savepoint):
        for row in rows_of(part):
            what = _unfinished(row)
            if what is not None:
                found.setdefault(row.operator, Counter())[what] += 1
    return {step: _in_words(whats) for step, whats in found.items()}


def _unfinished(row: StateRow) -> str | None:
    match row.kind:
        case "window" if row.window_end is not None:
            return "session"
        case "window":
            return "window"
        case "timer":
            return "timer"
        case "operator" | "broadcast":
            return None
        case _:
            return "key"


def _in_words(whats: Counter[str]) -> str:
    # Keys that have a timer need not be counted twice.
    told = {what: number for what, number in whats.items() if what != "key" or len(whats) == 1}
    return ", ".join(counted(number, what) for what, number in told.items())


def _table(title: str, numbers: Sequence[str], *, first: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table
