"""A service that answers calls in made-up time, and a step that calls it as often as its limit lets it.

The service has *servers*: each answers one call at a time, and there may be more or fewer of them from some moment
on. A call that finds all of them busy waits for its turn, or is rejected. The step has any number of records to call
for, so what was rejected is called again at once: nothing but the limit keeps the step from calling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from statistics import fmean
from typing import Final, Protocol

#: Interval (s) at which the number of servers is updated.
TICK: Final = 0.05


class Limit(Protocol):
    """A limit under test; ``AdaptiveLimiter`` is one."""

    @property
    def limit(self) -> int: ...

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None: ...


@dataclass
class Fixed:
    """Always the same number of calls."""

    limit: int

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None:
        """Ignore the result."""


@dataclass(kw_only=True)
class Service:
    """The behaviour of the service; times are in seconds."""

    servers: Callable[[float], int]
    """Return the number of servers at a moment; a change takes effect within ``TICK``."""
    takes: Callable[[float, Random], float]
    """Return the duration of a call that a server starts at a moment."""
    rejects: bool = False
    """A call that finds no server free fails at once instead of waiting."""
    reject_after: float = 0.001
    fails: float = 0.0
    """Share of answers that are errors for reasons of their own."""


@dataclass
class Seen:
    """The history of a run."""

    ended: list[tuple[float, float, bool, int]] = field(default_factory=list)
    """Of each call: when it ended, how long it took, whether it was answered well, the limit then."""

    def answered(self, begin: float, end: float) -> float:
        """Good answers per second."""
        return sum(ok for at, _, ok, _ in self.ended if begin <= at < end) / (end - begin)

    def latency(self, begin: float, end: float) -> float:
        """Mean of good answers."""
        return fmean(took for at, took, ok, _ in self.ended if ok and begin <= at < end)

    def rejected(self, begin: float, end: float) -> float:
        """Share of calls that failed."""
        return fmean(not ok for at, _, ok, _ in self.ended if begin <= at < end)

    def limits(self, begin: float, end: float) -> list[int]:
        """At each call that ended."""
        return [limit for at, _, _, limit in self.ended if begin <= at < end]


class Simulation:
    """One step and one service; ``seed`` decides all that is random."""

    def __init__(
        self,
        service: Service,
        limit: Limit,
        seed: int,
        wanted: int = 1_000_000,
    ) -> None:
        self.service = service
        self.limit = limit
        #: Concurrent calls that the step wants to make; with fewer than the limit, it is not used.
        self.wanted = wanted
        self.random = Random(seed)
        self.now = 0.0
        self.in_flight = 0
        self.busy = 0
        self.servers = service.servers(0.0)
        #: Start times of the calls that wait for a server.
        self.queue: deque[float] = deque()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.seen = Seen()

    def run(self, until: float) -> Seen:
        """Let time go on."""
        self._at(self.now, self._tick)
        while self.events and self.events[0][0] <= until:
            self.now, _, event = heappop(self.events)
            event()
            self._begin()
        return self.seen

    def _at(self, moment: float, event: Callable[[], None]) -> None:
        heappush(self.events, (moment, next(self.order), event))

    def _tick(self) -> None:
        """Servers that came take what waits."""
        self.servers = self.service.servers(self.now)
        self._serve()
        self._at(self.now + TICK, self._tick)

    def _begin(self) -> None:
        while self.in_flight < self.limit.limit and self.in_flight < self.wanted:
            self.in_flight += 1
            self._arrive(self.now)

    def _arrive(self, begun: float) -> None:
        if self.busy < self.servers and not self.queue:
            self._answer(begun)
        elif self.service.rejects:
            self._at(self.now + self.service.reject_after, lambda: self._end(begun, ok=False))
        else:
            self.queue.append(begun)

    def _answer(self, begun: float) -> None:
        self.busy += 1
        took = self.service.takes(self.now, self.random)
        fails = self.service.fails
        ok = not fails or self.random.random() >= fails
        self._at(self.now + took, lambda: self._answered(begun, ok))

    def _answered(self, begun: float, ok: bool) -> None:
        self.busy -= 1
        self._serve()
        self._end(begun, ok)

    def _serve(self) -> None:
        while self.queue and self.busy < self.servers:
            self._answer(self.queue.popleft())

    def _end(self, begun: float, ok: bool) -> None:
        latency = self.now - begun
        self.seen.ended.append((self.now, latency, ok, self.limit.limit))
        self.limit.ended(self.now, latency, ok, self.in_flight)
        self.in_flight -= 1
