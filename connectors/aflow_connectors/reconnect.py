"""Retries of what fails because a connection was lost.

While a server is away, a reader waits in ``read`` and a writer in ``write``: that is backpressure, and the job
continues when the server is back. Each connector says which errors of its client mean a lost connection. All others,
such as wrong credentials, fail at once.

The delays grow exponentially with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
2015), so that many clients do not return at the same moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final, TypeVar

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described, shown

T = TypeVar("T")

_logger = logging.getLogger("aflow.connectors")

#: Attempts after which the delay does not grow any more: avoids large powers.
_MOST_DOUBLINGS: Final = 32


class ServerBusy(Exception):
    """A server takes no request now. ``retry_after`` (s) is the least delay before the next one, if it named one."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """The delays and the bound of the attempts of a connector to reach its server again.

    The delay before attempt n is random between 0 and ``delay`` × 2ⁿ, at most ``most``. After ``give_up_after`` without
    success the job fails with the last error, and its restart strategy applies; None: never. Raises
    ``FlowDefinitionError`` for durations that are not positive.
    """

    delay: timedelta = timedelta(milliseconds=200)
    most: timedelta = timedelta(seconds=10)
    give_up_after: timedelta | None = timedelta(minutes=5)

    def __post_init__(self) -> None:
        for name in ("delay", "most", "give_up_after"):
            value: object = getattr(self, name)
            if value is None and name == "give_up_after":
                continue
            if not isinstance(value, timedelta) or value <= timedelta(0):
                raise FlowDefinitionError(
                    f"Reconnect: {name}= must be a positive timedelta, not {shown(value)}"
                )

    def delay_before(self, attempt: int, random: Random) -> float:
        """Return the delay (s) before attempt ``attempt``, from 1."""
        bound = self.delay.total_seconds() * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS)
        return random.uniform(0, min(bound, self.most.total_seconds()))


class Retries:
    """Repeats the operations of one reader or writer while its connection is lost.

    ``place`` names the server and what is read or written, without credentials. ``lost`` are the errors of the client
    that mean a lost connection.
    """

    def __init__(
        self,
        place: str,
        reconnect: Reconnect,
        *,
        lost: tuple[type[BaseException], ...],
        failed: type[ConnectorError],
        random: Random | None = None,
    ) -> None:
        """``failed`` is raised when the time is over."""
        self._place = place
        self._reconnect = reconnect
        self._lost = lost
        self._failed = failed
        self._random = random or Random()

    async def run(
        self,
        operation: Callable[[], Awaitable[T]],
        *,
        renew: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Return the result of ``operation``, which is repeated after each lost connection.

        ``renew`` replaces what belonged to the lost connection, before the next attempt; it may lose it again. A
        ``ServerBusy``, if it is one of ``lost``, delays the next attempt by ``retry_after`` at least. Raises ``failed``
        after ``Reconnect.give_up_after``, and at once what is no lost connection.
        """
        now = asyncio.get_running_loop().time
        first_loss, attempt = 0.0, 0
        while True:
            try:
                if attempt and renew is not None:
                    await renew()
                result = await operation()
            except self._lost as exc:
                attempt += 1
                if attempt == 1:
                    first_loss = now()
                    self._log(logging.WARNING, "connection_lost", f"lost: {described(exc)}")
                self._give_up_if_late(now() - first_loss, attempt, exc)
                delay = self._reconnect.delay_before(attempt, self._random)
                await asyncio.sleep(max(delay, _least_delay(exc)))
            else:
                if attempt:
                    after = f"again after {now() - first_loss:.1f} s and {attempt} attempts"
                    self._log(logging.INFO, "connection_back", after)
                return result

    def _give_up_if_late(self, since: float, attempts: int, cause: BaseException) -> None:
        bound = self._reconnect.give_up_after
        if bound is not None and since >= bound.total_seconds():
            raise self._failed(
                f"{self._place}: no connection for {since:.0f} s and {attempts} attempts (give_up_after={bound}): "
                f"{described(cause)}"
            ) from cause

    def _log(self, level: int, event: str, text: str) -> None:
        extra = {"event": event, "place": self._place}
        _logger.log(level, "%s: connection %s", self._place, text, extra=extra)


def _least_delay(exc: BaseException) -> float:
    return (exc.retry_after or 0.0) if isinstance(exc, ServerBusy) else 0.0


def checked_reconnect(owner: str, reconnect: object) -> Reconnect:
    """Return ``reconnect``. Raises ``FlowDefinitionError`` for another type."""
    if not isinstance(reconnect, Reconnect):
        raise FlowDefinitionError(
            f"{owner}: reconnect= must be a Reconnect, not {shown(reconnect)}"
        )
    return reconnect
