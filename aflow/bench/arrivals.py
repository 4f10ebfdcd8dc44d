"""Schedules of arrivals: the intended time of each record of a load, independent of the pipeline.

Theory. In an *open loop* the load does not wait for the pipeline: record ``i`` has an intended time, and its latency
counts from there. A generator that waits for the pipeline instead stops to send while the pipeline stalls, and so omits
the records that would have waited (Gil Tene's *coordinated omission*, solved in wrk2 in the same way).

A schedule yields times in seconds since the start, ascending. A ``ScheduleCursor`` returns the times that are due, and
an ``OfferedCount`` counts them, whether they were taken or not. Nothing here waits or reads a clock.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Final

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import positive_millis

#: The most times in a block of a schedule.
_BLOCK: Final = 1024


class ArrivalSchedule(ABC):
    """The intended times of the records of a load."""

    @abstractmethod
    def blocks(self, seconds: float) -> Iterator[list[float]]:
        """Yield the times (s since the start) before ``seconds``, ascending, in lists that are not empty.

        Each call yields the same times.
        """

    def count(self, until: float, seconds: float) -> int | None:
        """Return the number of times up to ``until`` of ``blocks(seconds)``; None if only counting can tell."""
        return None

    @property
    @abstractmethod
    def highest_rate(self) -> float:
        """The most records per second, on average over a second."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the schedule in words, for reports: ``5,000/s``."""


@dataclass(frozen=True, slots=True)
class ConstantRate(ArrivalSchedule):
    """``rate`` records per second at equal distances. Raises ``FlowDefinitionError``."""

    rate: float

    def __post_init__(self) -> None:
        _check_rate(self.rate, "ConstantRate")

    def blocks(self, seconds: float) -> Iterator[list[float]]:
        rate = self.rate
        return _blocks(
            _count_below(seconds, rate), lambda first, end: [i / rate for i in range(first, end)]
        )

    def count(self, until: float, seconds: float) -> int | None:
        if until < 0:
            return 0
        return min(int(until * self.rate + 1e-9) + 1, _count_below(seconds, self.rate))

    @property
    def highest_rate(self) -> float:
        return self.rate

    def __str__(self) -> str:
        return f"{self.rate:,g}/s"


@dataclass(frozen=True, slots=True)
class RampedRate(ArrivalSchedule):
    """A rate that changes linearly from ``start`` to ``end`` (records per second) in ``over``, and is ``end`` after it.

    Raises ``FlowDefinitionError``.
    """

    start: float
    end: float
    over: timedelta

    def __post_init__(self) -> None:
        _check_rate(self.start, "RampedRate", zero=True)
        _check_rate(self.end, "RampedRate")
        positive_millis(self.over, what="over of RampedRate")

    def blocks(self, seconds: float) -> Iterator[list[float]]:
        over = self.over.total_seconds()
        in_ramp = min(seconds, over)
        slope = (self.end - self.start) / over
        records = _ceil(self.start * in_ramp + slope * in_ramp * in_ramp / 2)
        yield from _blocks(records, lambda first, end: self._times(first, end, slope))
        if seconds > over:
            # The next record of the constant part, continued from the fraction of a record at the end of the ramp.
            exact = (self.start + self.end) / 2 * over
            first = over + (records - exact) / self.end
            yield from _shifted(ConstantRate(self.end).blocks(seconds - first), first)

    def _times(self, first: int, end: int, slope: float) -> list[float]:
        """Solve ``start * t + slope / 2 * t²`` = i for each record, in the form without cancellation."""
        start, square, twice = self.start, self.start * self.start, 2 * slope
        return [
            2 * i / (start + math.sqrt(max(0.0, square + twice * i))) if i else 0.0
            for i in range(first, end)
        ]

    def count(self, until: float, seconds: float) -> int | None:
        return (
            0
            if until < 0
            else min(int(self._before(until) + 1e-9) + 1, _ceil(self._before(seconds)))
        )

    def _before(self, seconds: float) -> float:
        """Return the integral of the rate."""
        over = self.over.total_seconds()
        in_ramp = min(seconds, over)
        beyond = max(0.0, seconds - over) * self.end
        return (
            self.start * in_ramp + (self.end - self.start) / over * in_ramp * in_ramp / 2 + beyond
        )

    @property
    def highest_rate(self) -> float:
        return max(self.start, self.end)

    def __str__(self) -> str:
        return f"{self.start:,g}/s to {self.end:,g}/s in {self.over.total_seconds():g} s"


@dataclass(frozen=True, slots=True)
class SteppedRate(ArrivalSchedule):
    """Rates (records per second), each for a time; the last one continues. Raises ``FlowDefinitionError``."""

    steps: Sequence[tuple[float, timedelta]]

    def __post_init__(self) -> None:
        if not self.steps:
            raise FlowDefinitionError(
                "SteppedRate needs at least one pair of a rate and a duration"
            )
        for rate, duration in self.steps:
            _check_rate(rate, "SteppedRate")
            positive_millis(duration, what="duration of a step of SteppedRate")

    def blocks(self, seconds: float) -> Iterator[list[float]]:
        start = 0.0
        last = len(self.steps) - 1
        for number, (rate, duration) in enumerate(self.steps):
            end = seconds if number == last else min(seconds, start + duration.total_seconds())
            if end > start:
                yield from _shifted(ConstantRate(rate).blocks(end - start), start)
            start += duration.total_seconds()

    def count(self, until: float, seconds: float) -> int | None:
        start, total = 0.0, 0
        last = len(self.steps) - 1
        for number, (rate, duration) in enumerate(self.steps):
            end = seconds if number == last else min(seconds, start + duration.total_seconds())
            if end > start and until >= start:
                total += ConstantRate(rate).count(until - start, end - start) or 0
            start += duration.total_seconds()
        return total

    @property
    def highest_rate(self) -> float:
        return max(rate for rate, _ in self.steps)

    def __str__(self) -> str:
        return ", ".join(f"{rate:,g}/s for {time.total_seconds():g} s" for rate, time in self.steps)


@dataclass(frozen=True, slots=True)
class PoissonArrivals(ArrivalSchedule):
    """Independent arrivals, on average ``rate`` per second: the distances are exponentially distributed.

    ``seed`` makes the times repeatable. Raises ``FlowDefinitionError``.
    """

    rate: float
    seed: int = 1

    def __post_init__(self) -> None:
        _check_rate(self.rate, "PoissonArrivals")

    def blocks(self, seconds: float) -> Iterator[list[float]]:
        gap = random.Random(self.seed).expovariate
        rate, time = self.rate, 0.0
        block: list[float] = []
        while (time := time + gap(rate)) < seconds:
            block.append(time)
            if len(block) == _BLOCK:
                yield block
                block = []
        if block:
            yield block

    @property
    def highest_rate(self) -> float:
        return self.rate

    def __str__(self) -> str:
        return f"{self.rate:,g}/s (Poisson)"


@dataclass(frozen=True, slots=True)
class RecordedArrivals(ArrivalSchedule):
    """The distances of recorded ``times`` (s, of any origin, ascending), replayed ``speed`` times as fast.

    Raises ``FlowDefinitionError``.
    """

    times: Sequence[float]
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not self.times:
            raise FlowDefinitionError("RecordedArrivals needs at least one time")
        _check_rate(self.speed, "the speed of RecordedArrivals", unit="a factor")
        for number, (one, following) in enumerate(pairwise(self.times), start=1):
            if not one <= following:
                raise FlowDefinitionError(
                    f"RecordedArrivals needs ascending times: number {number} is {following!r}, after {one!r}; "
                    f"sort the records by time"
                )

    def blocks(self, seconds: float) -> Iterator[list[float]]:
        times, origin, speed = self.times, self.times[0], self.speed
        for first in range(0, len(times), _BLOCK):
            block = [(one - origin) / speed for one in times[first : first + _BLOCK]]
            within = bisect_right(block, math.nextafter(seconds, -math.inf))
            if within:
                yield block[:within]
            if within < len(block):
                return

    def count(self, until: float, seconds: float) -> int | None:
        origin = self.times[0]
        due = bisect_right(self.times, origin + until * self.speed)
        return min(due, bisect_left(self.times, origin + seconds * self.speed))

    @property
    def highest_rate(self) -> float:
        return _most_in_a_second(self.times, self.speed)

    def __str__(self) -> str:
        return f"{len(self.times):,} recorded times" + (
            "" if self.speed == 1 else f", {self.speed:g} times as fast"
        )


class ScheduleCursor:
    """The place in a schedule up to which records were taken."""

    def __init__(self, schedule: ArrivalSchedule, seconds: float) -> None:
        """``seconds`` is the end of the schedule (s since the start)."""
        self._blocks = schedule.blocks(seconds)
        #: The present block, and the place in it; empty at the end.
        self._block: list[float] = next(self._blocks, list[float]())
        self._at = 0
        #: The number of records that were taken.
        self.taken = 0

    @property
    def next_at(self) -> float | None:
        """The next intended time (s since the start); None at the end."""
        return self._block[self._at] if self._block else None

    def take(self, until: float, limit: int) -> list[float]:
        """Return at most ``limit`` of the times up to ``until``, and continue after them."""
        taken: list[float] = []
        while self._block and (room := limit - len(taken)) > 0:
            block, at = self._block, self._at
            end = bisect_right(block, until, at, min(len(block), at + room))
            taken += block[at:end]
            self._at = end
            if end < len(block):
                break
            self._block, self._at = next(self._blocks, list[float]()), 0
        self.taken += len(taken)
        return taken


class OfferedCount:
    """Counts the records of a schedule that are due, whether they were taken or not."""

    def __init__(self, schedule: ArrivalSchedule, seconds: float) -> None:
        self._schedule = schedule
        self._seconds = seconds
        self._cursor = ScheduleCursor(schedule, seconds)

    def until(self, seconds: float) -> int:
        """Return the number of records up to ``seconds``, which never decreases."""
        count = self._schedule.count(seconds, self._seconds)
        if count is not None:
            return count
        while self._cursor.take(seconds, 64 * _BLOCK):
            pass
        return self._cursor.taken


def _blocks(records: int, times: Callable[[int, int], list[float]]) -> Iterator[list[float]]:
    for first in range(0, records, _BLOCK):
        yield times(first, min(first + _BLOCK, records))


def _shifted(blocks: Iterator[list[float]], seconds: float) -> Iterator[list[float]]:
    return ([seconds + one for one in block] for block in blocks)


def _count_below(seconds: float, rate: float) -> int:
    """Return the number of multiples of ``1 / rate``, from 0 on, that are below ``seconds``."""
    return _ceil(seconds * rate)


def _most_in_a_second(times: Sequence[float], speed: float) -> float:
    first = most = 0
    for number, time in enumerate(times):
        while time - times[first] >= speed:
            first += 1
        most = max(most, number - first + 1)
    return float(most)


def _ceil(records: float) -> int:
    """Return the next whole number from ``records`` on; 0 for negative ones. Errors of rounding make no record."""
    return max(0, math.ceil(records - 1e-6))


def _check_rate(
    rate: float, what: str, *, zero: bool = False, unit: str = "records per second"
) -> None:
    fits = type(rate) in (int, float) and math.isfinite(rate) and (rate > 0 or (zero and rate == 0))
    if not fits:
        bound = "from 0 on" if zero else "above 0"
        raise FlowDefinitionError(f"{what} takes a number {bound} ({unit}), not {shown(rate)}")
