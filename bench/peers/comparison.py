"""Runs of the jobs: peers in turn, results compared, medians and their ratio to aflow."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.peers.contenders import PEERS, Peer
from bench.peers.environments import ROOT, Unavailable, python_of
from bench.peers.jobs import Job, write_events
from bench.peers.programs.protocol import write_task

#: Seconds after which a run is ended.
LIMIT: Final = 300

OURS: Final = "aflow"
BY_HAND: Final = "by hand"


@dataclass(slots=True)
class Entry:
    """The measured runs of one peer at one job."""

    peer: Peer
    records: int
    runs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    problem: str = ""
    """Reason why there is no figure."""

    @property
    def rate(self) -> float:
        """Median of the records per second."""
        return statistics.median(self.records / float(run["seconds"]) for run in self.runs)

    @property
    def delays(self) -> tuple[float, float]:
        """Medians of the p50 and p99 of the latency in ms."""
        p50, p99 = (
            statistics.median(run["delays"][which] for run in self.runs) for which in ("p50", "p99")
        )
        return p50, p99


@dataclass(frozen=True, slots=True)
class JobComparison:
    """A job and the entries of all peers."""

    job: Job
    entries: Sequence[Entry]

    def ours(self) -> Entry | None:
        """Return the entry of aflow, if it was measured."""
        return next((one for one in self.entries if one.peer.name == OURS and one.runs), None)


def compare_peers(
    job: Job,
    peers: Sequence[Peer],
    *,
    records: int | None,
    rounds: int,
    variables: Mapping[str, str],
    on_run: Callable[[str], None],
) -> JobComparison:
    """Run ``job`` by each of ``peers``, ``rounds`` times in turn; ``records`` replaces the number of the job.

    A peer whose result differs from that of the program by hand gets no figure.
    """
    wanted = records or job.records
    with TemporaryDirectory() as folder:
        runs = _JobRuns(job, Path(folder), variables)
        entries = [Entry(peer, max(1, int(wanted * peer.share))) for peer in peers]
        for number in range(rounds):
            # Another one begins each round: a program after an idle moment of the machine has an advantage.
            turn = number * len(entries) // rounds
            for entry in (*entries[turn:], *entries[:turn]):
                if not entry.problem:
                    on_run(f"{job.name}: {entry.peer.name}, run {number + 1} of {rounds}")
                    runs.run(entry)
    return JobComparison(job, entries)


class _JobRuns:
    """Runs of one job; ``folder`` has its input."""

    def __init__(self, job: Job, folder: Path, variables: Mapping[str, str]) -> None:
        self._job = job
        self._folder = folder
        self._variables = variables
        #: Digests of the right results, by number of records.
        self._expected: dict[int, str] = {}

    def run(self, entry: Entry) -> None:
        peer = entry.peer
        if self._job.name in peer.lacks:
            entry.problem = peer.lacks[self._job.name]
            return
        if peer.nats and "AFLOW_PEERS_NATS" not in self._variables:
            entry.problem = "there is no program of a NATS server"
            return
        try:
            outcome = self._outcome(peer, self._job, entry.records)
            expected = self._expected_digest(entry.records)
        except Unavailable as exc:
            entry.problem = str(exc)
            entry.runs.clear()
            return
        if outcome["digest"] != expected:
            entry.problem = f"wrong result: {outcome['digest']}, not {expected}"
            entry.runs.clear()
            return
        entry.runs.append(outcome)

    def _expected_digest(self, records: int) -> str:
        if records not in self._expected:
            # `checkpoints` has the results of `files`.
            same = self._job.program or self._job.name
            program = "files" if same == "checkpoints" else same
            by_hand = next(one for one in PEERS if one.name == BY_HAND)
            self._expected[records] = self._outcome(by_hand, self._job, records, program)["digest"]
        return self._expected[records]

    def _outcome(self, peer: Peer, job: Job, records: int, program: str = "") -> dict[str, Any]:
        events = self._folder / f"events-{records}.jsonl"
        if job.from_file and not events.exists():
            write_events(events, records)
        with TemporaryDirectory(dir=self._folder) as place:
            task = job.task(Path(place) / "work", records, events)
            Path(task.folder).mkdir()
            task_file, outcome_file = Path(place) / "task.json", Path(place) / "outcome.json"
            write_task(replace(task, job=program) if program else task, task_file)
            module = f"bench.peers.programs.{peer.module}"
            command = [str(python_of(peer)), "-m", module, str(task_file), str(outcome_file)]
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=dict(self._variables),
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=LIMIT,
                )
            except subprocess.TimeoutExpired:
                raise Unavailable(f"did not end within {LIMIT} s") from None
            if done.returncode or not outcome_file.exists():
                lines = [line for line in done.stderr.splitlines() if line.strip()]
                raise Unavailable(f"failed: {lines[-1] if lines else done.returncode}")
            found: dict[str, Any] = json.loads(outcome_file.read_text())
            return found


def notes(comparisons: Sequence[JobComparison]) -> Iterator[str]:
    """Yield the versions, the settings, and the reasons for missing figures, a line each."""
    for peer in PEERS:
        entries = [
            (one.job, entry)
            for one in comparisons
            for entry in one.entries
            if entry.peer.name == peer.name
        ]
        versions = {run["version"] for _, entry in entries for run in entry.runs}
        if versions:
            yield f"{peer.name} {', '.join(sorted(versions))}"
        for job, entry in entries:
            if entry.problem:
                yield f"  {job.name}: {entry.problem}"
            elif entry.runs and (settings := entry.runs[0]["settings"]):
                yield f"  {job.name}: {settings}"
