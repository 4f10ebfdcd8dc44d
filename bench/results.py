"""All benchmarks, one after the other, and the page of their figures: ``bench/RESULTS.md``."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import cpu_count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

PAGE: Final = Path(__file__).with_name("RESULTS.md")


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one benchmark, or the error with which its process has ended."""

    name: str
    work: str
    figures: dict[str, Any]
    error: str = ""

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the figures that have a budget: name, value, budget, and whether it holds."""
        return [
            (
                figure,
                str(self.figures[figure]),
                budget["bound"],
                "yes" if budget["kept"] else "**no**",
            )
            for figure, budget in self.figures.get("budgets", {}).items()
        ]


@dataclass(frozen=True, slots=True)
class Planned:
    """A benchmark to run, with the options of its command."""

    name: str
    work: str
    options: Sequence[str] = ()


def run_all(benchmarks: Sequence[Planned]) -> Iterator[Result]:
    """Run each benchmark in a process of its own, so that none measures what another left in memory.

    The output of the benchmarks goes to that of this process.
    """
    with TemporaryDirectory() as folder:
        for one in benchmarks:
            out = Path(folder) / f"{one.name}.json"
            command = [sys.executable, "-m", "bench", one.name, "--json", str(out), *one.options]
            done = subprocess.run(command, check=False)
            if done.returncode == 0:
                yield Result(one.name, one.work, json.loads(out.read_text(encoding="utf-8")))
            else:
                yield Result(one.name, one.work, {}, f"exit status {done.returncode}")


def page(results: Sequence[Result], cpu: str, when: datetime, options: Sequence[str] = ()) -> str:
    """Return the page of ``results``, measured with ``options``, as Markdown."""
    command = " ".join(["python -m bench all", *options])
    lines = [
        "# Results of all benchmarks",
        "",
        f"Written by `{command}` on {when:%Y-%m-%d} with CPython {platform.python_version()} on {cpu}.",
        "[How to read a number](README.md#how-to-read-a-number) explains the figures; only ratios can be compared",
        "between machines. A figure without a budget is in the output of `python -m bench NAME`.",
        "",
        "| benchmark | work | figure | measured | budget | holds |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        name, work = f"`{result.name}`", result.work
        for row in result.rows or [("", result.error or "see its output", "", "")]:
            lines.append(f"| {name} | {work} | {' | '.join(row)} |")
            name = work = ""
    return "\n".join(lines) + "\n"


def cpu_name() -> str:
    """Return the model and number of the CPUs of this machine, as the system names them."""
    from aflow.bench.machine import cpu_model  # needs the extra "bench"

    return f"{cpu_count() or 1} cores of {cpu_model()}"


def as_dict(results: Sequence[Result], cpu: str, when: datetime) -> dict[str, Any]:
    """Return ``results`` with the machine and the day."""
    return {
        "cpu": cpu,
        "python": platform.python_version(),
        "date": f"{when:%Y-%m-%d}",
        "benchmarks": {
            result.name: result.figures or {"error": result.error} for result in results
        },
    }


def run_now(results: Sequence[Result]) -> dict[str, Any]:
    """Return ``results`` as ``as_dict`` does, with this machine and today."""
    return as_dict(results, cpu_name(), datetime.now(UTC))


def write_json(results: Sequence[Result], file: Path) -> None:
    """Write all figures to ``file``."""
    file.write_text(json.dumps(run_now(results), indent=2) + "\n", encoding="utf-8")


def write_page(results: Sequence[Result], options: Sequence[str] = ()) -> None:
    """Write ``bench/RESULTS.md``."""
    PAGE.write_text(page(results, cpu_name(), datetime.now(UTC), options), encoding="utf-8")
