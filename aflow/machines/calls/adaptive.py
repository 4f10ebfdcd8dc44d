"""The built-in adaptive limit: the number of concurrent calls follows the latencies and failures of the service.

Theory. A service has room for a number of concurrent calls that is unknown and changes. With fewer calls the service
is underused. With more, calls queue at the service and only take longer, or are refused. By Little's
law the step sees which: while there is room, latency does not depend on the number of calls; beyond it, latency grows
in proportion. So there is no need to count anything but calls in flight, latencies and failures.

*Windows.* A change of the limit shows once it has been in force for a round trip: calls have ended that began after
it. Then latencies are collected, at least as many as the limit, and more if they differ much from each other, so that
their mean has an error of about a tenth. That is their *interquartile mean*: one call in a hundred that takes
fifty times as long does not show in it. Each window ends with one decision, so a decision takes about two round
trips.

*Latency.* The baseline is the latency of a service with room. Up to 1.25 times that is taken for noise, and the limit
grows by its square root (additive increase; the noise of a mean of that many latencies shrinks in the same
proportion). Beyond, the limit is multiplied by tolerated through measured latency, at once where the service has room
for the calls (multiplicative decrease), plus half of its root, which keeps a short queue. The first windows double
the limit, until the first sign of a queue. This is TCP Vegas (Brakmo, Peterson 1995) with the gradient of Netflix's
concurrency-limits (``Gradient2Limit``), without its smoothing, as windows begin with a clean slate.

*The baseline must be learned again*, since services change. Lower latencies pull it down. Every so many windows there
is a *probe*, as in BBR (Cardwell et al. 2016): the limit goes down in steps as long as latency goes down with it;
where it does not, nothing waits, and that latency is the baseline. A window in which the limit is not used is as
good. And if the limit has fallen twice by much and latency did not follow, then it is not the calls that make the
service slow: that latency is the baseline too, and the limit returns.

*Failures* that say "too much" (refused, timed out) cut the limit: see ``refusals``.

A limit that is not used does not grow. It never depends on the throughput, so a step that gets few records keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.calls.limiter import Limiter
from aflow.machines.calls.refusals import Ceiling, Failures
from aflow.machines.calls.retry import Errors, check_errors

#: Latency up to so many times the baseline is noise.
_TOLERANCE: Final = 1.25

#: The limit is never multiplied by less for the latency of one window.
_STRONGEST_GRADIENT: Final = 0.3

#: Share of the difference by which lower latencies reduce the baseline in a window.
_DRIFT: Final = 0.2

#: Latencies that a window needs; and the most that it waits for because they differ, in all and for each call at
#: once.
_FEWEST: Final = 16
_ENOUGH: Final = 128
_ROUNDS: Final = 8

#: The interquartile mean of n latencies has a standard error of about 0.93 × (their interquartile range) / √n.
#: This is 0.93 through the error that is accepted, a tenth.
_PRECISION: Final = 9.3

#: Windows between two probes, and by what each step of a probe multiplies the limit.
_PROBE_EVERY: Final = 60
_PROBE: Final = 0.6

#: Windows from the first sign of a queue to the first of those probes.
_FIRST_PROBE_AFTER: Final = 3

#: The limit is in use if this share of it was in flight at some moment of a window.
_USED: Final = 0.8

#: A latency that changed by less than this (down, up) has not changed.
_SAME: Final = (0.8, 1.25)

#: The shortest latency (seconds): calls may end when they begin, by the clock.
_QUICKEST: Final = 1e-9

#: Latencies are differences of floats: a call that began this much (seconds) before a moment may have begun at it.
_ROUNDING: Final = 1e-6


#: Calls at once in the beginning, unless the user says how many.
_START: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """The number of calls at once follows what the service can take: as many as keep it busy, and no more.

    It grows while latency stays what it is with few calls, and shrinks when calls queue at the service, are
    refused, or time out. Nothing needs to be tuned: it begins with ``start`` calls (None: 10, or the nearest number
    that ``least`` and ``most`` allow), and stays between ``least`` and ``most``, in each subtask. ``on`` says which
    errors mean that the service is asked too much: errors that have to do with a record rather than with the load are
    told apart if they come steadily, and better left out. Each attempt counts.

    The limit changes about every two round trips; every hundred or so it goes down for two or three of them to see
    whether the service has changed. It keeps latency at about 1.2 to 1.5 times that of a service without load, a bit
    more if there is room for less than five calls. ``limiter`` makes a limiter of your own for each subtask, in place
    of this algorithm; it gets these settings. Raises ``FlowDefinitionError``.
    """

    start: int | None = None
    least: int = 1
    most: int = 1000
    on: Errors = Exception
    limiter: Callable[[Adaptive], Limiter] | None = None

    def __post_init__(self) -> None:
        start = () if self.start is None else (("start", self.start),)
        for what, number in (*start, ("least", self.least), ("most", self.most)):
            if type(number) is not int or number < 1:
                raise FlowDefinitionError(
                    f"Adaptive.{what} must be a whole number of calls from 1 on, not {shown(number)}"
                )
        if self.least > self.most:
            raise FlowDefinitionError(
                f"Adaptive.least is {self.least} and so more than Adaptive.most, {self.most}; exchange them"
            )
        if not self.least <= _first_limit(self) <= self.most:
            raise FlowDefinitionError(
                f"Adaptive begins with {self.start} calls at once, which is not between the {self.least} and the "
                f"{self.most} that it may make; give start, least and most that fit together"
            )
        check_errors(self.on, "Adaptive.on")
        if self.limiter is not None and not callable(self.limiter):
            raise FlowDefinitionError(
                f"Adaptive.limiter takes a function that makes a Limiter, or its class, not {shown(self.limiter)}"
            )

    def new_limiter(self) -> Limiter:
        """Return the limiter of a subtask. Raises ``FlowDefinitionError`` if ``limiter`` does not make one."""
        if self.limiter is None:
            return AdaptiveLimit(self)
        made: object = self.limiter(self)
        if not isinstance(made, Limiter):
            raise FlowDefinitionError(
                f"Adaptive.limiter must make a Limiter, with an attribute limit and a method ended(), not {shown(made)}"
            )
        return made


def _first_limit(settings: Adaptive) -> int:
    """Return the initial limit."""
    if settings.start is not None:
        return settings.start
    return min(max(_START, settings.least), settings.most)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The observations of one window."""

    latency: float | None
    """Seconds; None if there were too few good answers."""
    failures: float
    """Share of the calls."""
    overload: bool
    """True if that is too much."""
    used: bool
    """The limit was reached, or nearly."""
    calm: bool
    """There were so few calls that it was as good as a probe."""


class AdaptiveLimit:
    """``limit`` calls may be in flight now; at least 1. ``now`` is in seconds, on a steady clock."""

    __slots__ = (
        "_answers",
        "_ceiling",
        "_ends",
        "_exact",
        "_failed",
        "_failures",
        "_latencies",
        "_least",
        "_most",
        "_needed",
        "_peak",
        "_probe",
        "_service",
        "_settling",
        "_since",
        "_starting",
        "_typical",
        "_until",
        "_windows",
        "limit",
    )

    def __init__(self, settings: Adaptive) -> None:
        self._least, self._most = settings.least, settings.most
        self.limit = _first_limit(settings)
        self._exact = float(self.limit)
        self._service = _Service()
        self._failures = Failures()
        self._ceiling = Ceiling()
        #: Not None from a decision to probe to the end of the probe.
        self._probe: _Probe | None = None
        #: True until there is the first sign of too many calls.
        self._starting = True
        #: Since the last probe.
        self._windows = 0
        #: Latency of the last window (seconds), and the number of latencies after which the next one is precise.
        self._typical, self._needed = 0.0, _FEWEST
        self._open(-inf)

    def _open(self, now: float) -> None:
        """Begin a window."""
        #: Calls that began before have seen another limit.
        self._since = now - _ROUNDING
        #: Failures may be quick; nothing is decided about them before.
        self._until = now + 1.5 * self._typical
        #: Good answers to calls of this window that are still to come before latencies are collected.
        self._settling = max(1, self.limit // 4)
        self._answers = max(_FEWEST, self.limit, min(self._needed, _ROUNDS * self.limit))
        self._latencies: list[float] = []
        #: Calls of this window that have ended, and those of them that failed.
        self._ends = self._failed = 0
        #: The most calls in flight.
        self._peak = 0

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None:
        """A call that took ``latency`` seconds has ended; ``in_flight`` were under way, with this one.

        ``ok`` is False if it failed in a way that says "too much". A call that was given up, or failed in another
        way, should not be reported: how long it took says nothing.
        """
        # Hot path: once for each call.
        if now - latency < self._since:
            # It saw another limit, but all that end after settling, slow ones too, are a fair sample of the service.
            if ok and not self._settling:
                self._latencies.append(latency)
            return
        self._ends += 1
        if in_flight > self._peak:
            self._peak = in_flight
        if not ok:
            self._failed += 1
            if self._ends >= max(_FEWEST, self.limit) and now >= self._until and self._overload():
                self._close(now)
        elif self._settling:
            self._settling -= 1
        else:
            self._latencies.append(latency)
            if len(self._latencies) >= self._answers:
                self._close(now)

    def _overload(self) -> bool:
        return self._failures.too_many(self._failed, self._ends)

    def _close(self, now: float) -> None:
        """Decide, and begin the next window; unless latencies differ so much that more are needed."""
        seen = self._seen()
        if seen is None:
            return
        self._windows += 1
        exact = self._decide(seen) if self._probe is None else self._probed(self._probe, seen)
        self._exact = min(max(exact, float(self._least)), float(self._most))
        self.limit = int(self._exact)
        self._open(now)

    def _seen(self) -> _Seen | None:
        """None if too few latencies are there for what they are."""
        latency = None
        if len(self._latencies) >= self._answers:
            latency, spread = _middle(self._latencies)
            most = max(_FEWEST, min(_ENOUGH, _ROUNDS * self.limit))
            self._needed = min(most, max(_FEWEST, int((_PRECISION * spread) ** 2)))
            if self._needed > len(self._latencies):
                self._answers = self._needed
                return None
            self._typical = latency
        return _Seen(
            latency,
            self._failed / self._ends,
            self._overload(),
            used=self._peak >= _USED * self.limit,
            calm=self._peak <= _PROBE * self.limit,
        )

    def _decide(self, seen: _Seen) -> float:
        """The next limit, after a window without a probe."""
        if seen.calm:
            self._learn(seen)
        if seen.overload:
            return self._cut(seen.failures)
        self._failures.bearable(self._exact, seen.failures)
        if seen.latency is None:
            return self._exact
        if not self._service.baseline:
            self._service.learn(seen.latency)
            return self._begin_probe(self._exact, seen.latency)
        exact = self._follow(seen.latency, seen.used)
        if self._starting or self._windows < _PROBE_EVERY:
            return exact
        return self._begin_probe(exact, seen.latency)

    def _cut(self, failures: float) -> float:
        self._starting = False
        expected = self._ceiling.is_at(self._exact)
        self._ceiling.found(self._exact, again=self._failures.cutting)
        exact = self._failures.cut(
            self._exact, failures, lowest=self.limit <= self._least, expected=expected
        )
        if exact is None:
            self._ceiling = Ceiling()
            self._starting = True
            return self._exact
        return exact

    def _follow(self, latency: float, used: bool) -> float:
        """Return the limit that the latency calls for."""
        exact = self._exact
        self._service.drift(latency)
        gradient = self._service.gradient(latency)
        if gradient < 1:
            if self._starting:
                self._windows = _PROBE_EVERY - _FIRST_PROBE_AFTER
            self._starting = False
            self._ceiling = Ceiling()
            back = self._service.unrelieved(exact, latency)
            if back is not None:
                self._windows = _PROBE_EVERY - _FIRST_PROBE_AFTER
                return back
            return exact * gradient + (max(1.0, sqrt(exact) / 2) if used else 0.0)
        self._service.relieved()
        if not used:
            return exact
        return exact * 2 if self._starting else self._ceiling.next(exact)

    def _begin_probe(self, exact: float, latency: float) -> float:
        self._probe = _Probe(exact, latency, latency)
        return exact * _PROBE

    def _probed(self, probe: _Probe, seen: _Seen) -> float:
        """The next limit, after a window with a probe: further down, or back."""
        latency = self._service.baseline if seen.latency is None else seen.latency
        change = latency / probe.latest
        self._learn(seen)
        if not _SAME[0] < change < _SAME[1] and self.limit > self._least:
            self._probe = _Probe(probe.limit, probe.latency, latency)
            return self._exact * _PROBE
        self._probe = None
        return max(self._exact, probe.limit * min(1.0, _TOLERANCE * latency / probe.latency))

    def _learn(self, seen: _Seen) -> None:
        """Record a window in which the service had room."""
        self._windows = 0
        self._failures.learn(seen.failures)
        if seen.latency is not None:
            self._service.learn(seen.latency)


@dataclass(frozen=True, slots=True)
class _Probe:
    """The limit goes down until latency does not follow."""

    limit: float
    """To return to."""
    latency: float
    """With that limit."""
    latest: float
    """In the window before."""


class _Service:
    """Latency of a service with room, and whether fewer calls make it answer faster."""

    __slots__ = ("_fallen_from", "_strikes", "_worst", "baseline")

    def __init__(self) -> None:
        #: Seconds; 0.0 while nothing is known.
        self.baseline = 0.0
        #: Limit and latency where the limit began to fall, or fell without effect. None unless it falls.
        self._worst: tuple[float, float] | None = None
        self._fallen_from = 0.0
        #: Number of large decreases without effect.
        self._strikes = 0

    def learn(self, latency: float) -> None:
        self.baseline = latency
        self._worst = None

    def drift(self, latency: float) -> None:
        if latency < self.baseline:
            self.baseline += (latency - self.baseline) * _DRIFT

    def gradient(self, latency: float) -> float:
        return max(_STRONGEST_GRADIENT, min(1.0, _TOLERANCE * self.baseline / latency))

    def relieved(self) -> None:
        self._worst = None

    def unrelieved(self, limit: float, latency: float) -> float | None:
        """The limit to return to if it fell and latency did not; None if that cannot be said (yet)."""
        if self._worst is None or latency > self._worst[1] * _SAME[1]:
            self._worst, self._fallen_from, self._strikes = (limit, latency), limit, 0
            return None
        share = limit / self._worst[0]
        # In proportion to the limit, latency would be `share` of what it was: less than half of that has come.
        if share > 0.7 or latency / self._worst[1] < (1 + share) / 2:
            return None
        self._worst = limit, latency
        self._strikes += 1
        if self._strikes < 2:
            return None
        self.learn(latency)
        return self._fallen_from


def _middle(latencies: list[float]) -> tuple[float, float]:
    """The interquartile mean, and the interquartile range as a multiple of it. Sorts ``latencies``."""
    latencies.sort()
    quarter = len(latencies) // 4
    middle = latencies[quarter : len(latencies) - quarter]
    mean = max(_QUICKEST, sum(middle) / len(middle))
    return mean, (middle[-1] - middle[0]) / mean
