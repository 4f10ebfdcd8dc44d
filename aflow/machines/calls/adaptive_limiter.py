"""The built-in adaptive limit of concurrent calls: CUBIC, with latency as a second sign of congestion.

Theory. CUBIC (Ha, Rhee, Xu, "CUBIC: A New TCP-Friendly High-Speed TCP Variant", 2008; RFC 9438) adapts the congestion
window of TCP, ``cwnd``. Here ``cwnd`` is the number of calls in flight, and time is counted in *rounds*: a round starts
when the limit changes and ends when twice as many calls have ended as were in flight, all of them started in the round.

*States.* In *slow start* each round doubles ``cwnd``. The first congestion ends it. After a congestion at ``w_max``
calls, ``cwnd`` is multiplied by ``BETA`` and follows, t rounds later,

    W(t) = C × (t − K)³ + w_max, with K = ∛((w_max − cwnd) / C):

it returns quickly, stays near ``w_max``, and then grows faster and faster until it finds the new capacity. Rounds that
used at most half of the limit do not count (*application-limited*, RFC 9438 section 5.8).

*Events.* A round was congested if more calls than usual failed, or if latency exceeded ``1 + TAU`` times that of a
service without a queue. By Little's law latency is proportional to the calls in flight once they queue. Latency as a
sign is that of HyStart++ (RFC 9406), which CUBIC uses in slow start. It is the interquartile mean of a round, so a few
slow calls do not show. A round with too many failures ends at once.

*Spurious congestion.* The usual latency and share of failures change with the service, so each decrease is verified in
the next round. If latency (or the share of failures) is about as high as before, the calls did not cause it: it is the
new usual value, and ``cwnd``, ``w_max`` and K are restored (RFC 9438 section 4.9). If it has risen, the service is
changing, and the limit decreases again. Every ``VERIFY``-th decrease, and the first one, continues until neither
follows: that corrects a usual value that was measured while calls queued or were refused.

*Invariants.* ``least <= limit <= most`` with ``least >= 1``, so a step always has calls in flight. The limit does not
depend on throughput, so a step with few records keeps it. ``BETA × (1 + TAU) < 1``: a decrease drains the queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cbrt, inf, sqrt
from typing import Final

#: β of RFC 9438: ``cwnd`` is multiplied by this if calls queue.
BETA: Final = 0.7

#: β of the paper of 2008 (0.2, subtracted from 1): ``cwnd`` is multiplied by this if calls are refused.
BETA_REFUSED: Final = 0.8

#: C of RFC 9438, in calls per cubic round.
C: Final = 0.4

#: τ: latency up to ``1 + TAU`` times the usual one is noise.
TAU: Final = 0.25

#: φ: a share of failures up to ``PHI`` above the usual one is noise.
PHI: Final = 0.05

#: More than this share of failures is never usual.
MOST_USUAL: Final = 0.5

#: The minimum number of calls in a round, and of latencies that have a mean (N_RTT_SAMPLE of RFC 9406).
CALLS: Final = 16
SAMPLES: Final = 8

#: α of RFC 6298: the share by which a usual value follows lower ones.
ALPHA: Final = 1 / 8

#: Every so many decreases the usual values are measured again.
VERIFY: Final = 8

#: Latencies are differences of floats: a call that began this much (seconds) before a moment may have begun at it.
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class _Window:
    """The congestion window, and the curve that it follows."""

    cwnd: float
    w_max: float = inf
    """``cwnd`` at the last congestion; infinite in slow start."""
    k: float = 0.0
    """Rounds until ``cwnd`` is ``w_max`` again."""
    t: int = 0
    """Rounds since the last congestion in which the limit was used."""

    def grown(self) -> _Window:
        if self.w_max == inf:
            return _Window(2 * self.cwnd)
        t = self.t + 1
        return _Window(max(self.cwnd, C * (t - self.k) ** 3 + self.w_max), self.w_max, self.k, t)

    def reduced(self, beta: float, least: int) -> _Window:
        cwnd = max(beta * self.cwnd, float(least))
        return _Window(cwnd, self.cwnd, cbrt((self.cwnd - cwnd) / C))


@dataclass(frozen=True, slots=True)
class _Round:
    """The observations of a round."""

    latency: float | None
    """Seconds; None if too few calls succeeded."""
    failures: float
    """Share of the calls."""
    is_refused: bool
    """More calls failed than usual."""
    is_used: bool
    """More than half of the limit was in flight."""


@dataclass(frozen=True, slots=True)
class _Decrease:
    """A decrease that the next round verifies."""

    before: _Window
    """The window to restore."""
    cause: _Round
    share: float
    """The new limit as a share of the previous one."""

    def relief(self, after: _Round) -> float:
        """Return the decrease of latency, or of failures, as a share of the largest that the new limit can cause."""
        cause = self.cause
        if self.share == 1:
            return 1.0
        # A decrease that continues an earlier one is verified by failures, too: while the usual share is
        # too high no round was refused, and latency never follows the limit of a service that refuses calls.
        # No standard errors are added to PHI: with the few calls of two rounds they exceed a drop that the limit
        # causes, so the limit of services that refuse calls would stay too high. A chance drop costs a decrease.
        if cause.is_refused or cause.failures - after.failures > PHI:
            if after.failures > MOST_USUAL:
                return 1.0
            return (1 - after.failures / cause.failures) / (1 - self.share)
        if not after.latency or not cause.latency or after.is_refused:
            return 0.0 if after.latency == cause.latency else 1.0
        return (1 - after.latency / cause.latency) / (1 - self.share)


class AdaptiveLimiter:
    """``limit`` calls may be in flight now. ``now`` is in seconds, on a steady clock.

    The settings are those of ``Adaptive``: ``1 <= least <= start <= most``.
    """

    def __init__(self, *, start: int, least: int, most: int) -> None:
        self.limit = start
        self._least, self._most = least, most
        self._window = _Window(float(start))
        #: Latency (seconds; None: unknown) and share of failures of the service without congestion.
        self._latency: float | None = None
        self._failures = 0.0
        #: The decrease that this round verifies.
        self._decrease: _Decrease | None = None
        #: Decreases since the usual values were measured; those that continue a previous one do not count.
        self._decreases = VERIFY - 1
        self._start_round(inf)

    def _start_round(self, now: float) -> None:
        #: Calls that started before have seen another limit. Infinite until the first call has ended.
        self._since = now - _ROUNDING
        self._latencies: list[float] = []
        #: Calls that have ended, those of them that failed, and the maximum number in flight.
        self._ended = self._failed = self._peak = 0

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None:
        """As in ``Limiter``."""
        # Hot path: once for each call.
        if now - latency < self._since:
            if self._since == inf:
                self._start_round(now)
            return
        self._ended += 1
        if in_flight > self._peak:
            self._peak = in_flight
        calls = max(CALLS, 2 * min(self._peak, self.limit))
        if ok:
            self._latencies.append(latency)
        else:
            self._failed += 1
            # While a decrease is verified, the share of failures of the whole round is needed.
            if self._decrease is None and self._latency is not None and self._is_refused(calls):
                self._end_round(now, calls)
                return
        if self._ended >= calls:
            self._end_round(now, self._ended)

    def _is_refused(self, calls: int) -> bool:
        """Return True if too many of so many calls failed: two standard errors above the usual share, and ``PHI``."""
        usual = self._failures
        noise = 2 * sqrt(usual * (1 - usual) / calls)
        return self._failed > 1 and self._failed > calls * (usual + PHI + noise)

    def _end_round(self, now: float, calls: int) -> None:
        seen = _Round(
            _middle_mean(self._latencies) if len(self._latencies) >= SAMPLES else None,
            self._failed / calls,
            self._is_refused(calls),
            2 * self._peak > self.limit,
        )
        self._window = self._next_window(seen)
        self.limit = min(int(self._window.cwnd), self._most)
        self._start_round(now)

    def _next_window(self, seen: _Round) -> _Window:
        verified, self._decrease = self._decrease, None
        relief = 1.0 if verified is None else verified.relief(seen)
        if verified is not None and abs(relief) < 1 / 2:
            self._decreases = 0
            self._measure(seen)
            return verified.before
        if verified is not None and relief < 0:
            return self._reduced(seen, verified.before)
        if self._is_congested(seen):
            self._decreases += verified is None
            return self._reduced(seen, self._window)
        if verified is not None and self._decreases % VERIFY == 0:
            return self._reduced(seen, self._window)
        self._follow(seen, 1.0 if verified is not None else ALPHA)
        return self._window.grown() if seen.is_used and self.limit < self._most else self._window

    def _is_congested(self, seen: _Round) -> bool:
        if seen.is_refused or seen.latency is None:
            return seen.is_refused
        return self._latency is None or seen.latency > (1 + TAU) * self._latency

    def _reduced(self, seen: _Round, before: _Window) -> _Window:
        if self.limit <= self._least:
            self._decreases = 0
            self._measure(seen)
            return self._window
        beta = BETA_REFUSED if seen.is_refused else BETA
        window = self._window.reduced(beta, self._least)
        self._decrease = _Decrease(before, seen, int(window.cwnd) / self.limit)
        return window

    def _measure(self, seen: _Round) -> None:
        """Take the values of a round as the usual ones: the calls in flight do not cause them."""
        self._failures = min(MOST_USUAL, seen.failures)
        if seen.latency is not None:
            self._latency = seen.latency

    def _follow(self, seen: _Round, share: float) -> None:
        """Reduce the usual values by ``share`` of the difference if those of the round are lower."""
        self._failures += share * min(0.0, seen.failures - self._failures)
        if seen.latency is not None and self._latency is not None:
            self._latency += share * min(0.0, seen.latency - self._latency)


def _middle_mean(latencies: list[float]) -> float:
    """Return the interquartile mean. Sorts ``latencies``."""
    latencies.sort()
    quarter = len(latencies) // 4
    middle = latencies[quarter : len(latencies) - quarter]
    return sum(middle) / len(middle)
