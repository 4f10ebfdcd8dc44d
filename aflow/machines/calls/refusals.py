"""The effect of overload failures on the adaptive limit: calls that were refused, or timed out.

Theory. They cut the limit if there are more than usual: a little at first, less than that where they were expected,
more if that was not enough. Usual is what fails at a probe and what goes on failing well below the limit that was cut:
an error that a tenth of all records gives, whatever the load, must not bring the step to a halt. After a cut the limit
holds for some windows, goes half of the way back to where it was cut, again and again, and carefully beyond, as TCP
CUBIC (RFC 9438) does: so that a service that refuses calls refuses few.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

#: A share of failures that is more than the usual one by this is too much.
_OVERLOAD: Final = 0.05

#: More than this share of failures is never usual.
_MOST_USUAL: Final = 0.5

#: By what the limit is multiplied for failures: in the first window, in the second one in a row, and so on.
_CUTS: Final = (0.95, 0.85, 0.7)

#: The same, for the first window with failures where they were expected; and how near that is to the last cut.
_EXPECTED_CUT: Final = 0.96
_EXPECTED: Final = (0.97, 1.05)

#: Failures after cuts to less than this share of the limit, in so many windows, are usual.
_WELL_BELOW: Final = 0.85
_LOOKS: Final = 8

#: Windows for which the limit holds after a cut: at least, and at most if it was cut at about the same place again.
_SHORT_HOLD: Final = 2
_LONG_HOLD: Final = 8

#: So many times the limit of the last cut is so far beyond it that the service must have changed.
_FAR_BEYOND: Final = 1.3


class Failures:
    """The usual share of failures, and cuts of the limit for more. Shares are of the calls of a window."""

    __slots__ = ("_cut_from", "_cuts", "_looks", "_usual")

    def __init__(self) -> None:
        #: Share of calls that fail although the service has room.
        self._usual = 0.0
        #: Windows in a row that ended with a cut.
        self._cuts = 0
        #: The limit before the cuts; 0.0 once it has returned there, or no more is to be learned from them.
        self._cut_from = 0.0
        #: Windows well below that.
        self._looks = 0

    @property
    def cutting(self) -> bool:
        return self._cuts > 0

    def too_many(self, failed: int, calls: int) -> bool:
        usual = self._usual
        noise = 2 * sqrt(usual * (1 - usual) / calls)
        return failed > 1 and failed / calls > usual + _OVERLOAD + noise

    def learn(self, share: float) -> None:
        """A share of calls fails although there is room. Half of it is believed: it is known from a few calls only."""
        self._usual = min(_MOST_USUAL, (self._usual + share) / 2)

    def bearable(self, limit: float, share: float) -> None:
        """There were not too many. Well below where they were, what is left is usual."""
        below = limit < _WELL_BELOW * self._cut_from
        if share < self._usual or below:
            self._usual = min(_MOST_USUAL, self._usual + (share - self._usual) / 8)
        self._cuts = 0
        self._looks += below
        if limit >= 0.9 * self._cut_from or self._looks >= _LOOKS:
            self._cut_from = 0.0

    def cut(self, limit: float, share: float, *, lowest: bool, expected: bool) -> float | None:
        """The limit after a cut; None if cuts do not help. ``expected``: the last cuts were made here, too."""
        if not self._cut_from:
            self._cut_from, self._looks = limit, 0
        if lowest or limit < self._cut_from / 4:
            self._usual = min(_MOST_USUAL, share)
            self._cuts = 0
            self._cut_from = 0.0
            return None
        factor = _EXPECTED_CUT if expected else _CUTS[min(self._cuts, len(_CUTS) - 1)]
        self._cuts += 1
        return limit * factor


class Ceiling:
    """Growth: free at first, and with care once a limit was found at which the service refuses calls."""

    __slots__ = ("_at", "_hold", "_holds", "_step")

    def __init__(self) -> None:
        #: The limit at the last cut; 0.0 without one.
        self._at = 0.0
        #: Windows for which the limit does not grow.
        self._hold = 0
        #: The same, after each cut.
        self._holds = _SHORT_HOLD
        #: Growth of a window: in square roots of the limit without a ceiling, in calls beyond one.
        self._step = 1.0

    def is_at(self, limit: float) -> bool:
        """Return True if the service is known to refuse calls at about this limit."""
        return _EXPECTED[0] * self._at <= limit <= _EXPECTED[1] * self._at

    def found(self, limit: float, *, again: bool) -> None:
        """There were too many failures with ``limit``; ``again``: in the window before, too."""
        if not again:
            same = limit < 1.2 * self._at
            self._holds = min(_LONG_HOLD, 2 * self._holds) if same else _SHORT_HOLD
        self._at = limit
        self._hold = self._holds
        self._step = 1.0

    def next(self, limit: float) -> float:
        if self._hold:
            self._hold -= 1
            return limit
        most = sqrt(limit)
        if not self._at:
            self._step += 1 / 4
            return limit + most * self._step
        if limit < self._at:
            return limit + min(most, max(1.0, (self._at - limit) / 2))
        self._step = min(most, 2 * self._step)
        if limit > _FAR_BEYOND * self._at:
            self._at, self._step = 0.0, 1.0
        return limit + self._step
