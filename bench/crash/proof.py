"""``python -m bench crash``: a pipeline that is killed at random times writes the output of an undisturbed run.

First, undisturbed runs with different parallelism and batches must give equal outputs, so the output depends on the
input only. Then programs with checkpoints are killed with SIGKILL and restarted until they end, and their output must
be the same. The web service of ``payments`` is killed while clients send requests, and a stream on Spark if ``--only``
names it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.crash.attempt import random_kill
from bench.crash.outputs import Output, differences
from bench.crash.payments.proof import prove_service
from bench.crash.records import write_readings
from bench.crash.rounds import Plan, Round, run_round, undisturbed
from bench.crash.settings import Mode, Settings

#: Default number of kills.
KILLS: Final = 225
SEED: Final = 1

#: Records of each input file and of each split of the generated source, for about three seconds.
_RECORDS: Final = 1200
#: Maximum kills of one round.
_MOST: Final = 9
#: Maximum seconds from the start of a job to its kill.
_LONGEST: Final = 0.8
#: Microseconds per record of the sink in unaligned mode, which fill the channels.
_SLOWER: Final = 1000


class Program(Enum):
    """A kind of program that is killed."""

    PIPELINES = "pipelines"
    SERVICE = "service"
    STREAM = "stream"
    STREAM_WORKERS = "stream-workers"
    STREAM_EXECUTORS = "stream-executors"
    STREAM_SPECULATION = "stream-speculation"


#: The programs that are killed unless others are named: a stream needs Spark, and some seconds for each kill.
DEFAULT: Final = (Program.PIPELINES, Program.SERVICE)


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table: mode of barriers, and parallelism of attempts."""

    mode: Mode
    parallelisms: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the case."""
        return f"{self.mode.value}, {self.parallelism}"

    @property
    def parallelism(self) -> str:
        """Parallelism, or the choices of a random one."""
        return "/".join(map(str, self.parallelisms))


CASES: Final = [
    Case(mode, parallelisms) for mode in Mode for parallelisms in ((1,), (3,), (1, 2, 3))
]


@dataclass(slots=True)
class Proof:
    """Results of a case."""

    case: Case
    rounds: list[Round] = field(default_factory=list[Round])

    @property
    def kills(self) -> int:
        """Number of kills so far."""
        return sum(one.kills for one in self.rounds)

    @property
    def wrong(self) -> int:
        """Number of rounds with a different output or a failure."""
        return sum(bool(one.wrong) for one in self.rounds)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the table."""
        in_flight = [count for one in self.rounds for count in one.completed.values()]
        return {
            "barriers": self.case.mode.value,
            "parallelism": self.case.parallelism,
            "rounds": len(self.rounds),
            "kills": self.kills,
            "kills_of_running_jobs": sum(one.kills_of_jobs for one in self.rounds),
            "checkpoints": len(in_flight),
            "failed_checkpoints": sum(
                len(one.failed_checkpoints) for each in self.rounds for one in each.attempts
            ),
            "restores": sum(len(one.restored) for one in self.rounds),
            "restored_checkpoints": sum(len(set(one.restored)) for one in self.rounds),
            "records_in_flight": sum(in_flight),
            "restored_in_flight": sum(one.restored_in_flight for one in self.rounds),
            "rounds_that_differ": self.wrong,
        }


def prove(
    kills: int,
    seed: int,
    *,
    console: Console,
    programs: Sequence[Program] = DEFAULT,
    out: Path | None = None,
) -> bool:
    """Kill each of ``programs`` at least ``kills`` times, print a report, and return True if all outputs are right.

    ``out`` receives the figures as JSON. The folders of rounds with a different output are kept.
    """
    root = Path(tempfile.mkdtemp(prefix="aflow-crash-"))
    found: dict[str, Any] = {"name": "crash", "seed": seed}
    right = True
    if Program.PIPELINES in programs:
        right, found["cases"] = prove_pipelines(kills, seed, root, console=console)
    if Program.SERVICE in programs:
        is_right, found["service"] = prove_service(kills, seed, root, console=console)
        right = right and is_right
    for program in programs:
        if program not in DEFAULT:
            # Imported here: the others need no Spark.
            from bench.crash.stream.proof import CASES_BY_PROGRAM, prove_stream

            case = CASES_BY_PROGRAM[program.value]
            is_right, found[program.value] = prove_stream(case, kills, seed, root, console=console)
            right = right and is_right
    if out is not None:
        out.write_text(json.dumps(found, indent=2) + "\n")
    if right:
        shutil.rmtree(root)
    return right


def prove_pipelines(
    kills: int, seed: int, root: Path, *, console: Console
) -> tuple[bool, list[dict[str, Any]]]:
    """Kill pipelines at least ``kills`` times over all cases; return True if all outputs are right, and the figures."""
    settings = inputs(root, _RECORDS)
    expected = _expected_output(settings, root, console)
    if expected is None:
        return False, []
    proofs = [
        _proof(case, -(-kills // len(CASES)), seed, settings, root, expected, console)
        for case in CASES
    ]
    console.print(_table(proofs))
    return not any(one.wrong for one in proofs), [one.figures() for one in proofs]


def inputs(root: Path, records: int) -> Settings:
    """Write the input files below ``root`` and return their settings."""
    write_readings(root / "inputs", records)
    return Settings(inputs=str(root / "inputs"), outputs="", storage=None, orders=records)


def _expected_output(settings: Settings, root: Path, console: Console) -> Output | None:
    """Return the output of undisturbed runs; None if they differ."""
    expected = undisturbed(settings, root / "expected")
    for number, other in enumerate(_other_runs(settings)):
        found = differences(expected, undisturbed(other, root / f"other-{number}"))
        if found:
            console.print(f"Undisturbed runs differ, so the test is not possible: {other}", *found)
            return None
        shutil.rmtree(root / f"other-{number}")
    lines = sum(map(len, expected.values()))
    console.print(
        f"Runs with other parallelism and batches give the same {lines:,} lines in {len(expected)} sinks."
    )
    return expected


def _other_runs(settings: Settings) -> Iterator[Settings]:
    fast = replace(settings, slow=False)
    for parallelism, batch in ((1, None), (2, None), (3, None), (1, 7), (2, 1), (3, 64)):
        yield replace(fast, parallelism=parallelism, batch_records=batch)
    yield replace(settings, parallelism=3)


def _proof(
    case: Case,
    kills: int,
    seed: int,
    settings: Settings,
    root: Path,
    expected: Output,
    console: Console,
) -> Proof:
    proof = Proof(case)
    with console.status(case.name):
        while proof.kills < kills and not proof.wrong:
            number = len(proof.rounds)
            among = "".join(map(str, case.parallelisms))
            folder = root / f"{case.mode.name.lower()}-{among}-{number}"
            random = Random(f"{seed} {case.name} {number}")
            most = min(_MOST, kills - proof.kills)
            plan = Plan(
                parallelisms=case.parallelisms,
                kills=[random_kill(random, longest=_LONGEST) for _ in range(most)],
            )
            one = run_round(_of(case.mode, settings), folder, plan, expected, random)
            proof.rounds.append(one)
            if one.wrong:
                _report(case, folder, one.wrong, console)
            else:
                shutil.rmtree(folder)
    return proof


def _of(mode: Mode, settings: Settings) -> Settings:
    if mode is Mode.UNALIGNED:
        return replace(settings, mode=mode, write_us=_SLOWER)
    return replace(settings, mode=mode)


def _report(case: Case, folder: Path, wrong: Sequence[str], console: Console) -> None:
    console.print(
        f"[bold red]{case.name}[/]: the output of {folder} differs from the expected one (- missing, + extra)"
    )
    for line in wrong:
        console.print(escape(line), soft_wrap=True)


def _table(proofs: Sequence[Proof]) -> Table:
    names = (
        *("rounds", "kills", "kills_of_running_jobs", "checkpoints"),
        *("restored_checkpoints", "records_in_flight", "restored_in_flight"),
    )
    short = ("rounds", "kills", "running", "taken", "restores", "in flight", "restored")
    table = Table("barriers", "par.", *short, "output", title="crash", padding=(0, 0))
    for proof in proofs:
        figures = proof.figures()
        counts = [f"{figures[name]:,}" for name in names]
        verdict = "[bold red]differs[/]" if proof.wrong else "same ✓"
        table.add_row(figures["barriers"], figures["parallelism"], *counts, verdict)
    return table
