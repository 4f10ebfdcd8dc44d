"""Windows and their results."""

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

    # A Struct, since some steps make, compare and hash windows for each record: all of that is in C.

    start: Timestamp
    end: Timestamp

    @property
    def max_timestamp(self) -> Timestamp:
        """The last timestamp inside; also the timestamp of the results of the window.

        For a window that ends beyond the largest timestamp it is that one, which the watermark reaches when all input
        ends.
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
        """Return True if the two overlap, or one begins where the other ends: then merging windows are merged."""
        return self.start <= other.end and other.start <= self.end

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


#: The window of all time, of global and count windows. It never ends, so its state is never removed by time.
GLOBAL_WINDOW: Final = TimeWindow(MIN_TIMESTAMP, MAX_TIMESTAMP + 1)


class Windowed(msgspec.Struct, Generic[K, R], frozen=True):
    """The result of a window for one key."""

    # A Struct, since one is made for each key and window: 64 ns, where a frozen dataclass takes 444.

    key: K
    window: TimeWindow
    value: R
    firing: int = 1
    """Number of this result among those of the key and window, from 1. Later ones correct, or continue, earlier ones.

    A merged window continues the count of the one with most firings. A window without end that was emptied, as a
    ``Count`` window is when it was full, counts from 1 again.
    """
