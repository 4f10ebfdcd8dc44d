"""A service in virtual time that notes when it was called, and what limits mean for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import aflow as af

SECOND = timedelta(seconds=1)


@dataclass
class NotedService:
    """Answers with the number after ``takes`` seconds, or fails if ``fails`` says so of the number and the time."""

    takes: float = 0.05
    fails: Callable[[int, float], bool] = lambda number, now: False
    #: Start (s) and number of each call.
    begun: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])

    async def ask(self, number: int) -> int:
        now = asyncio.get_running_loop().time()
        self.begun.append((now, number))
        await asyncio.sleep(self.takes)
        if self.fails(number, now):
            raise ConnectionError("down")
        return number

    async def ask_all(self, numbers: list[int]) -> list[int]:
        now = asyncio.get_running_loop().time()
        self.begun.extend((now, number) for number in numbers)
        await asyncio.sleep(self.takes)
        return numbers

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.begun]

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.begun]

    def within(self, begin: float, end: float) -> int:
        """Return the number of calls that started in that time (s)."""
        return sum(begin <= at < end for at in self.times)


@dataclass
class ServiceWithRoom:
    """Works on ``room`` calls at once, for 0.1 s each; others wait in line."""

    room: int
    done: int = 0
    _busy: int = 0
    _waiting: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])

    async def ask(self, number: int) -> int:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._let_in()
        await place
        try:
            await asyncio.sleep(0.1)
        finally:
            self._busy -= 1
            self._let_in()
        self.done += 1
        return number

    def _let_in(self) -> None:
        while self._busy < self.room and self._waiting:
            self._busy += 1
            self._waiting.pop(0).set_result(None)


def check_rate(
    begun: list[tuple[float, int]],
    limit: af.calls.RateLimit[int],
    cost: Callable[[int], float] = lambda number: 1.0,
) -> None:
    """A bucket that holds the burst had for each call what it costs, or was full."""
    burst = float(limit.units_at_once)
    rate = limit.count / limit.per.total_seconds()
    level, last = burst, 0.0
    for at, number in begun:
        level = min(burst, level + (at - last) * rate)
        assert level > min(cost(number), burst) - 1e-6, f"{number} at {at} finds {level}"
        level, last = level - cost(number), at
