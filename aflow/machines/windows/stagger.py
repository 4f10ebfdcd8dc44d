"""Shifts of the tumbling windows of each subtask, so that subtasks do not fire at the same time.

Theory. Windows without a stagger end at the same time in every subtask and every job with the same size. All results
are emitted then, and a downstream system gets its whole load at once. A *stagger* shifts the windows of a subtask by a
fraction of their size, in addition to the offset. The sizes and the number of windows do not change, but the bounds of
the windows of two keys may differ.

After Flink's ``WindowStagger``.
"""

from __future__ import annotations

from enum import Enum

from aflow.model.time import Timestamp


class WindowStagger(Enum):
    """Selects the shift of the windows of a subtask."""

    ALIGNED = "aligned"
    """No shift: windows have the same bounds in all subtasks."""
    RANDOM = "random"
    """A random fraction of their size, drawn once in each subtask."""
    NATURAL = "natural"
    """The part of a window that had passed, by the clock, when the subtask received its first record."""

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
