"""``python -m bench crash --only stream``: a stream on Spark whose driver is killed, or its workers and executors.

First, a stream that is not killed, and the live job that continues from its savepoint, must give the rows of one live
job. Then drivers are killed with SIGKILL and started again until the stream ends, while tasks have the faults of the
case. Rows and state must be those of the stream that was not killed.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.crash.outputs import Output, differences
from bench.crash.stream.cluster import CLUSTER
from bench.crash.stream.faults import REPEATED, Fault, Point, TaskFaults
from bench.crash.stream.gateway import FAST
from bench.crash.stream.moments import Victim, random_stream_kill
from bench.crash.stream.pipeline import end_of, input_files
from bench.crash.stream.program import Gate, StreamSettings
from bench.crash.stream.results import live_rest, live_whole, stream_output, whole_output
from bench.crash.stream.rounds import Jvms, StreamRound, run_stream_round

#: Most kills of drivers in a round, and its input files.
_MOST: Final = 10
_FILES: Final = 2 * _MOST + 4
#: Input files of a round on a cluster, where an epoch waits for executors that start.
_FEW_FILES: Final = 10
#: Longest delay in seconds of a task, or from its start to a kill.
_LONGEST: Final = 1.5
#: Settings of a cluster whose executors are killed.
_ON_CLUSTER: Final = {
    "spark.master": CLUSTER,
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": FAST,
    "spark.executor.memory": "512m",
    # Each loss of an executor fails all of its tasks.
    "spark.task.maxFailures": "20",
    "spark.stage.maxConsecutiveAttempts": "20",
}
#: An attempt at a task is repeated elsewhere if it takes longer than a tenth of a second more than another one.
_SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.task.duration.threshold": "300ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCase:
    """Kills of drivers in a round, and the shares of the attempts at tasks that have faults."""

    name: str
    spark: Mapping[str, str]
    files: int
    """Input files of a round."""
    drivers: int
    """Kills of drivers in a round."""
    victims: tuple[float, ...]
    """Weights of the victims of these kills. A start of the JVM takes several times as long as one of Python."""
    faults: Mapping[Fault, float] = field(default_factory=dict[Fault, float])


DRIVERS: Final = StreamCase(
    name="drivers",
    spark={"spark.master": "local[2]"},
    files=_FILES,
    drivers=_MOST,
    victims=(0.8, 0.12, 0.08),
)
WORKERS: Final = StreamCase(
    name="workers",
    spark={"spark.master": "local[2,4]"},
    files=_FILES,
    drivers=2,
    victims=(1.0, 0.0, 0.0),
    faults={Fault.WORKER: 0.3, Fault.DAEMON: 0.05, Fault.DELAY: 0.03},
)
EXECUTORS: Final = StreamCase(
    name="executors",
    spark=_ON_CLUSTER,
    files=_FEW_FILES,
    drivers=1,
    victims=(1.0, 0.0, 0.0),
    faults={
        Fault.EXECUTOR: 0.05,
        Fault.ORPHANED: 0.05,
        Fault.WORKER: 0.05,
        Fault.DAEMON: 0.02,
        Fault.DELAY: 0.03,
    },
)
SPECULATION: Final = StreamCase(
    name="speculation",
    spark=_ON_CLUSTER | _SPECULATION,
    files=_FEW_FILES,
    drivers=2,
    victims=(1.0, 0.0, 0.0),
    faults={Fault.DELAY: 0.3, Fault.WORKER: 0.1},
)

#: The cases, by the name of the program that is killed.
CASES_BY_PROGRAM: Final = {
    "stream": DRIVERS,
    "stream-workers": WORKERS,
    "stream-executors": EXECUTORS,
    "stream-speculation": SPECULATION,
}


@dataclass(slots=True)
class StreamTotal:
    """Figures of all rounds."""

    rounds: int = 0
    kills: int = 0
    replayed: int = 0
    answered: int = 0
    rounds_that_differ: int = 0
    victims: Counter[str] = field(default_factory=Counter[str])
    moments: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    points: Counter[str] = field(default_factory=Counter[str])
    repeated: int = 0
    """Attempts that were not the first ones at their tasks."""

    def add(self, one: StreamRound) -> None:
        """Add the figures of a round of killed drivers."""
        self.rounds += 1
        self.kills += one.kills.total()
        self.replayed += one.replayed
        self.answered += one.answered
        self.rounds_that_differ += bool(one.wrong)
        self.victims += Counter({victim.value: count for victim, count in one.kills.items()})
        self.moments += one.moments
        for record, count in one.faults.items():
            if record == REPEATED:
                self.repeated += count
                continue
            fault, _, point = record.partition("-")
            self.faults[Fault[fault].value] += count
            self.points[Point[point].value] += count
            self.kills += count * Fault[fault].is_kill

    def figures(self) -> dict[str, Any]:
        """Return the figures of the table."""
        return {
            "rounds": self.rounds,
            "kills": self.kills,
            "replayed": self.replayed,
            "answered": self.answered,
            "rounds_that_differ": self.rounds_that_differ,
            "victims": dict(self.victims),
            "moments": dict(self.moments),
            "faults": dict(self.faults),
            "points": dict(self.points),
            "repeated": self.repeated,
        }


@dataclass(frozen=True, slots=True)
class StreamProof:
    """Rounds of a case, below a folder."""

    case: StreamCase
    root: Path
    seed: int
    console: Console
    total: StreamTotal = field(default_factory=StreamTotal)

    def settings(self, name: str) -> StreamSettings:
        """Return the settings of a round."""
        return StreamSettings(
            folder=str(self.root / name), until=end_of(self.case.files), spark=dict(self.case.spark)
        )

    def expected(self, jvms: Jvms) -> Output | None:
        """Return the output and state of a stream that is not killed; None if they are not those of a live job."""
        settings = self.settings("stream")
        run = run_stream_round(settings, self.case.files, [], {}, Random(self.seed), jvms)
        folder = Path(settings.folder)
        if failed := [one for one in run.wrong if one.startswith(("start", "left"))]:
            self.report("the stream that is not killed", failed)
            return None
        expected = stream_output(folder)
        records = [one for some in input_files(self.case.files) for one in some]
        rest = asyncio.run(live_rest(folder, records))
        found = differences(asyncio.run(live_whole(records)), whole_output(folder, rest))
        if found:
            self.report("the stream and the live job after it differ from one live job", found)
            return None
        lines = {name: len(some) for name, some in expected.items()}
        self.console.print(f"A stream and the live job after it equal one live job: {lines}.")
        return expected

    def kill(self, kills: int, expected: Output, jvms: Jvms) -> None:
        """Run rounds until there were so many kills, or results differ."""
        case, total = self.case, self.total
        while total.kills < kills and not total.rounds_that_differ:
            name = f"{case.name}-{total.rounds}"
            with self.console.status(f"{name}: {total.kills} kills"):
                total.add(one := self._round(name, kills - total.kills, expected, jvms))
            self.finish(name, one.wrong)

    def _round(self, name: str, kills: int, expected: Output, jvms: Jvms) -> StreamRound:
        case, seed = self.case, f"{self.seed} {name}"
        random = Random(seed)
        planned = [
            random_stream_kill(random, [one.name for one in Gate], case.victims)
            for _ in range(min(case.drivers, kills))
        ]
        faults = None
        if case.faults:
            faults = TaskFaults(seed=seed, shares=dict(case.faults), longest=_LONGEST)
        settings = self.settings(name)
        return run_stream_round(
            settings, self.case.files, planned, expected, random, jvms, faults=faults
        )

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
    case: StreamCase, kills: int, seed: int, root: Path, *, console: Console
) -> tuple[bool, dict[str, Any]]:
    """Run a case with at least ``kills`` kills, print a report; return True if all is right, and the figures.

    The folders of rounds with other results are kept.
    """
    root = root / f"stream-{case.name}"
    root.mkdir()
    proof = StreamProof(case, root, seed, console)
    jvms = Jvms(root)
    try:
        expected = proof.expected(jvms)
        if expected is None:
            return False, {}
        proof.kill(kills, expected, jvms)
    finally:
        jvms.close()
    console.print(_table(proof.total, case))
    return not proof.total.rounds_that_differ, proof.total.figures()


def _table(total: StreamTotal, case: StreamCase) -> Table:
    table = Table("figure", "value", title=f"stream: {case.name}")
    for name in ("rounds", "kills", "replayed", "answered", "repeated", "rounds_that_differ"):
        table.add_row(name.replace("_", " "), f"{getattr(total, name):,}")
    for victim in Victim:
        table.add_row(f"killed: {victim.value}", f"{total.victims[victim.value]:,}")
    for what, counts in (
        ("drivers killed at", total.moments),
        ("tasks", total.faults),
        ("faults of tasks at", total.points),
    ):
        for name, count in sorted(counts.items()):
            table.add_row(f"{what}: {name}", f"{count:,}")
    return table
