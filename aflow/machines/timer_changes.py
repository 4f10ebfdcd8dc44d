"""Records of the timers that were added to a queue and removed from it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from aflow.model.time import Timestamp

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)

Identity: TypeAlias = tuple[Timestamp, K, N]
"""Time, key and namespace of a timer, as a plain tuple."""


# Not slotted: a generic frozen dataclass with slots cannot be made on Python 3.11.
@dataclass(frozen=True)
class Changes(Generic[K, N]):
    """Timers that were added to a queue, and timers that were removed."""

    added: list[tuple[Timestamp, K, N]]
    removed: list[tuple[Timestamp, K, N]]


class ChangeRecord(Generic[K, N]):
    """Changes since a moment, net: a timer that is added and removed is no change.

    For a copy in pieces (``timer_copy``) it also records the first change of each timer since the copy was begun: a
    timer that was removed first was there at that moment, one that was added first was not.
    """

    __slots__ = ("_first", "_net")

    def __init__(self) -> None:
        #: True for each added timer, False for each removed one.
        self._net: dict[Identity[K, N], bool] = {}
        #: The same for the first change of each timer; None without a copy.
        self._first: dict[Identity[K, N], bool] | None = None

    def note(self, timer: Identity[K, N], *, there: bool) -> None:
        """Record that ``timer`` was added or removed; the opposite of a recorded change cancels it."""
        # Hot path (benchmark `timers`).
        net = self._net
        if net.pop(timer, None) is None:
            net[timer] = there
        if self._first is not None:
            self._first.setdefault(timer, there)

    def replace(self, timer: Identity[K, N], *, there: bool) -> None:
        """Record only the last change of ``timer``, for a queue that does not know if a timer was there before."""
        self._net[timer] = there

    def begin_copy(self) -> Mapping[Identity[K, N], bool]:
        """Return a mapping that gets the first change of each timer from now on, until ``end_copy``."""
        self._first = first = dict[Identity[K, N], bool]()
        return first

    def end_copy(self) -> None:
        """Record no first changes any more."""
        self._first = None

    def net(self) -> Changes[K, N]:
        """Return the changes."""
        items = self._net.items()
        return Changes(
            [timer for timer, there in items if there],
            [timer for timer, there in items if not there],
        )
