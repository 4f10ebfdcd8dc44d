"""The comparison of one direction of a connector with a bare loop, and the records of most cases."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.harness import Measurement, compare, run_async
from tests.temporary_files import MEMORY, is_suitable

Program = Callable[[], Coroutine[Any, Any, int]]


def numbered_record(n: int) -> dict[str, Any]:
    """Return record ``n``."""
    return {"n": n, "name": "a record of some bytes"}


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Yield a folder for checkpoints, in memory if there is enough of it.

    No server of the cases waits for its disk, so the progress of the loops, which is in the server, costs no such wait.
    Checkpoints on a disk would.
    """
    parent = MEMORY if is_suitable(MEMORY) else None
    with TemporaryDirectory(prefix="aflow-bench-", dir=parent) as folder:
        yield Path(folder)


def compare_directions(
    name: str, records: int, rounds: int, in_aflow: Program, by_hand: Program
) -> Measurement:
    """Run both programs in turn. Each returns the number of its records or messages, which must be equal.

    ``cpu_ratio`` compares the processor times of this process alone, without those of the server: on a busy machine
    it is steadier than ``ratio``.
    """
    ours, theirs = _Timed(in_aflow), _Timed(by_hand)
    measured = compare(name, records, ours, theirs, at_least=0.6, rounds=rounds)
    figures = {**measured.figures, "cpu_ratio": round(theirs.seconds / ours.seconds, 3)}
    return replace(measured, figures=figures)


class _Timed:
    """A program, and the processor time of each of its runs."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._times: list[float] = []

    def __call__(self) -> int:
        start = time.process_time()
        result = run_async(self._program())
        self._times.append(time.process_time() - start)
        return result

    @property
    def seconds(self) -> float:
        """The median of all runs but the first one, the warm-up."""
        return statistics.median(self._times[1:])
