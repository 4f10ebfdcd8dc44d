"""The parts that the cases of ``state`` share."""

from __future__ import annotations

#: Keys, or records of a join, in memory.
RESIDENT = 20_000


class Digest:
    """Number and sum of the results of a program, for comparison; the order does not matter."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0

    def add(self, number: int) -> bool:
        """Add a result; returns False, so that a ``filter`` drops it."""
        self.count += 1
        self.total += number
        return False
