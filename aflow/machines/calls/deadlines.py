"""Moments for calls: when each is to be given up, or made again. One alarm serves all of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from aflow.model.time import Timestamp

C = TypeVar("C", bound=Hashable)


class Deadlines(Generic[C]):
    """One moment (epoch ms) for each call that has one.

    To set and to discard a moment is one operation on a dict, and happens for each call; to look for the earliest goes
    through all of them, and happens when the alarm rings. So the alarm is set again only if a moment comes before the
    one that it is set to, and what it was set to may be gone when it rings.
    """

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[C, Timestamp] = {}

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, call: object) -> bool:
        return call in self._at

    def set(self, call: C, at: Timestamp) -> None:
        """Replaces what was set for ``call``."""
        self._at[call] = at

    def discard(self, call: C) -> None:
        """Nothing if it has none."""
        self._at.pop(call, None)

    @property
    def earliest(self) -> Timestamp | None:
        """None if there are none."""
        return min(self._at.values(), default=None)

    def due(self, now: Timestamp) -> list[C]:
        """Calls whose moment has come, by moment and then in the order in which they were set; they have none now."""
        due = sorted((at, index) for index, at in enumerate(self._at.values()) if at <= now)
        if not due:
            return []
        calls = list(self._at)
        ready = [calls[index] for _, index in due]
        for call in ready:
            del self._at[call]
        return ready
