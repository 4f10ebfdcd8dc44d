"""A run of a pair: numbers are fed, the job, its servers and its connections are disturbed, and the output is compared.

The output is read with a client of its own, and compared with the windows of the numbers that were fed. Exactly once
means that each result is there once, at least once that it is there and that no other is.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

from tests.connectors.pairs.attempt import Attempts, JobFailed
from tests.connectors.pairs.job import WIDTH, expected
from tests.connectors.pairs.pair import Output, Pair, Result, pair_named
from tests.connectors.pairs.proxies import Proxies
from tests.connectors.pairs.servers import Servers

#: Numbers that are fed before each disturbance: more than the job processes until then.
STEP: Final = 15 * WIDTH
#: Choices of the parallelism of each attempt.
_PARALLELISM: Final = (1, 2, 3)
#: Seconds without a checkpoint after which a job hangs, whatever happened before.
_PROGRESS: Final = 180.0
#: Seconds without a new result after which no further one is expected.
_COMPLETE: Final = 180.0
#: Share of jobs that are killed at any time after their start, also before their first checkpoint.
_EARLY: Final = 0.2
#: Share of killed servers during whose absence the job is killed, too.
_BOTH: Final = 0.3


class Disturbance(Enum):
    """Kinds of disturbances."""

    JOB = "job killed"
    SERVER = "server killed"
    CUT = "connections cut"
    FREEZE = "connections frozen"
    ANSWERS = "answers lost"


CONNECTIONS: Final = (Disturbance.CUT, Disturbance.FREEZE, Disturbance.ANSWERS)


@dataclass
class Report:
    """Result of a run."""

    pair: str
    seed: int
    done: Counter[Disturbance] = field(default_factory=Counter[Disturbance])
    #: Differences of the outputs; empty if there is none.
    wrong: list[str] = field(default_factory=list[str])
    numbers: int = 0
    results: int = 0
    #: Results that are there more than once, in outputs whose guarantee allows it.
    repeated: int = 0
    checkpoints: int = 0
    restored: int = 0
    restarted: int = 0
    seconds: float = 0.0

    @property
    def disturbances(self) -> int:
        return self.done.total()

    def __str__(self) -> str:
        kinds = ", ".join(f"{self.done[kind]} {kind.value}" for kind in Disturbance)
        verdict = "; ".join(self.wrong) or "no difference"
        return (
            f"{self.pair} seed {self.seed}: {self.disturbances} disturbances ({kinds}); {self.numbers} numbers, "
            f"{self.results} results, {self.repeated} repeated where allowed; {self.checkpoints} checkpoints, "
            f"{self.restored} restored, {self.restarted} restarts; {self.seconds:.0f} s: {verdict}"
        )


def plan(kills: int, random: Random) -> list[Disturbance]:
    """Return disturbances in random order: 70 % of jobs, 20 % of servers, and 10 % of connections."""
    servers, connections = round(kills * 0.2), round(kills * 0.1)
    chosen = [Disturbance.SERVER] * servers
    chosen += [CONNECTIONS[number % len(CONNECTIONS)] for number in range(connections)]
    chosen += [Disturbance.JOB] * (kills - len(chosen))
    random.shuffle(chosen)
    return chosen


def differences(
    output: str, wanted: Sequence[Result], found: Sequence[Result], *, repeats: bool
) -> list[str]:
    """Return how ``found`` differs from what the guarantee says."""
    if repeats:
        found = sorted(set(found))
    missing, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    sets = {"missing": missing, "wrong or repeated": more}
    return [
        f"{output}: {counts.total()} results are {kind}, as {sorted(counts)[:3]}"
        for kind, counts in sets.items()
        if counts
    ]


def stands_still(wanted: Sequence[Result], found: Sequence[Result]) -> bool:
    """Return True if ``found`` ends before the windows of ``wanted``: results that are missing may be late, not lost.

    The windows of a key end in their order, so a result of a later window follows all that precede it.
    """
    last = max(start for _, start, _ in wanted)
    passed = {key for key, start, _ in found if start > last}
    return not passed >= {key for key, _, _ in wanted}


class Run:
    """A run of ``pair`` in a folder of its own. ``progress`` is called with a line after each disturbance."""

    def __init__(
        self, pair: Pair, report: Report, random: Random, progress: Callable[[str], None]
    ) -> None:
        self._pair = pair
        self._report = report
        self._random = random
        self._progress = progress
        self._attempts = Attempts(report.pair, pair.settings, pair.folder)
        self._fed = 0

    def perform(self, disturbances: Sequence[Disturbance], seconds: float) -> None:
        """Disturb the job, for so many seconds at most, let it complete its output, and compare.

        Raises ``JobFailed``.
        """
        last = time.monotonic() + seconds
        try:
            self._start()
            for number, kind in enumerate(disturbances):
                begin = time.monotonic()
                if begin > last:
                    break
                with self._feeding(STEP):
                    self._disturb(kind)
                self._report.done[kind] += 1
                elapsed = time.monotonic() - begin
                self._progress(f"{number + 1}/{len(disturbances)} {kind.value}, {elapsed:.1f} s")
            self._compare()
        finally:
            self._attempts.stop()
            self._report.numbers = self._fed
            self._report.checkpoints = self._attempts.checkpoints
            self._report.restored = self._attempts.restored
            self._report.restarted = self._attempts.restarted

    def _start(self) -> None:
        self._attempts.start(self._random.choice(_PARALLELISM))

    @contextmanager
    def _feeding(self, count: int) -> Generator[None]:
        """Feed the next numbers before the body, or during it if they go through the job."""
        numbers = range(self._fed, self._fed + count)
        self._fed += count
        if not self._pair.feeds_job:
            self._pair.feed(numbers)
            yield
            return
        with ThreadPoolExecutor(1) as pool:
            feeding = pool.submit(self._pair.feed, numbers)
            yield
            feeding.result()

    # ------------------------------------------------------------------------------------------------ disturbances

    def _disturb(self, kind: Disturbance) -> None:
        match kind:
            case Disturbance.JOB:
                self._kill_job()
            case Disturbance.SERVER:
                self._kill_server()
            case _:
                self._disturb_connections(kind)

    def _kill_job(self) -> None:
        if self._random.random() < _EARLY:
            time.sleep(self._random.uniform(0, 2))
        else:
            self._wait_for_moment()
        self._attempts.kill()
        self._start()

    def _wait_for_moment(self) -> None:
        """Wait until a random moment after the next checkpoints."""
        self._attempts.wait(self._random.randint(1, 3), within=_PROGRESS)
        time.sleep(self._random.uniform(0, 0.2))

    def _kill_server(self) -> None:
        self._wait_for_moment()
        server = self._random.choice(self._pair.killable)
        server.kill()
        try:
            time.sleep(self._random.uniform(0, 0.5))
            if self._random.random() < _BOTH:
                self._attempts.kill()
                self._start()
        finally:
            server.start()
        self._attempts.wait(1, within=_PROGRESS)

    def _disturb_connections(self, kind: Disturbance) -> None:
        self._wait_for_moment()
        proxy = self._random.choice(self._pair.proxies)
        if kind is Disturbance.FREEZE:
            proxy.freeze()
        elif kind is Disturbance.ANSWERS:
            proxy.lose_answers()
        if kind is not Disturbance.CUT:
            time.sleep(self._random.uniform(0, 1))
        if kind is not Disturbance.FREEZE or self._random.random() < 0.5:
            # Answers that were lost leave the client without a way to continue on its connection.
            proxy.cut()
        proxy.thaw()
        self._attempts.wait(1, within=_PROGRESS)

    # ------------------------------------------------------------------------------------------------ comparison

    def _compare(self) -> None:
        wanted = expected(self._fed)
        # Numbers whose windows are not compared, so that event time passes the end of the others.
        max_delay = self._pair.ends(self._pair.settings).max_delay
        with self._feeding(3 * WIDTH + int(max_delay.total_seconds() * 1000)):
            for output in self._pair.outputs:
                self._wait_for(output, wanted)
        # Later checkpoints would show results that are written again.
        self._attempts.wait(3, within=_PROGRESS)
        self._attempts.stop()
        last = max(start for _, start, _ in wanted)
        for output in self._pair.outputs:
            everything = output.read()
            found = [one for one in everything if one[1] <= last]
            self._report.results += len(set(found))
            if output.repeats:
                self._report.repeated += len(found) - len(set(found))
            wrong = differences(output.name, wanted, found, repeats=output.repeats)
            if wrong and stands_still(wanted, everything):
                wrong.append(f"{output.name}: it stood still, so what is missing may be late")
            self._report.wrong += wrong

    def _wait_for(self, output: Output, wanted: Sequence[Result]) -> None:
        """Wait until an output is complete, or gets no further result for a long time. Raises ``JobFailed``."""
        count, changed = -1, 0.0
        while not set(wanted) <= (found := set(output.read())):
            if len(found) != count:
                count, changed = len(found), time.monotonic()
            if time.monotonic() - changed > _COMPLETE:
                return
            self._attempts.look()
            time.sleep(0.2)


def run_pair(
    name: str,
    servers: Servers,
    folder: Path,
    disturbances: Sequence[Disturbance],
    *,
    seed: int,
    seconds: float = math.inf,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Run the pair ``name`` in ``folder``, which must be empty, and return what was found.

    After ``seconds`` no further disturbance begins.
    """
    report = Report(name, seed)
    begin = time.monotonic()
    with Proxies() as proxies:
        pair = pair_named(name)(servers, proxies, folder)
        try:
            Run(pair, report, Random(seed), progress).perform(disturbances, seconds)
        except JobFailed as exc:
            report.wrong.append(str(exc))
    report.seconds = time.monotonic() - begin
    return report
