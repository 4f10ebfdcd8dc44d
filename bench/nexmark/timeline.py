"""Event times of the generator: a constant rate, or one that changes in steps."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import Final

from bench.nexmark.settings import NexmarkSettings, RateShape

#: Steps that approximate a sine.
SINE_STEPS: Final = 10


class Timeline:
    """Event time, in epoch milliseconds, of each event by its number."""

    def __init__(self, settings: NexmarkSettings) -> None:
        self._start: Final = settings.start
        rates = _rates(settings)
        seconds = settings.period_s / len(rates)
        #: Milliseconds between two events of each step.
        self._delays: Final = [1000 / rate for rate in rates]
        events = [rate * seconds for rate in rates]
        #: Numbers of events before each step, and of all steps.
        self._before: Final = [0.0, *accumulate(events)]
        self._step_ms: Final = seconds * 1000

    def at(self, number: int) -> int:
        """Return the event time of event ``number`` (from 0)."""
        if len(self._delays) == 1:
            return self._start + _millis(number * self._delays[0])
        rounds, rest = divmod(number, self._before[-1])
        step = min(bisect_right(self._before, rest), len(self._delays)) - 1
        passed = (rounds * len(self._delays) + step) * self._step_ms
        return self._start + _millis(passed + (rest - self._before[step]) * self._delays[step])


def _millis(passed: float) -> int:
    """Return whole milliseconds, without the error of the floating point numbers before."""
    return math.floor(passed + 1e-6)


def _rates(settings: NexmarkSettings) -> list[float]:
    """Return the rate of each step of a period."""
    first, second = settings.rate, settings.next_rate
    if second is None or second == first:
        return [first]
    if settings.shape is RateShape.SQUARE:
        return [first, second]
    middle, amplitude = (first + second) / 2, (first - second) / 2
    return [
        middle + amplitude * math.cos(2 * math.pi * step / SINE_STEPS) for step in range(SINE_STEPS)
    ]
