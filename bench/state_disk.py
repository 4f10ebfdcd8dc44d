"""The parts that the cases of ``state`` share."""

from __future__ import annotations

from aflow.backends import DiskEngine, OnDisk

#: The backend of all cases. Few keys, or records of a join, are in memory: of 100,000 too, most are on disk.
ON_DISK = OnDisk(DiskEngine.ROCKSDB, resident=20_000)


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
