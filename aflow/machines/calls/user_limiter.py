"""A limiter of the user, within the bounds of its settings. Its errors name the limiter: no record causes them."""

from __future__ import annotations

from aflow.errors import described, shown
from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.limiter import Limiter


class LimiterError(Exception):
    """The limiter of the user raised an error, or has no valid limit. The step fails with it."""


class UserLimiter:
    """``limit`` never raises: an error is kept, and ``check`` or ``ended`` raises it where the step can fail."""

    def __init__(self, settings: Adaptive, limiter: Limiter) -> None:
        """Raises ``LimiterError`` if the first limit is invalid."""
        self._least, self._most = settings.least, settings.most
        self._limiter = limiter
        #: The latest valid limit.
        self._limit = settings.least
        self._error: LimiterError | None = None
        self.check()

    @property
    def limit(self) -> int:
        """The present limit, or the latest valid one."""
        try:
            limit: object = self._limiter.limit
        except Exception as exc:  # user code
            self._fail(f".limit raised {described(exc)}", exc)
        else:
            if type(limit) is int and limit >= 1:
                self._limit = max(self._least, min(self._most, limit))
            else:
                self._fail(
                    f".limit is {shown(limit)}; it must be an int, the number of calls that may run, at least 1"
                )
        return self._limit

    def check(self) -> None:
        """Raises ``LimiterError`` if the limit is invalid, or was."""
        _ = self.limit
        if self._error is not None:
            raise self._error

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None:
        """As in ``Limiter``. Raises ``LimiterError`` if the limiter raises, or has no valid limit."""
        try:
            self._limiter.ended(now, latency, ok, in_flight)
        except Exception as exc:  # user code
            self._fail(f".ended() raised {described(exc)}", exc)
        self.check()

    def _fail(self, what: str, cause: Exception | None = None) -> None:
        if self._error is None:
            self._error = LimiterError(f"the limiter {type(self._limiter).__qualname__}{what}")
            self._error.__cause__ = cause
