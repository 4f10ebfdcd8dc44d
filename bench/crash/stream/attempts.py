"""One start of the driver, and its kill."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bench.crash.attempt import ProgramFailed
from bench.crash.cpu import Stopwatch
from bench.crash.stream.drivers import Driver, Drivers
from bench.crash.stream.gateway import DriverJvm
from bench.crash.stream.moments import Moment, Observation, StreamKill, Victim
from bench.crash.stream.program import FAILED, StreamNote, StreamSettings

#: Seconds between two looks at a driver and its files.
_LOOK: Final = 0.01
#: Timeout in seconds of a driver, without those in which it waits for a CPU; its JVM may wait for one, too.
_TIMEOUT: Final = 900.0


@dataclass(frozen=True, slots=True)
class StreamAttempt:
    """Result of one start."""

    kill: StreamKill | None
    killed: bool
    reached: bool
    """True if the moment of the kill came; False if the program was killed while it waited for data."""
    notes: tuple[StreamNote, ...]

    @property
    def ran(self) -> bool:
        """True if the stream was started."""
        return any(note.running or note.stopped for note in self.notes)


def stream_attempt(
    drivers: Drivers, jvm: DriverJvm, settings: StreamSettings, log: Path, kill: StreamKill | None
) -> StreamAttempt:
    """Start the driver and kill it, or let it end if ``kill`` is None. ``log`` receives its notes.

    Raises ``ProgramFailed``.
    """
    with drivers.started(settings, jvm.variables, log) as driver:
        watched = _Watched(driver, log, Path(settings.folder), kill)
        reached = watched.wait()
        if kill is not None and not driver.has_ended:
            _kill(driver, jvm, kill.victim, watched)
    status = driver.status
    killed = kill is not None and (status == -signal.SIGKILL or kill.victim is Victim.JVM)
    if not (killed or status == 0) or (killed and status not in (-signal.SIGKILL, FAILED)):
        raise ProgramFailed(
            f"it ended with {status}, kill: {kill}; its last notes: {stream_notes(log)[-3:]}\n"
            f"{log.with_suffix('.err').read_text(errors='replace')[-6000:]}"
        )
    return StreamAttempt(kill, killed, reached, stream_notes(log))


def stream_notes(log: Path) -> tuple[StreamNote, ...]:
    """Return the notes of a program so far."""
    lines = log.read_bytes().split(b"\n")[:-1]
    return tuple(msgspec.json.decode(line, type=StreamNote) for line in lines)


def _kill(driver: Driver, jvm: DriverJvm, victim: Victim, watched: _Watched) -> None:
    match victim:
        case Victim.PYTHON:
            driver.kill()
        case Victim.DRIVER:
            driver.kill()
            jvm.kill()
        case Victim.JVM:
            jvm.kill()
            # One that waits at a gate does not see that its JVM is gone.
            if watched.kill is not None and watched.kill.moment is Moment.GATE:
                driver.kill()
            watched.wait_for_end()


class _Watched:
    """A driver that runs."""

    def __init__(self, driver: Driver, log: Path, folder: Path, kill: StreamKill | None) -> None:
        self.kill = kill
        self._driver = driver
        self._log = log
        self._folder = folder
        self._size, self._known = 0, tuple[StreamNote, ...]()
        self._watch = Stopwatch(driver.pid)

    def wait(self) -> bool:
        """Return when the program has ended or has to be killed; True if the moment of the kill came."""
        if self.kill is None:
            self.wait_for_end()
            return True
        seen = Observation(self._folder, self.kill.moment)
        while not self._driver.has_ended:
            if self._is_reached(self.kill, seen):
                self._driver.wait(self.kill.delay)
                return True
            if any(note.waiting for note in self._notes()):
                return False
            self._check_time()
            time.sleep(_LOOK)
        return False

    def wait_for_end(self) -> None:
        """Return when the program has ended. Raises ``ProgramFailed`` after a timeout."""
        while not self._driver.wait(1.0):
            self._check_time()

    def _is_reached(self, kill: StreamKill, seen: Observation) -> bool:
        match kill.moment:
            case Moment.START:
                return True
            case Moment.RUNNING:
                return any(note.running for note in self._notes())
            case Moment.GATE:
                return any(note.stopped for note in self._notes())
            case _:
                seen.look()
                return seen.count >= kill.nth

    def _notes(self) -> tuple[StreamNote, ...]:
        """Return the notes so far; the log is read if it has grown."""
        size = self._log.stat().st_size
        if size != self._size:
            self._size, self._known = size, stream_notes(self._log)
        return self._known

    def _check_time(self) -> None:
        if self._watch.elapsed > _TIMEOUT and self._watch.seconds > _TIMEOUT:
            raise ProgramFailed(
                f"it hangs: {self._watch.elapsed:.0f} s, kill: {self.kill}; its last notes: "
                f"{stream_notes(self._log)[-3:]}"
            )
