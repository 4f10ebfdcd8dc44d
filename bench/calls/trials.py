"""Several programs in turn, round by round, so that what the machine does meanwhile hits all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bench.harness import timed

Program = Callable[[Sequence[int]], list[int]]
"""Makes a call for each value, and returns what the calls have given."""

Check = Callable[[list[int], Sequence[int]], bool]
"""Return True if these are the results for these values."""


@dataclass(slots=True)
class Times:
    """Of the rounds of one program, in seconds."""

    elapsed: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])
    """CPU time of the process."""

    @property
    def median(self) -> float:
        return statistics.median(self.elapsed)

    @property
    def median_cpu(self) -> float:
        return statistics.median(self.cpu)


def run_in_turn(
    programs: Mapping[str, tuple[Program, Check]], values: Sequence[int], rounds: int
) -> dict[str, Times]:
    """Run each program ``rounds`` times after a warm-up with a few values; the times of each by its name.

    Raises ``SystemExit`` when a run gives something else than it should.
    """
    for program, _ in programs.values():
        program(values[: len(values) // 20])
    times = {name: Times() for name in programs}
    for _ in range(rounds):
        for name, (program, check) in programs.items():
            gc.collect()  # what an earlier program left is not charged to this one
            cpu = time.process_time()
            elapsed, results = timed(partial(program, values))
            times[name].cpu.append(time.process_time() - cpu)
            times[name].elapsed.append(elapsed)
            if not check(results, values):
                raise SystemExit(f"async: {name} gave other results than it should")
    return times
