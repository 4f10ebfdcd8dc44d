"""The watermarks that the records of one batch meet in a process function (docs/decisions/045).

Theory. The records of a batch with the column ``watermarks`` are handled in *intervals*. An interval ends before a
record that meets a watermark at which an event timer is due. Then the step advances to this watermark, which fires the
timer, and the next interval begins with that record. Within an interval nothing is due, so nothing is emitted for its
watermarks.

The column never decreases, so the end of an interval is found by bisection from the earliest timer. A handler may
register a timer that is due in its interval: the context notices it (``ProcessContext.is_soon``), and the interval is
determined anew after the record. A handler that reads the watermark looks it up in the column; others pay nothing for
it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Protocol

from aflow.model.time import Timestamp


class EventTimers(Protocol):
    """The event timers of a step."""

    @property
    def earliest(self) -> Timestamp | None:
        """The time of the next one; None without one."""
        ...


def interval_end(
    met: Sequence[Timestamp], start: int, reached: Timestamp, timers: EventTimers | None
) -> int:
    """Return the index of the first record from ``start`` on before which a timer fires; ``len(met)`` without one.

    ``reached`` is the watermark that the preceding record has met. A timer for it or an earlier time fires when the
    watermark next advances.
    """
    earliest = None if timers is None else timers.earliest
    if earliest is None:
        return len(met)
    return bisect_left(met, earliest if earliest > reached else reached + 1, start)


class ResultColumns:
    """The results of handlers that are emitted together, with the timestamps and the watermarks that they carry."""

    __slots__ = ("timestamps", "values", "watermarks")

    def __init__(self, *, carry_watermarks: bool = False) -> None:
        self.values: list[Any] = []
        self.timestamps: list[Any] = []
        #: None if results carry none.
        self.watermarks: list[Timestamp] | None = [] if carry_watermarks else None

    def clear(self) -> None:
        """Begin with no results; the lists were emitted, and are not changed."""
        self.values, self.timestamps = [], []
        if self.watermarks is not None:
            self.watermarks = []
