"""The ids of records that were accepted within a window: a record whose id is among them is a repetition.

An id is known from its acceptance until ``window`` ms after it; an id that was accepted exactly ``window`` ms ago is
known. The place of a record is whatever the owner keeps for it. Times may go back by an adjusted clock: then an id is
known a little longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from aflow.model.time import Timestamp

P = TypeVar("P")


class RecentIds(Generic[P]):
    """Maps ids to places for ``window`` ms."""

    __slots__ = ("_known", "_order", "_window")

    def __init__(self, window: Timestamp) -> None:
        self._window = window
        self._known: dict[str, tuple[Timestamp, P]] = {}
        #: Ids with their times, in the order of acceptance. Entries of removed ids remain.
        self._order: deque[tuple[Timestamp, str]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, name: str, place: P, at: Timestamp) -> None:
        """Accept an id at ``at``; it replaces an earlier entry."""
        self._known[name] = at, place
        self._order.append((at, name))

    def place(self, name: str, now: Timestamp) -> P | None:
        """Return the place of a known id; None if it is not known (any more)."""
        self._expire(now)
        found = self._known.get(name)
        return None if found is None else found[1]

    def move(self, name: str, place: P) -> None:
        """Change the place of a known id."""
        if name in self._known:
            self._known[name] = self._known[name][0], place

    def remove(self, name: str) -> None:
        """Forget an id whose record was not accepted after all; harmless if it is not known."""
        self._known.pop(name, None)

    def oldest_known(self, now: Timestamp) -> Timestamp:
        """Return the time from which on accepted ids are known."""
        return now - self._window

    def items(self, now: Timestamp) -> Iterator[tuple[str, P, Timestamp]]:
        """Yield the known ids in the order of acceptance, with their places and times."""
        self._expire(now)
        for name, (at, place) in self._known.items():
            yield name, place, at

    def _expire(self, now: Timestamp) -> None:
        oldest = now - self._window
        while self._order and self._order[0][0] < oldest:
            at, name = self._order.popleft()
            if name in self._known and self._known[name][0] == at:
                del self._known[name]
