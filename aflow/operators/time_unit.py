"""A check of the unit of timestamps: epoch seconds, microseconds and nanoseconds are valid ints too.

Windows of such timestamps are far too long or too short, without any error. The ranges are those of the years 2001 to
2100. As epoch milliseconds they are in the first months of 1970, or more than 29,000 years from now.
"""

from __future__ import annotations

import warnings
from typing import Final

from aflow.errors import readable, shown
from aflow.model.time import Timestamp

#: Seconds since 1970 of a moment in 2001 and one in 2099.
_SECONDS: Final = (1_000_000_000, 4_100_000_000)

#: Each unit: how many there are in a second, and how to convert it to milliseconds.
_UNITS: Final = (
    ("seconds", 1, "* 1000"),
    ("microseconds", 1_000_000, "// 1000"),
    ("nanoseconds", 1_000_000_000, "// 1_000_000"),
)


class UnitCheck:
    """Checks the first record of a step. All subtasks of the step share it, so there is one warning at most."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        #: True once a record was checked.
        self.done = False

    def check(self, step: str, record: object, timestamp: Timestamp) -> None:
        """Emit a ``UserWarning`` if ``timestamp`` is clearly not in milliseconds."""
        self.done = True
        for unit, in_a_second, conversion in _UNITS:
            if _SECONDS[0] * in_a_second <= timestamp < _SECONDS[1] * in_a_second:
                warnings.warn(
                    f"step {step!r}: event time must be epoch milliseconds, and that of the first record, {timestamp}, "
                    f"seems to be in {unit}: {readable(timestamp * 1000 // in_a_second)}, not {readable(timestamp)}. "
                    f"Convert it, for example .event_time(lambda r: r.at {conversion}). The record is {shown(record)}",
                    UserWarning,
                    stacklevel=2,
                )
