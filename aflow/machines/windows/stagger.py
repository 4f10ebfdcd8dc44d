"""Shifts of the tumbling windows of each subtask, so that not all subtasks fire at the same moment.

Theory. Windows without a stagger end at the same moment in every subtask and every job with the same size. All results
are emitted then, and whatever consumes them gets its whole load at once. A *stagger* shifts the windows of a subtask by
a fraction of their size, on top of the offset. The sizes and the number of windows stay the same, but the bounds of the
windows of two keys may differ.

After Flink's ``WindowStagger``.
"""

from __future__ import annotations

from enum import Enum

from aflow.model.time import Timestamp


class WindowStagger(Enum):
    """The shift of the windows of a subtask."""

    ALIGNED = "aligned"
    """By nothing: windows have the same bounds in all subtasks."""
    RANDOM = "random"
    """By a random fraction of their size, drawn once in each subtask."""
    NATURAL = "natural"
    """By the part of a window that had passed, by the clock, when the subtask received its first record."""

    def shift(self, size: int, now: Timestamp, random: float) -> int:
        """Return the shift (ms) of windows of ``size`` ms in a subtask that receives its first record ``now``.

        ``random`` is from 0 to below 1.
        """
        match self:
            case WindowStagger.ALIGNED:
                return 0
            case WindowStagger.RANDOM:
                return min(int(random * size), size - 1)
            case WindowStagger.NATURAL:
                return now % size
