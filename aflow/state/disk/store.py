"""What a backend on disk asks of a database: an ordered mapping from bytes to bytes, and views that stand still.

The database is scratch space. Checkpoints are what is durable; whatever a crash leaves of it is never read again, so an
engine writes without a log and without waiting for the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol


class Reader(Protocol):
    """What can be asked for single keys."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What each of ``keys`` has; None if nothing."""
        ...


class View(Reader, Protocol):
    """The database as it was at one moment, whatever is written later, even after the store is closed.

    May be used in another thread than the store, in one at a time, and by one loop over ``items`` at a time.
    """

    def items(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What there was from ``start`` to ``stop`` (exclusive), in the order of the bytes."""
        ...

    def close(self) -> None:
        """Let go of it; also happens when nobody holds the view any more."""
        ...


class Store(Reader, Protocol):
    """A database in a folder of its own, for one backend and from one thread."""

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Put and delete in one go. No key is in both."""
        ...

    def first(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        """The first ``limit`` keys from ``start`` to ``stop`` (exclusive)."""
        ...

    def view(self) -> View: ...

    def close(self) -> None:
        """Close the files, which are left where they are; once more does nothing."""
        ...


class Engine(Protocol):
    """Opens databases of one make."""

    def __call__(self, folder: Path) -> Store:
        """A new database in ``folder``, which exists and is empty."""
        ...
