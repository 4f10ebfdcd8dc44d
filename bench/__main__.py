"""``python -m bench`` lists the benchmarks, ``python -m bench NAME`` runs one, ``python -m bench all`` runs all."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import connectors
from bench.crash import proof
from bench.harness import Measurement
from bench.results import Result, run_all, write_json, write_page

#: Choices of ``--only`` for ``crash``.
_PROGRAMS = [one.value for one in proof.Program]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """An entry of the list, with the defaults of its options."""

    name: str
    description: str
    records: int
    rounds: int
    module: str = ""
    """Module in ``bench``; default: the name of the benchmark."""

    @property
    def measure(self) -> Callable[[int, int], Measurement]:
        """Function that runs the benchmark."""
        module = import_module(f"bench.{self.module or self.name}")
        found: Callable[[int, int], Measurement] = module.measure
        return found


BENCHMARKS = [
    Benchmark("stateless", "map → filter → map → sum", 1_000_000, 7),
    Benchmark(
        "keyed_window", "10 s windows, 1,000 keys, 1 s disorder: count and sum", 1_000_000, 5
    ),
    Benchmark("sliding", "60 s every 1 s, beside windows of 10 s: count and sum", 1_000_000, 5),
    Benchmark("session", "sessions of some 13 events, 10,000 keys: count and sum", 1_000_000, 5),
    Benchmark("files", "JSON lines → keyed_window → JSON lines", 1_000_000, 5),
    Benchmark("exchange", "2 subtasks → hash by key → 2 subtasks", 1_000_000, 5),
    Benchmark("timers", "register, delete and fire a timer for each of as many keys", 1_000_000, 3),
    Benchmark("join", "interval join, 10,000 keys, -2 s to +3 s, 1 s disorder", 1_000_000, 5),
    Benchmark("disk", "read, change and write a value of random keys on disk", 1_000_000, 3),
    Benchmark(
        "state", "10 M keys in windows, timers, and records of a join, on disk", 10_000_000, 1
    ),
    Benchmark("latency", "5,000 events/s through three operators: ms from send to sink", 50_000, 1),
    Benchmark(
        "durable_push", "records sent and synced by 1, 16 and 256 senders: sends/s", 20_000, 3
    ),
    Benchmark("shapes", "other forms of batches, steps and exchanges (decision 001)", 1_000_000, 5),
    Benchmark("checkpoint", "keyed_window with checkpoints, pauses, triggers", 8_000_000, 5),
    Benchmark(
        "unaligned", "checkpoints upstream of a slow sink, channels of this capacity", 4_096, 5
    ),
    Benchmark("restore", "from a checkpoint to a job that runs", 1_000_000, 3),
    Benchmark("async", "a call of 10 ms for each record, 1,000 in flight", 100_000, 3, "calls"),
    Benchmark("spark", "runner, enrichment, windows and source on a local Spark", 2_000_000, 3),
    Benchmark(
        "connectors", "source and sink of each connector, beside its bare client", 200_000, 3
    ),
    Benchmark("formats", "Avro and Protobuf of a registry: decode and encode", 100_000, 5),
    Benchmark("embed", "latency of a web service beside a saturated pipeline", 100_000, 3),
    Benchmark("fairness", "ms that a saturated pipeline delays another coroutine", 1_000_000, 5),
]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [one.name for one in BENCHMARKS]
    parser.add_argument("name", nargs="?", choices=[*names, "crash", "all"])
    parser.add_argument("--records", type=int, help="number of records (default: see the list)")
    parser.add_argument("--rounds", type=int, help="number of measured runs of each program")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument(
        "--kills",
        type=int,
        default=proof.KILLS,
        help="crash: minimum number of kills of each kind of program",
    )
    parser.add_argument(
        "--only",
        choices=[*_PROGRAMS, *connectors.CASES],
        metavar="NAME",
        help=f"crash: kill one kind of program ({', '.join(_PROGRAMS)}); "
        f"connectors: run one case ({', '.join(connectors.CASES)})",
    )
    parser.add_argument(
        "--seed", type=int, default=proof.SEED, help="crash: seed of all random choices"
    )
    arguments = parser.parse_args()
    allowed = {"crash": _PROGRAMS, "connectors": list(connectors.CASES)}.get(arguments.name, [])
    if arguments.only is not None and arguments.only not in allowed:
        parser.error(f"--only {arguments.only} is no choice for {arguments.name}: {allowed}")
    console = Console()
    if arguments.name is None:
        console.print(_listing())
        return
    if arguments.name == "crash":
        programs = tuple(proof.Program)
        if arguments.only is not None:
            programs = (proof.Program(arguments.only),)
        if not proof.prove(
            arguments.kills,
            arguments.seed,
            console=console,
            programs=programs,
            out=arguments.json,
        ):
            sys.exit(1)
        return
    if arguments.name == "all":
        _measure_all(arguments)
        return
    chosen = next(one for one in BENCHMARKS if one.name == arguments.name)
    records = arguments.records or chosen.records
    rounds = arguments.rounds or chosen.rounds
    if arguments.name == "connectors":
        measurement = connectors.measure(records, rounds, only=arguments.only)
    else:
        measurement = chosen.measure(records, rounds)
    console.print(_report(measurement))
    if arguments.json:
        arguments.json.write_text(json.dumps(measurement.as_dict(), indent=2) + "\n")


def _measure_all(arguments: argparse.Namespace) -> None:
    """Run all benchmarks with a budget and write their page; exit with 1 if one of them failed."""
    options: list[str] = []
    for option in ("records", "rounds"):
        if (value := getattr(arguments, option)) is not None:
            options += [f"--{option}", str(value)]
    results: list[Result] = []
    measured = [(one.name, one.description) for one in BENCHMARKS if one.name != "shapes"]
    for result in run_all(measured, options):
        results.append(result)
        write_page(results)  # also a part of them, if the run is interrupted
        if arguments.json:
            write_json(results, arguments.json)
    if any(result.error for result in results):
        sys.exit(1)


def _listing() -> Table:
    table = Table("name", "description", "records", "runs of each", title="Benchmarks")
    for one in BENCHMARKS:
        table.add_row(one.name, one.description, f"{one.records:,}", str(one.rounds))
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
