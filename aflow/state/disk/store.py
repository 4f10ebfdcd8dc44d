"""The protocol of databases for a backend on disk: an ordered mapping from bytes to bytes, with immutable views.

The database is scratch space. Only checkpoints are durable. A database is never read after a crash, so an engine writes
without a log and without waiting for the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol


class StoreReader(Protocol):
    """Lookup of single keys."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of ``keys``, None if there is none."""
        ...


class View(StoreReader, Protocol):
    """The database at one moment, independent of later writes, also after the store is closed.

    May be used in another thread than the store, in one at a time, and by one loop over ``items`` at a time.
    """

    def items(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from ``start`` to ``stop`` (exclusive) in the order of their keys."""
        ...

    def close(self) -> None:
        """Release the view; garbage collection of the view does so too."""
        ...


class Store(StoreReader, Protocol):
    """A database in its own folder, for one backend and from one thread."""

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Put and delete entries at once. No key is in both."""
        ...

    def first(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        """Return the first ``limit`` keys from ``start`` to ``stop`` (exclusive)."""
        ...

    def page(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first ``limit`` entries from ``start`` to ``stop`` (exclusive) in the order of their keys."""
        ...

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the entries from ``start`` to ``stop`` (exclusive). Views still have them."""
        ...

    def delete_in_pieces(self, start: bytes, stop: bytes) -> Iterator[None]:
        """As ``delete_range``, in pieces."""
        ...

    def view(self) -> View: ...

    def close(self) -> None:
        """Close the files without removing them. Can be called repeatedly."""
        ...


class Engine(Protocol):
    """Factory of databases of one kind."""

    def __call__(self, folder: Path) -> Store:
        """Return a new database in ``folder``, which exists and is empty."""
        ...
