"""``DeliveryPause``: the times at which an input with acknowledgements has no message, by the clock of the caller.

There is none either because nothing was sent, or because all messages that the server delivers without an
acknowledgement (``prefetch``) wait for a checkpoint. The first makes the input *idle* after a time, once. The second is
a stall that a warning reports, since only a checkpoint ends it. Messages may have waited behind a stall, so the time
until the input is idle begins at its end.
"""

from __future__ import annotations

import logging
import math
from typing import Final

_logger = logging.getLogger("aflow.connectors")

#: Time (s) of a stall after which there is a warning, and between two warnings.
_STALLED: Final = 2.0
_WARN_EVERY: Final = 60.0


class DeliveryPause:
    """See the theory at the top of the module. ``name`` is that of the input, for messages.

    ``idle_after`` is in seconds; None: the input is never idle.
    """

    def __init__(self, name: str, *, prefetch: int, idle_after: float | None) -> None:
        self._name = name
        self._prefetch = prefetch
        self._idle_after = idle_after
        #: Time since which there is no message; None while there are some.
        self._since: float | None = None
        self._is_stalled = False
        #: Time at which the last stall was found to be over.
        self._stalled_until = -math.inf
        self._is_idle = False
        self._warned_at: float | None = None

    def on_messages(self) -> None:
        """End the pause: messages were read."""
        self._since, self._is_idle, self._is_stalled = None, False, False

    def on_connected(self) -> None:
        """Begin the pause anew: messages may be on their way again. An idle input remains idle."""
        self._since = None

    def begin(self, now: float) -> None:
        """Begin the pause, unless it has begun."""
        if self._since is None:
            self._since = now

    def warn_if_stalled(self, unacknowledged: int, now: float) -> None:
        """Log a warning if all messages of the prefetch have waited for a checkpoint for a while."""
        since = self._since
        if unacknowledged < self._prefetch or since is None or now - since < _STALLED:
            return
        if self._warned_at is None or now - self._warned_at >= _WARN_EVERY:
            self._warned_at = now
            extra = {
                "event": "prefetch_exhausted",
                "place": self._name,
                "prefetch": self._prefetch,
            }
            _logger.warning(
                "%s: %d messages were read and wait for a checkpoint (prefetch=%d); no more are delivered until one is "
                "complete. Raise prefetch above the messages of an interval, or take checkpoints more often",
                self._name,
                unacknowledged,
                self._prefetch,
                extra=extra,
            )

    def becomes_idle(self, unacknowledged: int, now: float, *, delivered: bool = False) -> bool:
        """Return True once there was no message for ``idle_after``, nor a stall in which this was called.

        ``delivered`` is True if there is a message that was not read yet: it came at the end of a wait.
        """
        if delivered:
            return False
        after, since = self._idle_after, self._since
        if unacknowledged >= self._prefetch:
            self._is_stalled = True
            return False
        if self._is_stalled:
            self._is_stalled, self._stalled_until = False, now
        if after is None or since is None or self._is_idle:
            return False
        self._is_idle = now - max(since, self._stalled_until) >= after
        return self._is_idle
