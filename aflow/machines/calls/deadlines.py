"""Moments of calls: the ends of their time, and their next attempts. One alarm serves all of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from aflow.model.time import Timestamp

C = TypeVar("C", bound=Hashable)


class Deadlines(Generic[C]):
    """One moment (epoch ms) for each call that has one.

    Setting and discarding a moment is one operation on a dict, and happens for each call. Finding the earliest one
    looks at all of them, and happens when the alarm fires. So the alarm is set again only for a moment before the one
    that it is set to, and that one may have been discarded when it fires.
    """

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[C, Timestamp] = {}

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, call: object) -> bool:
        return call in self._at

    def set(self, call: C, at: Timestamp) -> None:
        """Set the moment of ``call``, in place of an earlier one."""
        self._at[call] = at

    def discard(self, call: C) -> None:
        """Remove the moment of ``call``, if it has one."""
        self._at.pop(call, None)

    @property
    def earliest(self) -> Timestamp | None:
        """The earliest moment; None if there is none."""
        return min(self._at.values(), default=None)

    def due(self, now: Timestamp) -> list[C]:
        """Remove and return the calls whose moment has come, by moment and then in the order in which they were set."""
        due = sorted((at, index) for index, at in enumerate(self._at.values()) if at <= now)
        if not due:
            return []
        calls = list(self._at)
        ready = [calls[index] for _, index in due]
        for call in ready:
            del self._at[call]
        return ready


class CallTimes(Generic[C]):
    """All moments of the calls of one step."""

    def __init__(self, *, limits_attempts: bool) -> None:
        #: The ends of the time of records.
        self.records: Final[Deadlines[C]] = Deadlines()
        #: The starts of next attempts.
        self.retries: Final[Deadlines[C]] = Deadlines()
        #: The ends of running attempts; None if their time is not limited.
        self.attempts: Final[Deadlines[C] | None] = Deadlines() if limits_attempts else None

    def __len__(self) -> int:
        """Return the number of moments."""
        attempts = 0 if self.attempts is None else len(self.attempts)
        return len(self.records) + len(self.retries) + attempts

    @property
    def earliest(self) -> Timestamp | None:
        """The earliest moment; None if there is none."""
        attempts = None if self.attempts is None else self.attempts.earliest
        moments = (self.records.earliest, self.retries.earliest, attempts)
        return min((moment for moment in moments if moment is not None), default=None)
