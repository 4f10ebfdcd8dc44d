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
    success the job fails with the last error, and its restart strategy applies; None: never. It counts from the present
    loss: a connection that was back for longer than ``most`` is a success. Raises ``FlowDefinitionError`` for durations
    that are not positive.
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

    An operation may wait for longer than ``give_up_after`` on a connection that works, as a long poll does. So a
    connection is back when ``renew`` has returned, or when the operation has called ``connected``. One that is lost
    soon after is not: a proxy accepts connections to a server that is away.
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
        #: The time (s of the loop) since which there is a connection; None while it is lost.
        self._connected_at: float | None = None

    @property
    def most(self) -> float:
        """The longest delay (s) between attempts, unless the server asks for a longer one."""
        return self._reconnect.most.total_seconds()

    @property
    def give_up_after(self) -> float | None:
        """The time (s) without success after which ``failed`` is raised; None: never."""
        bound = self._reconnect.give_up_after
        return None if bound is None else bound.total_seconds()

    def connected(self) -> None:
        """Take notice that the connection was opened again; for operations without ``renew``."""
        self._connected_at = asyncio.get_running_loop().time()

    async def run(
        self,
        operation: Callable[[], Awaitable[T]],
        *,
        renew: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Return the result of ``operation``, which is repeated after each lost connection.

        ``renew`` replaces what belonged to the lost connection, before the next attempt; it may lose it again. A
        ``ServerBusy``, if it is one of ``lost``, delays the next attempt by ``retry_after`` at least. Raises ``failed``
        after ``Reconnect.give_up_after``, or at once if that delay would last longer. Raises at once what is no lost
        connection.
        """
        now = asyncio.get_running_loop().time
        first_loss, attempt = 0.0, 0
        while True:
            try:
                if attempt and renew is not None:
                    await renew()
                    self.connected()
                result = await operation()
            except self._lost as exc:
                if attempt and self._was_back(now()):
                    self._log_return(first_loss, attempt)
                    attempt = 0
                self._connected_at = None
                attempt += 1
                if attempt == 1:
                    first_loss = now()
                    self._log(logging.WARNING, "connection_lost", f"lost: {described(exc)}")
                self.give_up_if_late(now() - first_loss, attempt, exc)
                delay = self._reconnect.delay_before(attempt, self._random)
                await asyncio.sleep(max(delay, _least_delay(exc)))
            else:
                if attempt:
                    self._log_return(first_loss, attempt)
                return result

    def _was_back(self, now: float) -> bool:
        """Return True if the connection that is lost ``now`` had worked again."""
        since, least = self._connected_at, self._reconnect.most.total_seconds()
        return since is not None and now - since > least

    def _log_return(self, first_loss: float, attempts: int) -> None:
        """Log that the connection is back, after the time until it was opened."""
        opened = self._connected_at
        end = asyncio.get_running_loop().time() if opened is None else opened
        after = f"again after {end - first_loss:.1f} s and {attempts} attempts"
        self._log(logging.INFO, "connection_back", after)

    def give_up_if_late(self, since: float, attempts: int, cause: BaseException) -> None:
        """Raise ``failed`` if the loss has lasted for the bound (``since``, s), or would until the next attempt."""
        bound, least = self._reconnect.give_up_after, _least_delay(cause)
        if bound is None:
            return
        if since >= bound.total_seconds() or since + least > bound.total_seconds():
            due = f", the next attempt is due in {least:,.0f} s" if least else ""
            raise self._failed(
                f"{self._place}: no connection for {since:.0f} s and {attempts} attempts (give_up_after={bound}){due}: "
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
