"""The newest records of a log in memory, for the reader of a job that keeps up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from aflow.model.time import Timestamp

T = TypeVar("T")

#: The most records that are held, and about the most bytes; a reader that is further behind reads files.
_CAPACITY: Final = 16_384
_BYTES: Final = 16 << 20

Logged: TypeAlias = tuple[T, Timestamp | None]
"""A value and its timestamp."""


class Tail(Generic[T]):
    """Records from one position to the end of the log; or none, while the reader reads files.

    Only what was written and synced is added.
    """

    def __init__(self) -> None:
        #: Bytes of what was added since the tail was last empty.
        self._size = 0
        self._records: deque[Logged[T]] = deque()
        #: False while the reader reads files: nothing is held then.
        self._follows = False
        self._wanted: asyncio.Future[None] | None = None
        self._ended = False

    def __len__(self) -> int:
        return len(self._records)

    @property
    def follows(self) -> bool:
        """True while the next record of the reader is the next one to be added, or is here."""
        return self._follows

    def follow(self) -> None:
        """Hold what is added from now on: the reader has read everything before it."""
        self._follows = True

    def unfollow(self) -> None:
        """Hold nothing any more."""
        self._follows = False
        self._records.clear()

    def add(self, records: Sequence[Logged[T]], size: int) -> None:
        """Add records that were written, of so many bytes, and wake the reader."""
        if self._follows:
            self._size = size if not self._records else self._size + size
            self._records.extend(records)
            if len(self._records) > _CAPACITY or self._size > _BYTES:
                self.unfollow()
        self._wake()

    def end(self) -> None:
        """Nothing will be added any more: a reader need not wait."""
        self._ended = True
        self._wake()

    def take(self, limit: int) -> list[Logged[T]]:
        """Return the next records, at most ``limit``; none if there are none now."""
        records = self._records
        return [records.popleft() for _ in range(min(limit, len(records)))]

    async def wait(self) -> bool:
        """Wait until something is added. Return False at once or then if the input has ended.

        To be called only when everything that was added is taken.
        """
        if not self._ended:
            self._wanted = asyncio.get_running_loop().create_future()
            try:
                await self._wanted
            finally:
                self._wanted = None
        return not self._ended

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)
