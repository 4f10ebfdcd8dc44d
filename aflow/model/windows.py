"""What a window is once an assigner has made it, a stretch of time, and what it comes to."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp, to_datetime

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class TimeWindow(msgspec.Struct, frozen=True, order=True, gc=False):
    """The timestamps from ``start`` (inclusive) to ``end`` (exclusive), in epoch milliseconds."""

    # A Struct, since windows are made, compared and hashed for each record by some steps: all of that is in C.

    start: Timestamp
    end: Timestamp

    @property
    def max_timestamp(self) -> Timestamp:
        """The last timestamp inside; also the timestamp of what the window emits.

        A window that ends beyond the largest timestamp has that one, which the watermark reaches when all input ends.
        """
        last = self.end - 1
        return last if last < MAX_TIMESTAMP else MAX_TIMESTAMP

    @property
    def start_time(self) -> datetime:
        """``start`` as an aware ``datetime`` in UTC."""
        return to_datetime(self.start)

    @property
    def end_time(self) -> datetime:
        """``end`` as an aware ``datetime`` in UTC."""
        return to_datetime(self.end)

    def touches(self, other: TimeWindow) -> bool:
        """True if the two overlap, or one begins where the other ends: then merging windows become one."""
        return self.start <= other.end and other.start <= self.end

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


#: The window of all time: what a global or a count window is. It never ends, so it is never cleaned up by itself.
GLOBAL_WINDOW: Final = TimeWindow(MIN_TIMESTAMP, MAX_TIMESTAMP + 1)


class Windowed(msgspec.Struct, Generic[K, R], frozen=True):
    """What a window came to, for one key."""

    # A Struct, since one is made for each key and window: 64 ns, where a frozen dataclass takes 444.

    key: K
    window: TimeWindow
    value: R
    firing: int = 1
    """Which result of this key and window this is, counted from 1. Later ones correct, or continue, earlier ones.

    A merged window continues the count of the one with most firings. A window without end that was left empty, as a
    ``Count`` window is when it was full, counts from 1 again.
    """
