"""``python -m bench.peers``: the same jobs in aflow, in other stream processors and by hand."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from bench.peers.comparison import Entry, JobComparison, compare_peers, notes
from bench.peers.contenders import PEERS
from bench.peers.environments import Unavailable, python_of, servers
from bench.peers.jobs import JOBS
from bench.results import cpu_name

LIMITS = """\
Each peer does a job as a user of it would write it, in one process and on one core where that can be chosen. Input is
made before the time begins, except for pathway, whose sources make records one by one; the time ends with the result. A
JVM and its session are started before, but a job of PyFlink has the start of its cluster in it, some seconds. Results
are compared with those by hand. Windows of pathway and Spark call no Python function. FastStream passes each record
through a broker, which the others do not have."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    names = [peer.short for peer in PEERS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="PEER", help=", ".join(names))
    parser.add_argument(
        "--jobs", nargs="+", choices=[job.name for job in JOBS], metavar="JOB", help="see the table"
    )
    parser.add_argument("--records", type=int, help="number of records of each job")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all runs to FILE")
    arguments = parser.parse_args()
    console = Console()
    peers = [one for one in PEERS if not arguments.only or one.short in arguments.only]
    jobs = [one for one in JOBS if not arguments.jobs or one.name in arguments.jobs]
    for peer in peers:
        with console.status(f"environment of {peer.name}"):
            try:
                python_of(peer)
            except Unavailable as exc:
                console.print(f"{peer.name}: {exc}")
    comparisons: list[JobComparison] = []
    with servers(peers) as variables, console.status("") as status:
        for job in jobs:
            comparisons.append(
                compare_peers(
                    job,
                    peers,
                    records=arguments.records,
                    rounds=arguments.rounds,
                    variables=variables,
                    on_run=status.update,
                )
            )
            if arguments.json:
                arguments.json.write_text(
                    json.dumps([*map(_as_dict, comparisons)], indent=2) + "\n"
                )
    console.print(_table(comparisons))
    for comparison in comparisons:
        console.print(f"{comparison.job.name}: {comparison.job.description}", highlight=False)
    for line in notes(comparisons):
        console.print(line, highlight=False)
    console.print(f"\n{cpu_name()}\n{LIMITS}", highlight=False)


def _table(comparisons: list[JobComparison]) -> Table:
    """Return a row for each peer: the names of the jobs are shorter, so that it fits into 80 columns."""
    title = "Records/s, and the ratio to aflow; latency: p50 and p99 in ms"
    table = Table(Column("", no_wrap=True), title=title, box=None, padding=(0, 0, 0, 1))
    for comparison in comparisons:
        name = comparison.job.name.replace("_", " ")
        table.add_column(name, justify="right", overflow="fold")
    for number, entry in enumerate(comparisons[0].entries):
        table.add_row(entry.peer.name, *(_cell(one, one.entries[number]) for one in comparisons))
    return table


def _cell(comparison: JobComparison, entry: Entry) -> str:
    if not entry.runs:
        return "–"
    if not comparison.job.timed:
        p50, p99 = entry.delays
        return f"{p50:.2f}\n{p99:.2f}"
    ours = comparison.ours()
    ratio = "" if ours is None or ours is entry else f"\n{entry.rate / ours.rate:.2f}"
    return f"{_compact(entry.rate)}{ratio}"


def _compact(rate: float) -> str:
    """Return three digits of ``rate``: 3.51 M, 84.0 k."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate:.3g}"


def _as_dict(comparison: JobComparison) -> dict[str, object]:
    return {
        "job": comparison.job.name,
        "entries": [
            {
                "peer": entry.peer.name,
                "records": entry.records,
                "runs": entry.runs,
                "problem": entry.problem,
            }
            for entry in comparison.entries
        ],
    }


if __name__ == "__main__":
    main()
