"""``python -m bench crash --only stream``: a stream on Spark whose processes are killed.

First, a stream that is not killed, and the live job that continues from its savepoint, must give the rows of one live
job. Then drivers are killed with SIGKILL and started again until the stream ends, executors and their Python are killed
while it runs, and slow tasks are run twice. Rows and state must be those of the stream that was not killed.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.crash.outputs import Output, differences
from bench.crash.stream.cluster import (
    LOCAL_CLUSTER,
    ClusterRound,
    ClusterVictim,
    run_cluster_round,
    speculating,
    two_hosts,
)
from bench.crash.stream.moments import Victim, random_stream_kill
from bench.crash.stream.pipeline import end_of, input_files
from bench.crash.stream.program import Gate, StreamSettings
from bench.crash.stream.results import live_rest, live_whole, stream_output, whole_output
from bench.crash.stream.rounds import Jvms, StreamRound, run_stream_round

#: Kills of a round, and its input files.
_MOST: Final = 10
_FILES: Final = 2 * _MOST + 4
#: Weights of the victims. A start of the JVM takes several times as long as one of Python.
_WEIGHTS: Final = (0.8, 0.12, 0.08)
#: Share of the kills that are of executors, and most of a round.
_OF_EXECUTORS: Final = 0.15
_MOST_OF_EXECUTORS: Final = 12


@dataclass(slots=True)
class StreamTotal:
    """Figures of all rounds."""

    rounds: int = 0
    kills: int = 0
    replayed: int = 0
    rounds_that_differ: int = 0
    victims: Counter[str] = field(default_factory=Counter[str])
    moments: Counter[str] = field(default_factory=Counter[str])
    second_attempts: int = 0
    """Tasks that ran a second time because they were slow."""

    def add(self, one: StreamRound) -> None:
        """Add the figures of a round of killed drivers."""
        self.rounds += 1
        self.kills += one.kills.total()
        self.replayed += one.replayed
        self.rounds_that_differ += bool(one.wrong)
        self.victims += Counter({victim.value: count for victim, count in one.kills.items()})
        self.moments += one.moments

    def add_cluster(self, one: ClusterRound) -> None:
        """Add the figures of a round of killed executors."""
        self.rounds += 1
        self.kills += one.kills.total()
        self.rounds_that_differ += bool(one.wrong)
        self.victims += Counter({victim.value: count for victim, count in one.kills.items()})
        self.second_attempts += sum(count for number, count in one.attempts.items() if number)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the table."""
        return {
            "rounds": self.rounds,
            "kills": self.kills,
            "replayed": self.replayed,
            "second_attempts": self.second_attempts,
            "rounds_that_differ": self.rounds_that_differ,
            "victims": dict(self.victims),
            "moments": dict(self.moments),
        }


@dataclass(frozen=True, slots=True)
class StreamProof:
    """Rounds below a folder."""

    root: Path
    seed: int
    console: Console
    total: StreamTotal = field(default_factory=StreamTotal)

    def settings(self, name: str) -> StreamSettings:
        """Return the settings of a round."""
        return StreamSettings(folder=str(self.root / name), until=end_of(_FILES))

    def expected(self, jvms: Jvms) -> Output | None:
        """Return the output and state of a stream that is not killed; None if they are not those of a live job."""
        settings = self.settings("stream")
        run = run_stream_round(settings, _FILES, [], {}, Random(self.seed), jvms)
        folder = Path(settings.folder)
        if failed := [one for one in run.wrong if one.startswith(("start", "left"))]:
            self.report("the stream that is not killed", failed)
            return None
        expected = stream_output(folder)
        records = [one for some in input_files(_FILES) for one in some]
        rest = asyncio.run(live_rest(folder, records))
        found = differences(asyncio.run(live_whole(records)), whole_output(folder, rest))
        if found:
            self.report("the stream and the live job after it differ from one live job", found)
            return None
        lines = {name: len(some) for name, some in expected.items()}
        self.console.print(f"A stream and the live job after it equal one live job: {lines}.")
        return expected

    def kill_drivers(self, kills: int, expected: Output, jvms: Jvms) -> None:
        """Run rounds until so many drivers were killed, or results differ."""
        total, gates = self.total, [one.name for one in Gate]
        first = total.kills
        while total.kills - first < kills and not total.rounds_that_differ:
            name = f"drivers-{total.rounds}"
            with self.console.status(f"{name}: {total.kills} kills"):
                random = Random(f"{self.seed} {name}")
                count = min(_MOST, kills - total.kills + first)
                planned = [random_stream_kill(random, gates, _WEIGHTS) for _ in range(count)]
                one = run_stream_round(self.settings(name), _FILES, planned, expected, random, jvms)
            total.add(one)
            self.finish(name, one.wrong)

    def kill_executors(self, kills: int, expected: Output, jvms: Jvms) -> None:
        """Run rounds until so many processes of executors were killed, or results differ."""
        total = self.total
        first = total.kills
        while total.kills - first < kills and not total.rounds_that_differ:
            name = f"executors-{total.rounds}"
            with self.console.status(f"{name}: {total.kills} kills"):
                one = run_cluster_round(
                    jvms.drivers,
                    msgspec.structs.replace(self.settings(name), spark=LOCAL_CLUSTER),
                    _FILES,
                    min(_MOST_OF_EXECUTORS, kills - total.kills + first),
                    expected,
                    Random(f"{self.seed} {name}"),
                )
            total.add_cluster(one)
            self.finish(name, one.wrong)

    def speculate(self, expected: Output, jvms: Jvms) -> None:
        """Run a round on two hosts, in which slow tasks are run twice."""
        name = "speculation"
        hosts = self.root / "hosts"
        hosts.mkdir()
        with two_hosts(hosts) as (master, sessions):
            spark = speculating(self.root / name, master)
            one = run_cluster_round(
                jvms.drivers,
                msgspec.structs.replace(self.settings(name), spark=spark),
                _FILES,
                0,
                expected,
                Random(self.seed),
                sessions=sessions,
            )
        self.total.add_cluster(one)
        self.finish(name, one.wrong)

    def finish(self, name: str, wrong: Any) -> None:
        """Remove the folder of a round, or report its differences and keep it."""
        if wrong:
            self.report(f"what {self.root / name} has left is wrong", wrong)
        else:
            shutil.rmtree(self.root / name, ignore_errors=True)

    def report(self, title: str, wrong: Any) -> None:
        """Print differences."""
        self.console.print(f"[bold red]stream[/]: {title}")
        for line in wrong[:20]:
            self.console.print(escape(line), soft_wrap=True)


def prove_stream(
    kills: int, seed: int, root: Path, *, console: Console
) -> tuple[bool, dict[str, Any]]:
    """Kill processes of streams ``kills`` times, print a report; return True if all is right, and the figures.

    The folders of rounds with other results are kept.
    """
    proof = StreamProof(root, seed, console)
    of_executors = round(kills * _OF_EXECUTORS)
    jvms = Jvms(root)
    try:
        expected = proof.expected(jvms)
        if expected is None:
            return False, {}
        proof.kill_drivers(kills - of_executors, expected, jvms)
        jvms.kill()
        if of_executors and not proof.total.rounds_that_differ:
            proof.kill_executors(of_executors, expected, jvms)
        if of_executors and not proof.total.rounds_that_differ:
            proof.speculate(expected, jvms)
    finally:
        jvms.close()
    console.print(_table(proof.total))
    return not proof.total.rounds_that_differ, proof.total.figures()


def _table(total: StreamTotal) -> Table:
    table = Table("figure", "value", title="stream")
    for name in ("rounds", "kills", "replayed", "second_attempts", "rounds_that_differ"):
        table.add_row(name.replace("_", " "), f"{getattr(total, name):,}")
    known = [*(one.value for one in Victim), *(one.value for one in ClusterVictim)]
    for name in known:
        table.add_row(f"killed: {name}", f"{total.victims[name]:,}")
    for name, count in sorted(total.moments.items()):
        table.add_row(f"drivers killed at: {name}", f"{count:,}")
    return table
