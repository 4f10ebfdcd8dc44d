"""Faults of the service, computed from a seed, so that they are reproducible.

The outcome of a request depends on the seed, its question, and the number of earlier requests with this question. It
does not depend on the clock or on other requests. Tests can therefore name the questions that fail and the number of
attempts that they need. Only rejections by ``RequestLimiter`` depend on the order of arrival.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


class Ending(Enum):
    """Result of an admitted request."""

    ANSWERED = "answered"
    FAILED = "failed"
    """Status 500."""
    DROPPED = "dropped"
    """The connection breaks in the middle of the response."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one request."""

    seconds: float
    """Latency."""
    ending: Ending
    slow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Latency and faults of the service. ``failed``, ``dropped`` and ``slow`` are shares of the admitted requests."""

    seed: int
    failed: float = 0.02
    dropped: float = 0.01
    slow: float = 0.01
    median_s: float = 0.01
    """Median latency of the requests that are not slow."""
    spread: float = 0.4
    """Standard deviation of the logarithm of the latency."""
    slowdown: float = 10.0
    """Factor of the latency of slow requests."""

    def outcome(self, question: str, earlier: int) -> Outcome:
        """Return the outcome of ``question`` after ``earlier`` admitted requests with it."""
        rng = random.Random(f"{self.seed}/{question}/{earlier}")
        seconds = self.median_s * rng.lognormvariate(0.0, self.spread)
        slow = rng.random() < self.slow
        return Outcome(
            seconds=seconds * self.slowdown if slow else seconds,
            ending=self._ending(rng.random()),
            slow=slow,
        )

    def _ending(self, drawn: float) -> Ending:
        if drawn < self.failed:
            return Ending.FAILED
        return Ending.DROPPED if drawn < self.failed + self.dropped else Ending.ANSWERED


def faultless(seed: int = 0) -> Faults:
    """Return faults of probability 0, and a latency of 1 ms."""
    return Faults(seed=seed, failed=0.0, dropped=0.0, slow=0.0, median_s=0.001, spread=0.0)
