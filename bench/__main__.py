"""``python -m bench`` lists the benchmarks, ``python -m bench NAME`` runs one, ``python -m bench all`` runs all."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from rich.console import Console
from rich.table import Column, Table

from bench.crash import proof
from bench.harness import Measurement
from bench.history import (
    Change,
    append,
    changes,
    incomparable,
    last_two,
    losses,
    regressions,
    run_in,
)
from bench.results import Planned, Result, run_all, run_now, write_json, write_page


@dataclass(frozen=True, slots=True)
class Smaller:
    """Numbers of a benchmark in ``bench all``; None: as alone."""

    records: int | None = None
    rounds: int | None = None

    def options(self, arguments: argparse.Namespace) -> list[str]:
        """Return the options of the command, without those that the user has given for all benchmarks."""
        chosen = {"records": self.records, "rounds": self.rounds}
        return [
            part
            for option, value in chosen.items()
            if value is not None and getattr(arguments, option) is None
            for part in (f"--{option}", str(value))
        ]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """An entry of the list, with the defaults of its options."""

    name: str
    description: str
    records: int
    rounds: int
    module: str = ""
    """Module in ``bench``; default: the name of the benchmark."""

    in_all: Smaller | None = None
    """Numbers of ``bench all``, which has to end within 30 minutes; None: the same."""

    has_parts: bool = False
    """True if ``measure`` takes the names of parts to run, those of ``--only``."""

    def measure(self, records: int, rounds: int, only: Sequence[str]) -> Measurement:
        """Run the benchmark, or its parts ``only``."""
        measured: Callable[..., Measurement] = self._module.measure
        return measured(records, rounds, only) if self.has_parts else measured(records, rounds)

    def report(self, measurement: Measurement) -> Table:
        """Return the table of the module, or else one with a row for each figure."""
        own: Callable[[Measurement], Table] = getattr(self._module, "report", _report)
        return own(measurement)

    @property
    def _module(self) -> ModuleType:
        return import_module(f"bench.{self.module or self.name}")


BENCHMARKS = [
    Benchmark("stateless", "map → filter → map → sum", 1_000_000, 7, in_all=Smaller(rounds=3)),
    Benchmark(
        "keyed_window",
        "10 s windows, 1,000 keys, 1 s disorder: count and sum",
        1_000_000,
        5,
        in_all=Smaller(rounds=3),
    ),
    Benchmark(
        "sliding",
        "60 s every 1 s, beside windows of 10 s: count and sum",
        1_000_000,
        5,
        in_all=Smaller(rounds=3),
    ),
    Benchmark(
        "session",
        "sessions of some 13 events, 10,000 keys: count and sum",
        1_000_000,
        5,
        in_all=Smaller(rounds=3),
    ),
    Benchmark(
        "files", "JSON lines → keyed_window → JSON lines", 1_000_000, 5, in_all=Smaller(rounds=3)
    ),
    Benchmark(
        "exchange", "2 subtasks → hash by key → 2 subtasks", 1_000_000, 5, in_all=Smaller(rounds=3)
    ),
    Benchmark("timers", "register, delete and fire a timer for each of as many keys", 1_000_000, 3),
    Benchmark(
        "join",
        "interval join, 10,000 keys, -2 s to +3 s, 1 s disorder",
        1_000_000,
        5,
        in_all=Smaller(rounds=3),
    ),
    Benchmark("disk", "read, change and write a value of random keys on disk", 1_000_000, 3),
    Benchmark(
        "state",
        "keys in windows, timers, and records of a join, on disk",
        10_000_000,
        1,
        in_all=Smaller(records=1_000_000),
    ),
    Benchmark("latency", "5,000 events/s through three operators: ms from send to sink", 50_000, 1),
    Benchmark(
        "durable_push", "records sent and synced by 1, 16 and 256 senders: sends/s", 20_000, 3
    ),
    Benchmark("shapes", "other forms of batches, steps and exchanges (decision 001)", 1_000_000, 5),
    Benchmark(
        "checkpoint",
        "keyed_window with checkpoints, pauses, triggers",
        8_000_000,
        5,
        in_all=Smaller(rounds=3),
    ),
    Benchmark(
        "unaligned", "checkpoints upstream of a slow sink, channels of this capacity", 4_096, 5
    ),
    Benchmark(
        "restore", "from a checkpoint to a job that runs", 1_000_000, 3, in_all=Smaller(rounds=2)
    ),
    Benchmark(
        "async",
        "a call of 10 ms for each record, 1,000 in flight",
        100_000,
        3,
        "calls",
        in_all=Smaller(records=50_000, rounds=2),
    ),
    Benchmark("spark", "runner, enrichment, windows and source on a local Spark", 2_000_000, 3),
    Benchmark(
        "spark_stream",
        "keyed windows as a stream on a local Spark, by micro-batches",
        200_000,
        1,
        in_all=Smaller(records=50_000),
    ),
    Benchmark(
        "connectors",
        "source and sink of each connector, beside its bare client",
        200_000,
        3,
        has_parts=True,
        in_all=Smaller(records=100_000, rounds=1),
    ),
    Benchmark(
        "formats",
        "Avro and Protobuf of a registry: decode and encode",
        100_000,
        5,
        in_all=Smaller(rounds=2),
    ),
    Benchmark(
        "nexmark",
        "the queries of Nexmark, equal to DuckDB: events/s and latency",
        200_000,
        3,
        has_parts=True,
        in_all=Smaller(records=100_000, rounds=2),
    ),
    Benchmark(
        "nexmark_history",
        "the queries of Nexmark over history on a local Spark, equal to DuckDB",
        50_000,
        1,
        "nexmark.history",
        has_parts=True,
    ),
    Benchmark(
        "embed",
        "latency of a web service beside a saturated pipeline",
        100_000,
        7,
        in_all=Smaller(rounds=4),
    ),
    Benchmark(
        "generator", "the load of `aflow bench`: ms of error at 5,000/s, records/s", 50_000, 3
    ),
    Benchmark(
        "fairness",
        "ms that a saturated pipeline delays another coroutine",
        1_000_000,
        5,
        in_all=Smaller(rounds=3),
    ),
    Benchmark("scale", "cost of a record with more keys, subtasks, steps and jobs", 500_000, 1),
]


#: Options of the commands that are no benchmark; a benchmark has those of ``_MEASURING``.
_COMMANDS: Final[Mapping[str, frozenset[str]]] = {
    "crash": frozenset({"kills", "seed", "only", "json"}),
    "all": frozenset({"records", "rounds", "json", "history"}),
    "compare": frozenset({"files"}),
}
_MEASURING: Final = frozenset({"records", "rounds", "json"})


def main() -> None:
    """Run the command line."""
    parser = _parser()
    arguments = parser.parse_args()
    _refuse_ignored(parser, arguments)
    console = Console()
    match arguments.name:
        case None:
            console.print(_listing())
        case "crash":
            _crash(parser, arguments, console)
        case "all":
            _measure_all(arguments)
        case "compare":
            _compare(arguments.files, console)
        case name:
            chosen = next(one for one in BENCHMARKS if one.name == name)
            records, rounds = arguments.records or chosen.records, arguments.rounds or chosen.rounds
            measurement = chosen.measure(records, rounds, arguments.only)
            console.print(chosen.report(measurement))
            if arguments.json:
                arguments.json.write_text(json.dumps(measurement.as_dict(), indent=2) + "\n")


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [one.name for one in BENCHMARKS]
    parser.add_argument("name", nargs="?", choices=[*names, *_COMMANDS])
    parser.add_argument(
        "files", nargs="*", type=Path, help="compare: two files of all --json; default: the history"
    )
    parser.add_argument("--records", type=_count, help="number of records (default: see the list)")
    parser.add_argument("--rounds", type=_count, help="number of measured runs of each program")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument(
        "--history", action="store_true", help="all: append the figures to bench/history.jsonl"
    )
    parser.add_argument(
        "--kills",
        type=_count,
        help=f"crash: minimum number of kills of each kind of program (default: {proof.KILLS})",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="PART",
        help="crash: kill these programs (pipelines, service, stream, stream-workers, stream-executors, "
        "stream-speculation); nexmark: run these queries (q0 … q22); "
        "connectors: run these cases (kafka, postgres, …)",
    )
    parser.add_argument(
        "--seed", type=int, help=f"crash: seed of all random choices (default: {proof.SEED})"
    )
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return number


def _refuse_ignored(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End the process if an option was given that the command would ignore."""
    name: str | None = arguments.name
    known = frozenset[str]() if name is None else _COMMANDS.get(name, _MEASURING)
    if any(one.name == name and one.has_parts for one in BENCHMARKS):
        known |= {"only"}
    defaults = vars(parser.parse_args([]))
    given = [option for option, value in vars(arguments).items() if value != defaults[option]]
    for option in given:
        if option not in known and option != "name":
            text = "files" if option == "files" else f"--{option}"
            takers = [command for command, options in _COMMANDS.items() if option in options]
            if option in _MEASURING:
                takers.append("a benchmark")
            elif option == "only":
                takers += [one.name for one in BENCHMARKS if one.has_parts]
            parser.error(f"{name or 'the list'} takes no {text}: it is for {', '.join(takers)}")


def _crash(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, console: Console
) -> None:
    """Run the crash test; exit with 1 if it finds a difference."""
    is_right = proof.prove(
        proof.KILLS if arguments.kills is None else arguments.kills,
        proof.SEED if arguments.seed is None else arguments.seed,
        console=console,
        programs=_programs(parser, arguments.only),
        out=arguments.json,
    )
    if not is_right:
        sys.exit(1)


def _programs(parser: argparse.ArgumentParser, only: Sequence[str]) -> tuple[proof.Program, ...]:
    """Return the programs of the crash test named ``only``, or the default; end the process for another name."""
    try:
        return tuple(map(proof.Program, only)) or proof.DEFAULT
    except ValueError:
        known = ", ".join(one.value for one in proof.Program)
        parser.error(f"--only: crash kills {known}, not {', '.join(only)}")


def _measure_all(arguments: argparse.Namespace) -> None:
    """Run all benchmarks but ``shapes`` and write their page; exit with 1 if one of them failed."""
    options: list[str] = []
    for option in ("records", "rounds"):
        if (value := getattr(arguments, option)) is not None:
            options += [f"--{option}", str(value)]
    results: list[Result] = []
    measured = [
        Planned(one.name, one.description, [*_smaller(one, arguments), *options])
        for one in BENCHMARKS
        if one.name != "shapes"
    ]
    for result in run_all(measured):
        results.append(result)
        write_page(results, options)  # also a part of them, if the run is interrupted
        if arguments.json:
            write_json(results, arguments.json)
    if arguments.history:
        append(run_now(results))
    if any(result.error for result in results):
        sys.exit(1)


def _smaller(one: Benchmark, arguments: argparse.Namespace) -> list[str]:
    return [] if one.in_all is None else one.in_all.options(arguments)


def _compare(files: list[Path], console: Console) -> None:
    """Print the figures that changed between two runs; exit with 1 if one became worse or is missing."""
    if len(files) not in {0, 2}:
        raise SystemExit(
            "compare takes two files, the older first, or none for the last runs of the history"
        )
    before, after = last_two() if not files else map(run_in, files)
    if before["cpu"] != after["cpu"]:
        raise SystemExit(
            f"not compared: one run is on {before['cpu']}, the other on {after['cpu']}"
        )
    found, lost = list(changes(before, after)), list(losses(before, after))
    console.print(_differences(found, f"{before['date']} → {after['date']}, {after['cpu']}"))
    for line in incomparable(before, after):
        console.print(line, highlight=False)
    for line in lost:
        console.print(f"[bold red]worse[/]: {line}", highlight=False)
    if lost or regressions(found):
        sys.exit(1)


def _differences(found: list[Change], title: str) -> Table:
    table = Table("benchmark", "figure", "before", "after", "", title=title)
    for one in found:
        if one.worse or one.better:
            verdict = "[bold red]worse[/]" if one.worse else "better"
            table.add_row(one.benchmark, one.figure, f"{one.before:g}", f"{one.after:g}", verdict)
    table.caption = f"{sum(not (one.worse or one.better) for one in found)} figures as before"
    return table


def _listing() -> Table:
    name = Column("name", no_wrap=True)
    table = Table(name, "description", "records", "runs of each", "in all", title="Benchmarks")
    for one in BENCHMARKS:
        smaller = one.in_all or Smaller()
        parts = [
            "" if smaller.records is None else f"{smaller.records:,} records",
            "" if smaller.rounds is None else f"{smaller.rounds} runs",
        ]
        shown = ", ".join(filter(None, parts))
        table.add_row(one.name, one.description, f"{one.records:,}", str(one.rounds), shown)
    table.add_row("crash", "a test: killed programs give the results of undisturbed ones", "", "")
    return table


def _report(measurement: Measurement) -> Table:
    table = Table("figure", "value", "budget", title=measurement.name)
    budgets = {budget.figure: budget for budget in measurement.budgets}
    for name, value in measurement.figures.items():
        budget = budgets.get(name)
        verdict = "" if budget is None else _verdict(str(budget), budget.kept_by(float(value)))
        shown = (
            f"{value:,}"
            if isinstance(value, int | float) and type(value) is not bool
            else str(value)
        )
        table.add_row(name, shown, verdict)
    return table


def _verdict(budget: str, kept: bool) -> str:
    return f"{budget} ✓" if kept else f"[bold red]{budget} missed[/]"


if __name__ == "__main__":
    main()
