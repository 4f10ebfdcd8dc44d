"""The time for which an input was at its end, until it is idle.

Theory. An input without records for ``idle_after`` does not hold event time back. Its silence is that of the stream,
not that of the server: while the connection is lost, records may have been added, or wait at their producers for the
server to return. So an outage does not count. After it, the input is not idle for two seconds, or ``idle_after`` if
that is shorter: the records of the outage are on their way. Silence before an outage counts, so connections that are
lost often do not keep an input active for ever, unless they last less than that time.
"""

from __future__ import annotations

import math
from typing import Final

#: The longest time (s) after an outage in which an input does not become idle.
_ARRIVAL: Final = 2.0


class Silence:
    """The silence of one input. Times are s of one clock."""

    def __init__(self, idle_after: float | None) -> None:
        """None: the input is never idle."""
        self._idle_after = idle_after
        #: The time since which there is no record, moved forward by outages; None while there are some.
        self._since: float | None = None
        #: The end of the last outage.
        self._connected_at = -math.inf
        self._is_idle = False

    @property
    def since(self) -> float | None:
        """The time at which the silence began, moved forward by outages; None while there is none."""
        return self._since

    def on_records(self) -> None:
        """End the silence: there are records."""
        self._since, self._is_idle = None, False

    def begin(self, now: float) -> None:
        """Begin the silence, unless it has begun."""
        if self._since is None:
            self._since = now

    def restart(self) -> None:
        """Forget the silence until the next ``begin``: records may be on their way. An idle input remains idle."""
        self._since = None

    def on_outage(self, began: float, now: float) -> None:
        """Leave out the time from ``began`` to ``now``. An idle input remains idle."""
        self._connected_at = now
        if self._since is not None:
            self._since += now - max(began, min(self._since, now))

    def remaining(self, now: float) -> float | None:
        """Return the time until the input becomes idle; None if it does not, or is idle already."""
        after, since = self._idle_after, self._since
        if after is None or since is None or self._is_idle:
            return None
        return max(0.0, since + after - now, self._connected_at + min(after, _ARRIVAL) - now)

    def becomes_idle(self, now: float) -> bool:
        """Return True once, when the silence has lasted for ``idle_after``."""
        if self.remaining(now) != 0.0:
            return False
        self._is_idle = True
        return True
