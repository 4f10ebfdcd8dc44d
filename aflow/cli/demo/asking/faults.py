"""What goes wrong when the service is asked: worked out from a seed, so that it can be said before.

What becomes of a request depends on the seed, on its question, and on how often that question was asked before; not on
the clock, nor on other requests. So a test can name the questions that will fail, and how often a client that goes on
asking must be told no. Only how many requests are refused for lack of room depends on how they come in.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


class Ending(Enum):
    """How a request ends that was let in."""

    ANSWERED = "answered"
    FAILED = "failed"
    """Status 500."""
    DROPPED = "dropped"
    """The connection breaks in the middle of the answer."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one request."""

    seconds: float
    """How long it takes."""
    ending: Ending
    slow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How the service misbehaves. Shares are those of the requests that are let in."""

    seed: int
    failed: float = 0.02
    dropped: float = 0.01
    slow: float = 0.01
    median_s: float = 0.01
    """Half of the requests that are not slow take longer than that."""
    spread: float = 0.4
    """The standard deviation of the logarithm of how long they take."""
    slowdown: float = 10.0
    """So many times longer takes a slow one."""

    def fate(self, question: str, asked_before: int) -> Fate:
        """What becomes of ``question`` after it was let in ``asked_before`` times."""
        chance = random.Random(f"{self.seed}/{question}/{asked_before}")
        seconds = self.median_s * chance.lognormvariate(0.0, self.spread)
        slow = chance.random() < self.slow
        return Fate(
            seconds=seconds * self.slowdown if slow else seconds,
            ending=self._ending(chance.random()),
            slow=slow,
        )

    def _ending(self, drawn: float) -> Ending:
        if drawn < self.failed:
            return Ending.FAILED
        return Ending.DROPPED if drawn < self.failed + self.dropped else Ending.ANSWERED


def faultless(seed: int = 0) -> Faults:
    """No request fails, none is slow, and each takes a millisecond."""
    return Faults(seed=seed, failed=0.0, dropped=0.0, slow=0.0, median_s=0.001, spread=0.0)
