"""The share of time that a job may work: a token bucket of seconds.

Theory. The job earns ``share`` seconds of work in each second, whether it works or not, and keeps at most what it earns
in ``WINDOW``. Work is paid when it is done (``worked``), since it cannot be interrupted. While the balance is negative
the job rests (``rest``), until it is zero again. So in any time ``t`` it works for at most ``share * (t + WINDOW)``
seconds, and one piece of work beyond.

A balance that was never spent allows short bursts: a job that had nothing to do processes the next records at once.
"""

from __future__ import annotations

from typing import Final

#: Seconds. Shorter than a person notices, and long against a turn of a job.
WINDOW: Final = 0.02

#: Seconds that are nothing: a difference of floats.
_NOTHING: Final = 1e-9


class LoopShare:
    """Decides when a job has to rest. Moments and durations are in seconds of a steady clock."""

    def __init__(self, share: float, now: float) -> None:
        """``share`` is above 0, and at most 1."""
        self._share: Final = share
        self._most: Final = share * WINDOW
        #: Seconds for which the job may work now; negative after work that was longer.
        self._balance = self._most
        self._since = now

    def worked(self, seconds: float, now: float) -> None:
        """The job has worked for ``seconds`` until ``now``."""
        self._earn(max(self._since, now - seconds))  # while it did not work: at most what is kept
        self._balance -= seconds
        self._earn(now)

    def rest(self, now: float) -> float:
        """Return how long the job has to rest from ``now`` on; 0 if it may work."""
        self._earn(now)
        return 0.0 if self._balance > -_NOTHING else -self._balance / self._share

    def _earn(self, now: float) -> None:
        self._balance = min(self._most, self._balance + (now - self._since) * self._share)
        self._since = now
