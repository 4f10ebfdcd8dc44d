"""Errors of tracing tools, and the number of traces: neither may cost the job more than it has agreed to."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from aflow.errors import text_of
from aflow.runtime import log_events


class Guard:
    """Suppresses the errors of a tool. The first one is logged, since others are often the same."""

    def __init__(self) -> None:
        self._has_logged = False

    @contextmanager
    def suppressed(self) -> Generator[None]:
        """Suppress errors of the block."""
        try:
            yield
        except Exception as exc:
            if not self._has_logged:
                self._has_logged = True
                log_events.TELEMETRY_FAILED.log_exception(
                    "telemetry failed, and later failures are not logged: %s",
                    error := text_of(exc),
                    error_type=type(exc).__name__,
                    error=error,
                )


class RateBound:
    """Admits so many events a second at most, on average; up to those of one second at once."""

    def __init__(self, per_second: float, steady: Callable[[], float]) -> None:
        """``steady`` returns the time in seconds."""
        self._per_second: Final = per_second
        self._most: Final = max(1.0, per_second)
        self._steady = steady
        #: Events that may happen now.
        self._left = self._most
        self._since = steady()

    def admits(self) -> bool:
        """Return True, and count the event, if it may happen now."""
        if not self._per_second:
            return False
        now = self._steady()
        self._left = min(self._most, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
