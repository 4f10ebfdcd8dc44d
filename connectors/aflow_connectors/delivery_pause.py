"""``DeliveryPause``: the times at which an input with acknowledgements has no message, by the clock of the caller.

There is none either because nothing was sent, or because all messages that the server delivers without an
acknowledgement (``prefetch``) wait for a checkpoint. The first makes the input *idle* after a time, once. The second is
a stall that a warning reports, since only a checkpoint ends it. Messages may have waited behind a stall, so the time
until the input is idle begins at its end.
"""

from __future__ import annotations

import logging
from typing import Final

from aflow_connectors.silence import Silence

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
        self._silence = Silence(idle_after)
        self._is_stalled = False
        self._warned_at: float | None = None

    def on_messages(self) -> None:
        """End the pause: messages were read."""
        self._silence.on_records()
        self._is_stalled = False

    def on_connected(self) -> None:
        """Begin the pause anew: messages may be on their way again. An idle input remains idle."""
        self._silence.restart()

    def begin(self, now: float) -> None:
        """Begin the pause, unless it has begun."""
        self._silence.begin(now)

    def warn_if_stalled(self, unacknowledged: int, now: float) -> None:
        """Log a warning if all messages of the prefetch have waited for a checkpoint for a while."""
        since = self._silence.since
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
        if unacknowledged >= self._prefetch:
            self._is_stalled = True
            return False
        if self._is_stalled:
            self._is_stalled = False
            self._silence.restart()
            self._silence.begin(now)
        return self._silence.becomes_idle(now)
