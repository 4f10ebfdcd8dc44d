"""Event time and processing time: integers inside, ``datetime`` and ``timedelta`` at the edge.

Inside aflow an instant is an ``int`` of milliseconds since 1970-01-01T00:00:00Z (a *timestamp*) and a duration is an
``int`` of milliseconds. Users write aware ``datetime`` objects (or epoch milliseconds) and ``timedelta``; only the
functions of this module convert between them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Protocol, TypeAlias

from aflow.errors import FlowDefinitionError, shown

Timestamp: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00:00Z."""

Instant: TypeAlias = datetime | int
"""A time as users may give it: an aware ``datetime`` or epoch milliseconds."""

MIN_TIMESTAMP: Timestamp = -(2**63)
MAX_TIMESTAMP: Timestamp = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TimeDomain(Enum):
    """The clock of a timer or a window."""

    EVENT = "event time"
    PROCESSING = "processing time"

    # Members are compared by identity. The hash of Enum, by name, is a Python function.
    __hash__ = object.__hash__


class Clock(Protocol):
    """The source of processing time; injected, so that a test can replace it."""

    def now(self) -> Timestamp:
        """Return the current processing time in epoch milliseconds."""
        ...


def to_timestamp(instant: Instant, *, what: str = "event time") -> Timestamp:
    """Return a time of a user in epoch milliseconds (microseconds are truncated towards the past).

    Raises ``FlowDefinitionError`` for a naive ``datetime`` (without a time zone it is ambiguous), a ``bool``, a
    ``float`` and anything else; ``what`` is the name of the value in the message.
    """
    if type(instant) is int:
        return instant
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise FlowDefinitionError(
                f"{what} {instant!r} has no time zone, so it is ambiguous; "
                f"use an aware datetime, for example {instant.isoformat()}+00:00"
            )
        return (instant - _EPOCH) // _MILLISECOND
    cure = "; for epoch seconds, int(seconds * 1000)" if isinstance(instant, float) else ""
    raise FlowDefinitionError(
        f"{what} must be an aware datetime or an int of epoch milliseconds, "
        f"not {type(instant).__name__}: {shown(instant)}{cure}"
    )


def to_millis(duration: timedelta, *, what: str) -> int:
    """Return a duration of a user in milliseconds.

    Raises ``FlowDefinitionError`` if it is no ``timedelta`` or no whole number of milliseconds.
    """
    if not isinstance(duration, timedelta):
        raise FlowDefinitionError(
            f"{what} must be a timedelta, not {type(duration).__name__}: {shown(duration)}; "
            f"for example timedelta(seconds=5)"
        )
    millis, rest = divmod(duration, _MILLISECOND)
    if rest:
        raise FlowDefinitionError(f"{what} must be whole milliseconds, not {duration!r}")
    return millis


def positive_millis(duration: timedelta, *, what: str) -> int:
    """Return ``to_millis(duration)``. Raises ``FlowDefinitionError`` if it is not above zero."""
    millis = to_millis(duration, what=what)
    if millis <= 0:
        raise FlowDefinitionError(f"{what} must be longer than zero, not {duration!r}")
    return millis


def short(millis: int) -> str:
    """Return a duration for messages: ``1h``, ``90s``, ``250ms``; in the largest unit that divides it."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


def to_datetime(timestamp: Timestamp) -> datetime:
    """Return epoch milliseconds as a ``datetime`` in UTC. Raises ``OverflowError`` outside the years 1 to 9999."""
    return _EPOCH + timestamp * _MILLISECOND
