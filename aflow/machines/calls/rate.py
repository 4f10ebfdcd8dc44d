"""The rate limit: a token bucket that bounds the calls, or their cost, in a time.

Theory. A *token bucket* holds up to ``burst`` units and is refilled at a constant rate. A call takes its cost, and
waits while there is less. *Invariant*: within any time of length L at most ``burst + rate × L`` units are taken. (As a
schedule of moments this is the generic cell rate algorithm of ATM, GCRA: ITU-T I.371.)

- *State*: the moment since which the bucket has not been full, and the units taken since then. The level at any moment
  follows from both, so there is no timer, and rounding does not add up.
- *Takers* that share a bucket are served in the order of their first requests. A taker that must wait gets a
  position and the time of its next request; no later taker is served before it. If it does not ask at that time, since
  it has no call or the loop is late, it keeps its position for a quarter of a second.
- A call that costs more than ``burst`` takes a full bucket and leaves a *debt*, which the following calls wait for.
  Then its cost replaces ``burst`` in the invariant.
- A call that costs nothing does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from math import ceil, inf
from numbers import Real
from typing import Any, Final, Generic, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import positive_millis, short, to_millis

T_contra = TypeVar("T_contra", contravariant=True)

#: Whole numbers up to here are exact as floats, with room for sums.
_MOST_UNITS: Final = 10**15

#: Time (seconds) that fills a bucket without a ``burst`` of the user.
_BURST_TIME: Final = 0.1

#: Seconds by which a taker may miss its time without losing its position.
_GRACE: Final = 0.25

#: The shortest wait (seconds): more than the resolution of a clock that has run for years, so that time goes on.
_LEAST_WAIT: Final = 1e-6

#: The wait (seconds) before asking again while another taker is late.
_AGAIN: Final = 1e-3

#: A shortage of less than this (seconds) counts as rounding. It is still owed, and does not add up.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)  # not slotted: on Python 3.11 a frozen, slotted generic raises
class RateLimit(Generic[T_contra]):
    """At most ``count`` units begin in each time of length ``per``, on average; each attempt of a call counts.

    A unit is a call, unless ``cost`` says for a value how many units a call for it is (tokens, bytes): a finite
    number from 0 on. What it costs is the same for each attempt.

    After a pause up to ``burst`` units begin at once, so any time of length ``per`` sees at most ``count + burst``.
    By default ``burst`` is what comes in a tenth of a second, and at least 1: enough for timers of milliseconds to
    cost no throughput, and so little that the service sees hardly more than ``count``. With ``burst=1`` never more
    than ``count`` calls begin within ``per``. A call that costs more than ``burst`` begins once all of that is there,
    and the calls after it wait until the rest has been made up for.

    The step waits for whole milliseconds, so a ``burst`` of less than what comes in some of them costs throughput: with
    ``burst=1`` some 90 of 100 calls begin in a second, 77 % of 300, and a tenth of 10,000.

    Each subtask of a step has such a limit for itself. Those that give the same name in ``shared``, in all steps and
    subtasks of the job, have one together and take turns. Raises ``FlowDefinitionError``.
    """

    count: int
    per: timedelta
    _: KW_ONLY
    burst: int | None = None
    shared: str | None = None
    cost: Callable[[T_contra], float] | None = None

    def __post_init__(self) -> None:
        _check_units(self.count, "RateLimit.count", "units (calls, unless there is a cost)")
        positive_millis(self.per, what="RateLimit.per")
        if self.burst is not None:
            _check_units(self.burst, "RateLimit.burst", "units that may be taken at once")
        if self.shared is not None and (not isinstance(self.shared, str) or not self.shared):
            raise FlowDefinitionError(
                f"RateLimit.shared takes a name that all who share the limit give, not {shown(self.shared)}"
            )
        if self.cost is not None and not callable(self.cost):
            raise FlowDefinitionError(
                f"RateLimit.cost takes a function of the value, not {shown(self.cost)}; "
                f"calls that all cost the same need none: divide count by it"
            )

    @property
    def units_at_once(self) -> int:
        """``burst``, or what takes its place if there is none."""
        if self.burst is not None:
            return self.burst
        return min(self.count, max(1, ceil(self.count * _BURST_TIME / self.per.total_seconds())))

    def cost_of(self, value: T_contra) -> float:
        """Return the units that a call for ``value`` takes.

        Raises ``ValueError`` if that is no finite number from 0 on, and what ``cost`` raises.
        """
        return 1.0 if self.cost is None else checked_cost(self.cost(value))


def rate_text(rate: RateLimit[Any]) -> str:
    """Return the limit for plans: ``100 per 1s``."""
    units = "" if rate.cost is None else " units"
    shared = "" if rate.shared is None else f" shared as {rate.shared!r}"
    return f"{rate.count}{units} per {short(to_millis(rate.per, what='RateLimit.per'))}{shared}"


def checked_cost(cost: object) -> float:
    """``cost`` as a float. Raises ``ValueError`` unless it is a finite number from 0 on."""
    try:
        number = float(cost) if isinstance(cost, Real) else -1.0
    except OverflowError:
        number = inf
    if not 0 <= number < inf:
        raise ValueError(
            f"RateLimit.cost must give a finite number of units from 0 on (0: free), not {shown(cost)}"
        )
    return number


def _check_units(units: object, what: str, meaning: str) -> None:
    if type(units) is not int or not 1 <= units <= _MOST_UNITS:
        raise FlowDefinitionError(
            f"{what} must be a whole number of {meaning}, from 1 to 10^15, not {shown(units)}"
        )


class _Place:
    """Of a taker in the order of those who wait."""

    __slots__ = ("due", "end")

    def __init__(self, end: float) -> None:
        #: Units asked for by all from the first one on, up to and with this taker; see ``TokenBucket._served``.
        self.end = end
        #: For when it was last told to ask again.
        self.due = -inf


class TokenBucket:
    """Gives units to takers in turn; each ``take`` is O(1). ``now`` is in seconds on a steady clock."""

    __slots__ = ("_burst", "_given", "_interval", "_places", "_rate", "_served", "_since")

    def __init__(self, settings: RateLimit[Any]) -> None:
        seconds = settings.per.total_seconds()
        #: Units per second.
        self._rate = settings.count / seconds
        #: Seconds for one unit.
        self._interval = seconds / settings.count
        self._burst = float(settings.units_at_once)
        #: The bucket was full at ``_since``, has not been since then, and gave ``_given`` units: a sum of what calls
        #: cost, so exact if those are whole numbers.
        self._since = -inf
        self._given = 0.0
        #: Takers that wait, the next one first.
        self._places: dict[Hashable, _Place] = {}
        #: ``end`` of the place that was last left or served at the front.
        self._served = 0.0

    @property
    def waiting(self) -> int:
        """Return the number of takers that have a place."""
        return len(self._places)

    def level(self, now: float) -> float:
        """Units that are there; negative while they are owed."""
        refilled = (now - self._since) * self._rate
        return self._burst if refilled >= self._given else self._burst + refilled - self._given

    def take(self, taker: Hashable, now: float, cost: float = 1.0) -> float:
        """0.0 if ``taker`` has got ``cost`` units; otherwise after how many seconds it should ask again.

        A taker has one place, however often it asks and whatever it asks for. Raises ``ValueError`` for a ``cost`` that
        is no finite number from 0 on.
        """
        # Hot path: once for each call.
        if not 0 < cost < inf:
            checked_cost(cost)
            return 0.0
        if self._places and (first := next(iter(self._places))) != taker:
            return self._behind(first, taker, now, cost)
        missing = min(cost, self._burst) - self.level(now)
        if missing * self._interval > _ROUNDING:
            return self._told(self._place(taker, cost), now, missing * self._interval)
        if (now - self._since) * self._rate >= self._given:
            self._since, self._given = now, 0.0
        self._given += cost
        if self._places:
            self.leave(taker)
        return 0.0

    def leave(self, taker: Hashable) -> None:
        """``taker`` has nothing to take for now; its place, if it has one, is free for the following ones."""
        places = self._places
        if taker not in places:
            return
        first = next(iter(places)) == taker
        place = places.pop(taker)
        if not places:
            self._served = 0.0
        elif first:
            self._served = place.end

    def _behind(self, first: Hashable, taker: Hashable, now: float, cost: float) -> float:
        """It is the turn of ``first``, unless that has not come for too long."""
        late = now - self._places[first].due
        if late >= _GRACE:
            self.leave(first)
            return self.take(taker, now, cost)
        place = self._place(taker, cost)
        missing = place.end - self._served - self.level(now)
        wait = max(missing * self._interval, _AGAIN if late >= 0 else 0.0)
        # The first one may leave, whatever it needs: ask again by then.
        return self._told(place, now, min(wait, _GRACE - late))

    def _place(self, taker: Hashable, cost: float) -> _Place:
        """Return the place of ``taker``; a new one is after all others."""
        place = self._places.get(taker)
        if place is None:
            last = next(reversed(self._places.values()), None)
            place = _Place((self._served if last is None else last.end) + cost)
            self._places[taker] = place
        return place

    def _told(self, place: _Place, now: float, wait: float) -> float:
        """Note that the taker of ``place`` asks again after ``wait`` seconds, and return them."""
        wait = max(wait, _LEAST_WAIT)
        place.due = now + wait
        return wait


class SharedBuckets:
    """The buckets of one job: one for each name that limits share, and one for each subtask that shares none."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named: dict[str, tuple[RateLimit[Any], TokenBucket]] = {}

    def bucket(self, settings: RateLimit[Any]) -> TokenBucket:
        """The bucket to take from. Raises ``FlowDefinitionError`` if its name is used with another rate.

        What calls cost may differ from step to step.
        """
        name = settings.shared
        if name is None:
            return TokenBucket(settings)
        known, bucket = self._named.setdefault(name, (settings, TokenBucket(settings)))
        if _rate(known) != _rate(settings):
            raise FlowDefinitionError(
                f"RateLimit(shared={name!r}) is {_described(known)} in one step and {_described(settings)} in another; "
                f"give all that share it the same count, per and burst, or another name"
            )
        return bucket


def _rate(settings: RateLimit[Any]) -> tuple[int, timedelta, int]:
    return settings.count, settings.per, settings.units_at_once


def _described(settings: RateLimit[Any]) -> str:
    return f"{settings.count} per {settings.per} with a burst of {settings.units_at_once}"
