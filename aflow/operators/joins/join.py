"""What a join does with a record that meets nobody."""

from __future__ import annotations

from enum import Enum


class Join(Enum):
    """Which records come out alone, with ``None`` in place of the partner that they did not find."""

    INNER = "inner"
    """None: records come out in pairs only."""
    LEFT = "left"
    """Those of the left input."""
    RIGHT = "right"
    """Those of the right input."""
    FULL = "full"
    """Those of both."""

    @property
    def keeps_left(self) -> bool:
        """True if a record of the left input that finds no partner comes out alone."""
        return self is Join.LEFT or self is Join.FULL

    @property
    def keeps_right(self) -> bool:
        """True if a record of the right input that finds no partner comes out alone."""
        return self is Join.RIGHT or self is Join.FULL
