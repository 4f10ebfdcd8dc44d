"""Attempts of a job: its process is started, watched and killed.

The process is forked from one that has imported everything, which takes a tenth of the time. So all attempts of a run
have the same hash seed.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from aflow.checkpoints import Outcome
from bench.crash.cpu import Stopwatch
from tests.connectors.pairs import job
from tests.connectors.pairs.pair import MODULES

_PACKAGE: Final = "tests.connectors.pairs"
_FORKING: Final = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    [f"{_PACKAGE}.job", *(f"{_PACKAGE}.{module}" for module in MODULES.values())]
)

#: The line of a completed checkpoint among the events.
COMPLETED: Final = job.line_of(Outcome.COMPLETED).encode()
#: Seconds between two looks at the events.
_POLL: Final = 0.01


def _prepare_forking() -> None:
    """Start the process that forks, with its socket in a folder that outlives the temporary one of the tests."""
    before, tempfile.tempdir = tempfile.tempdir, "/tmp"
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = before


class JobFailed(Exception):
    """The job ended by itself, or has completed no checkpoint for a long time."""


class Attempts:
    """The attempts of the job of pair ``name``; one runs at a time."""

    def __init__(self, name: str, settings: Mapping[str, str], folder: Path) -> None:
        self._name = name
        self._settings = dict(settings)
        self._events = folder / "events"
        self._log = folder / "log"
        self._events.touch()
        _prepare_forking()
        self._process: ForkServerProcess | None = None
        self._read = 0
        #: Completed checkpoints of all attempts.
        self.checkpoints = 0
        #: Attempts that were restored from a checkpoint, and restarts within an attempt.
        self.restored = 0
        self.restarted = 0

    def start(self, parallelism: int) -> None:
        """Start the next attempt."""
        assert self._process is None
        self._process = _FORKING.Process(
            target=job.run,
            args=(self._name, self._settings, parallelism, self._events, self._log),
            daemon=True,
        )
        self._process.start()

    def kill(self) -> None:
        """Kill the attempt (SIGKILL). Raises ``JobFailed`` if it ended before."""
        if self._process is not None:
            self.look()
            self._process.kill()
            self._process.join()
            if self._process.exitcode != -signal.SIGKILL:
                self.look()
            self._process = None

    def stop(self) -> None:
        """End the attempt, whatever its state."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def wait(self, checkpoints: int, *, within: float) -> None:
        """Wait until the job has completed ``checkpoints`` more ones.

        Raises ``JobFailed`` if it ends, or completes none ``within`` seconds. Seconds in which its event loop waited
        for a CPU do not count: a busy machine is no defect of the job.
        """
        self.look()
        wanted = self.checkpoints + checkpoints
        pid = None if self._process is None else self._process.pid
        known, watch = self.checkpoints, Stopwatch(pid)
        while self.checkpoints < wanted:
            if self.checkpoints != known:
                known, watch = self.checkpoints, Stopwatch(pid)
            if watch.seconds > within:
                raise JobFailed(
                    f"the job has completed no checkpoint for {watch.elapsed:.0f} s, of which it waited "
                    f"{watch.without_cpu:.0f} s for a CPU: {self._tail()}"
                )
            time.sleep(_POLL)
            self.look()

    def look(self) -> None:
        """Count the events so far. Raises ``JobFailed`` if the process has ended by itself."""
        ended = None if self._process is None else self._process.exitcode
        with self._events.open("rb") as events:
            events.seek(self._read)
            lines = events.read().split(b"\n")
        self._read += sum(len(line) + 1 for line in lines[:-1])
        self.checkpoints += lines.count(COMPLETED)
        self.restored += lines.count(b"JobRestored")
        self.restarted += lines.count(b"JobRestarted")
        if ended is not None:
            self._process = None
            raise JobFailed(f"the job ended with {ended}: {self._tail()}")

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
