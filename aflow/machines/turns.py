"""The length of a job's turns on an event loop that it shares with a host.

Theory. A request to a service takes several passes of the event loop, and in each of them it waits for the turn of the
job. Long turns cost the least, and short ones let the host answer soon. So turns are long while nothing else runs
between two of them, and short from the moment at which something does until nothing has for a while. Requests come in
passes that follow each other closely, so the first pass finds a long turn and the others short ones.

A turn may be longer after a pass in which other code ran for long: a quarter of that time lengthens the passes by no
more than a quarter. Async calls are such code. A thousand of them that end in one pass take some milliseconds, and a
short turn is too short to emit their results and to read as many further records.
"""

from __future__ import annotations

from typing import Final

#: Seconds of a turn while the host is active. A pass of the loop takes 10 to 30 µs, so shorter ones cost too much.
_SHORT: Final = 0.00025

#: Seconds between two turns that an event loop without other work takes at most, nearly always.
_PASS: Final = 0.0001

#: The length of a turn by the time of other code in the preceding pass, if that is longer than a short turn.
_PART: Final = 0.25

#: Seconds without other work after which turns are long again.
_QUIET: Final = 0.02


class Turn:
    """The time for which a job keeps the event loop, in seconds; shared by its tasks, and it may change."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Turns:
    """Adapts the turns of one job. ``turn`` is the next one."""

    def __init__(self, longest: float) -> None:
        """``longest`` is the length of turns that nothing waits for (s)."""
        self._longest = longest
        self._shortest = min(longest, _SHORT)
        self.turn: Final = Turn(longest)
        self._active_until = 0.0

    def passed(self, others: float, now: float) -> None:
        """Adapt to a pass of the loop in which other code ran for ``others`` seconds; ``now`` is a steady time (s)."""
        if others > _PASS:
            self._active_until = now + _QUIET
            self.turn.seconds = min(self._longest, max(self._shortest, others * _PART))
        elif now >= self._active_until:
            self.turn.seconds = self._longest
        else:
            self.turn.seconds = self._shortest
