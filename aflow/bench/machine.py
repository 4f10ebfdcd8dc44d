"""The machine and the process under load: processor, memory, garbage collection, and the noise of other programs.

Linux only in part: without ``/proc`` the figures of memory and of other programs are 0.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aflow.bench.histogram import percentile_of
from aflow.bench.precise_timer import PreciseTimer

#: Seconds between two measurements of the lag of the event loop.
_LAG_EVERY: Final = 0.01

#: Seconds for which ``measure_noise`` watches an idle loop.
_NOISE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """The machine and the versions of a run."""

    cpu: str
    cores: int
    system: str
    python: str
    loop: str
    """The class of the event loop."""


@dataclass(frozen=True, slots=True)
class MachineNoise:
    """The disturbance by the machine itself: with much of it, latencies are not those of the pipeline."""

    timer_p50_ms: float
    """Lateness of a timer on the idle event loop before the run."""
    timer_p99_ms: float
    timer_max_ms: float
    other_cpu: float = 0.0
    """Share of one core that other programs used during the run, on average."""
    steal: float = 0.0
    """Share of the time of all cores that the host of a virtual machine did not give to it."""
    switches_per_s: float = 0.0
    """Involuntary context switches of this process."""


@dataclass(frozen=True, slots=True)
class _Ticks:
    busy: float
    steal: float
    total: float


class ProcessMeter:
    """Processor time, memory and garbage collections of this process."""

    def __init__(self) -> None:
        #: Garbage collections since ``restart``, and their seconds: all together, and the longest.
        self.gc_count = 0
        self.gc_seconds = 0.0
        self.gc_max_seconds = 0.0
        #: Seconds of the longest collection since ``take_longest_gc``.
        self._gc_longest = 0.0
        self._gc_begun = 0.0
        self._started = (time.perf_counter(), time.process_time(), _ticks(), _switches())

    @contextmanager
    def watching(self) -> Generator[None]:
        """Measure garbage collections during the block."""
        gc.callbacks.append(self._on_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_collection)

    def restart(self) -> None:
        """Begin the figures of ``noise``, of the processor and of collections anew."""
        self.gc_count, self.gc_seconds, self.gc_max_seconds = 0, 0.0, 0.0
        self._started = (time.perf_counter(), time.process_time(), _ticks(), _switches())

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all threads so far."""
        return time.process_time()

    @property
    def rss_bytes(self) -> int:
        """Resident memory now; 0 if it is unknown."""
        try:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        except (OSError, ValueError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def take_longest_gc(self) -> float:
        """Return the seconds of the longest collection since the last call."""
        longest, self._gc_longest = self._gc_longest, 0.0
        return longest

    def noise(self, idle: MachineNoise) -> MachineNoise:
        """Return ``idle`` with the figures since ``restart``."""
        begun, own, ticks, switches = self._started
        seconds = max(time.perf_counter() - begun, 1e-3)
        now = _ticks()
        total = max(now.total - ticks.total, 1.0)
        cores = os.cpu_count() or 1
        busy = (now.busy - ticks.busy) / total * cores
        mine = (time.process_time() - own) / seconds
        return MachineNoise(
            idle.timer_p50_ms,
            idle.timer_p99_ms,
            idle.timer_max_ms,
            other_cpu=max(0.0, busy - mine),
            steal=max(0.0, (now.steal - ticks.steal) / total),
            switches_per_s=(_switches() - switches) / seconds,
        )

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._gc_begun = now
            return
        took = now - self._gc_begun
        self.gc_count += 1
        self.gc_seconds += took
        self._gc_longest = max(self._gc_longest, took)
        self.gc_max_seconds = max(self.gc_max_seconds, took)


class LoopLag:
    """Lateness of a timer every 10 ms: the time for which other code kept the event loop."""

    def __init__(self) -> None:
        #: Counted by microseconds.
        self.counts: Counter[int] = Counter()
        #: Seconds; since ``take_longest``.
        self._longest = 0.0
        #: False: measurements do not count.
        self.counted = False

    async def watch(self) -> None:
        """Measure until cancelled."""
        with closing(PreciseTimer()) as timer:
            while True:
                late = await _lateness(timer, _LAG_EVERY)
                self._longest = max(self._longest, late)
                if self.counted:
                    self.counts[int(late * 1e6)] += 1

    def take_longest(self) -> float:
        """Return the seconds of the longest lag since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest


async def measure_noise() -> MachineNoise:
    """Measure the lateness of timers on the running loop, before it has work, for a quarter of a second."""
    counts: Counter[int] = Counter()
    end = time.perf_counter() + _NOISE_SECONDS
    with closing(PreciseTimer()) as timer:
        while time.perf_counter() < end:
            counts[int(await _lateness(timer, 0.001) * 1e6)] += 1
    return MachineNoise(
        percentile_of(counts, 50), percentile_of(counts, 99), percentile_of(counts, 100)
    )


def machine_info() -> MachineInfo:
    """Describe the machine, and the running event loop."""
    loop = type(asyncio.get_running_loop())
    return MachineInfo(
        cpu=cpu_model(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        loop=f"{loop.__module__.partition('.')[0]}.{loop.__name__}",
    )


def cpu_model() -> str:
    """Return the model of the processor, as the system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


async def _lateness(
    timer: PreciseTimer, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    due = clock() + seconds
    await timer.wait(seconds)
    return max(0.0, clock() - due)


def _ticks() -> _Ticks:
    """Return the time of all cores since the start of the machine, in ticks; zeros if it is unknown."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        user, nice, system, idle, wait, irq, soft, steal = map(float, line.split()[1:9])
    except (OSError, ValueError):
        return _Ticks(0.0, 0.0, 0.0)
    busy = user + nice + system + irq + soft
    return _Ticks(busy, steal, busy + idle + wait + steal)


def _switches() -> int:
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
