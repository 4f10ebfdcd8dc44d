"""What a window is once an assigner has made it: a stretch of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from aflow.model.time import Timestamp, to_datetime


@dataclass(frozen=True, slots=True, order=True)
class TimeWindow:
    """The timestamps from ``start`` (inclusive) to ``end`` (exclusive), in epoch milliseconds."""

    start: Timestamp
    end: Timestamp

    @property
    def max_timestamp(self) -> Timestamp:
        """The last timestamp inside; also the timestamp of what the window emits."""
        return self.end - 1

    @property
    def start_time(self) -> datetime:
        """``start`` as an aware ``datetime`` in UTC."""
        return to_datetime(self.start)

    @property
    def end_time(self) -> datetime:
        """``end`` as an aware ``datetime`` in UTC."""
        return to_datetime(self.end)
