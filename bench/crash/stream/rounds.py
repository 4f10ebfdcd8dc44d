"""A round: start and kill the driver of a stream until the stream ends, and compare what it has left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from bench.crash.attempt import ProgramFailed
from bench.crash.outputs import Output, differences
from bench.crash.stream.attempts import StreamAttempt, stream_attempt
from bench.crash.stream.drivers import Drivers
from bench.crash.stream.faults import TaskFaults, counted_faults, wait_for_attempts, write_faults
from bench.crash.stream.gateway import DriverJvm
from bench.crash.stream.moments import StreamKill, Victim
from bench.crash.stream.pipeline import input_files, put
from bench.crash.stream.program import ASKING, Gate, StreamSettings
from bench.crash.stream.results import stream_leftovers, stream_output

#: Files that arrive before the first start, and most that arrive before each other one.
_FIRST: Final = 2
_MORE: Final = 3
#: Share of starts before which Spark's record of the end of the last batch is removed.
_REPLAYED: Final = 0.2
#: Share of starts that call the function for batches twice for each batch.
_TWICE: Final = 0.25
#: Share of starts that are asked for savepoints while they run.
_ASKED: Final = 0.25
#: Timeout in seconds of attempts at tasks that outlive the stream.
_OUTLIVED: Final = 300.0


@dataclass(frozen=True, slots=True)
class StreamRound:
    """Result of a round."""

    attempts: Sequence[StreamAttempt]
    replayed: int
    """Number of batches that Spark ran again although their epochs were committed."""
    wrong: Sequence[str]
    """Differences, or the failure of the program; empty if there is none."""
    faults: Counter[str] = field(default_factory=Counter[str])
    """Number of faults of tasks by kind and point, and of repeated attempts."""

    @property
    def answered(self) -> int:
        """Number of savepoints that were written while the stream ran."""
        return sum(note.answered for one in self.attempts for note in one.notes)

    @property
    def kills(self) -> Counter[Victim]:
        """Number of kills by victim."""
        return Counter(one.kill.victim for one in self.attempts if one.killed and one.kill)

    @property
    def moments(self) -> Counter[str]:
        """Number of kills by moment."""
        return Counter(
            one.kill.name if one.reached else "waiting for data"
            for one in self.attempts
            if one.killed and one.kill
        )


@dataclass(slots=True)
class Jvms:
    """The JVM for the next start: the former one unless it was killed; and the program that forks drivers."""

    folder: Path
    drivers: Drivers = field(init=False, repr=False)
    started: int = 0
    _current: DriverJvm | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.drivers = Drivers(self.folder / "drivers.err")

    def current(self) -> DriverJvm:
        """Return a JVM that runs."""
        if self._current is None:
            self._current = DriverJvm(self.folder / f"jvm-{self.started:03}.log")
            self.started += 1
        return self._current

    def kill(self) -> None:
        """Kill the JVM."""
        if self._current is not None:
            self._current.kill()
            self._current = None

    def close(self) -> None:
        """Kill the JVM, and end the program."""
        self.kill()
        self.drivers.close()


def run_stream_round(
    settings: StreamSettings,
    files: int,
    kills: Sequence[StreamKill],
    expected: Output,
    random: Random,
    jvms: Jvms,
    *,
    faults: TaskFaults | None = None,
) -> StreamRound:
    """Run a round in the folder of ``settings``, which must not exist. ``files`` is the number of input files.

    Each start but the last one is killed, and the last files arrive before the last one. Tasks have ``faults``.
    """
    folder = Path(settings.folder)
    starts = Starts(settings, files, random, jvms, one_by_one=faults is not None)
    folder.mkdir(parents=True)
    if faults is not None:
        write_faults(folder, faults)
    wrong: list[str] = []
    try:
        for kill in [*kills, None]:
            starts.start(kill)
        wrong += differences(expected, stream_output(folder))
        if faults is not None:
            # Attempts that were replaced may run yet, and the next driver removes the state that they write.
            wait_for_attempts(folder, _OUTLIVED)
            starts.start(None)
            wrong += differences(expected, stream_output(folder))
        wrong += stream_leftovers(folder)
    except (ProgramFailed, TimeoutError) as exc:
        wrong.append(f"start {len(starts.attempts)}: {exc}")
    return StreamRound(starts.attempts, starts.replayed, wrong, counted_faults(folder))


@dataclass(slots=True)
class Starts:
    """The starts of a round."""

    settings: StreamSettings
    files: int
    random: Random
    jvms: Jvms
    one_by_one: bool = False
    """True if the last start has batches of few files, too."""
    attempts: list[StreamAttempt] = field(default_factory=list[StreamAttempt])
    replayed: int = 0
    #: Number of input files that have arrived.
    _arrived: int = 0

    def start(self, kill: StreamKill | None) -> None:
        """Start the driver, and kill it; or let all files arrive, and wait until it ends. Raises ``ProgramFailed``."""
        folder, random = Path(self.settings.folder), self.random
        if kill is None:
            self.arrive(self.files)
        else:
            more = _FIRST if not self.attempts else random.randint(1, _MORE)
            self.arrive(min(self._arrived + more, self.files - 2))
        if random.random() < _REPLAYED:
            self.replayed += forget_last_batch(folder / "state")
        settings = msgspec.structs.replace(
            self.settings,
            # Operators store their watermark for each subtask, so that of the last start is that of other rounds.
            parallelism=self.settings.parallelism if kill is None else random.randint(1, 3),
            files=self.files if kill is None and not self.one_by_one else random.randint(1, 2),
            twice=random.random() < _TWICE,
            asked=random.random() < _ASKED or needs_savepoints(kill),
            gate=None if kill is None else kill.gate,
            nth=1 if kill is None else kill.nth,
        )
        log = folder / f"start-{len(self.attempts):03}.log"
        attempt = stream_attempt(self.jvms.drivers, self.jvms.current(), settings, log, kill)
        self.attempts.append(attempt)
        if kill is not None and attempt.killed and kill.victim is not Victim.PYTHON:
            self.jvms.kill()

    def arrive(self, files: int) -> None:
        """Write the input files up to this number."""
        records = input_files(self.files)
        for number in range(self._arrived, files):
            put(Path(self.settings.folder, "input"), number, records[number])
        self._arrived = max(self._arrived, files)


def needs_savepoints(kill: StreamKill | None) -> bool:
    """Return True if the moment of ``kill`` is one of a driver that is asked for savepoints."""
    return kill is not None and kill.gate is not None and Gate[kill.gate] in ASKING


def forget_last_batch(state: Path) -> bool:
    """Remove Spark's record of the end of the last batch, which it runs again then; False if there is none."""
    commits = state / "spark" / "commits"
    done = sorted(int(path.name) for path in commits.glob("[0-9]*")) if commits.is_dir() else []
    offsets = state / "spark" / "offsets"
    begun = [int(path.name) for path in offsets.glob("[0-9]*")] if offsets.is_dir() else []
    # Spark runs the last batch again, and no other one.
    if not done or done[-1] != max(begun, default=-1):
        return False
    (commits / str(done[-1])).unlink()
    (commits / f".{done[-1]}.crc").unlink(missing_ok=True)
    return True
