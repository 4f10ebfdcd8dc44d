"""Drivers of a stream, forked by ``preforked`` one after the other."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from bench.crash.attempt import ProgramFailed
from bench.crash.stream.gateway import PROJECT
from bench.crash.stream.program import Start, StreamSettings

_PROGRAM: Final = (sys.executable, "-m", "bench.crash.stream.preforked")


class Driver:
    """A driver that was started."""

    def __init__(self, program: subprocess.Popen[str], pid: int) -> None:
        self._program = program
        self.pid: Final = pid
        #: Status with which it has ended, as in ``Popen``; None while it runs.
        self.status: int | None = None

    @property
    def has_ended(self) -> bool:
        """True if it has ended."""
        return self.wait(0.0)

    def wait(self, seconds: float | None) -> bool:
        """Wait for its end for this time at most, or for ever; return True if it has ended."""
        output = self._program.stdout
        assert output is not None
        if self.status is None and select.select([output], [], [], seconds)[0]:
            self.status = int(_after("ended", output.readline()))
        return self.status is not None

    def kill(self) -> None:
        """Kill it, unless it has ended, and wait for its end."""
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait(None)


class Drivers:
    """The program that forks drivers; ``close`` ends it."""

    def __init__(self, log: Path) -> None:
        """Start the program, whose errors ``log`` receives."""
        path = os.pathsep.join([str(PROJECT), str(PROJECT / "connectors")])
        with log.open("ab") as errors:
            self._program = subprocess.Popen(
                _PROGRAM,
                cwd=PROJECT,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )

    @contextmanager
    def started(
        self, settings: StreamSettings, variables: Mapping[str, str], log: Path
    ) -> Generator[Driver]:
        """Start a driver, which is killed at the end of the block if it runs. ``log`` receives its notes."""
        log.touch()
        start = Start(settings=settings, variables=dict(variables), log=str(log))
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{msgspec.json.encode(start).decode()}\n")
        driver = Driver(self._program, int(_after("started", self._program.stdout.readline())))
        try:
            yield driver
        finally:
            driver.kill()

    def close(self) -> None:
        """End the program."""
        self._program.communicate()


def _after(word: str, line: str) -> str:
    if not line.startswith(f"{word} "):
        raise ProgramFailed(f"the program that starts drivers said {line!r} instead of {word!r}")
    return line.removeprefix(f"{word} ")
