"""A database of a backend that is a sorted dict, for tests of what is stored and not of how.

It opens in microseconds, SQLite and RocksDB in milliseconds, which tests that restore after each step spent nearly all
of their time on. ``tests/state/disk/test_stores.py`` compares the three.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from aflow.state import backend_choice
from aflow.state.backend_choice import DiskEngine


class SortedStore:
    """See ``Store``. A view shares the entries with the store until the next write."""

    def __init__(self, folder: Path) -> None:
        self._entries = SortedView({})
        self._shared = False

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._entries.get(keys)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        if self._shared:
            self._entries, self._shared = SortedView(self._entries.copy()), False
        self._entries.update(puts, deletes)

    def first(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        return [key for key, _ in self.page(start, stop, limit)]

    def page(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return list(islice(self._entries.items(start, stop), limit))

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.write((), [key for key, _ in self._entries.items(start, stop)])

    def delete_in_pieces(self, start: bytes, stop: bytes) -> Iterator[None]:
        self.delete_range(start, stop)
        yield

    def view(self) -> SortedView:
        self._shared = True
        return self._entries

    def close(self) -> None:
        pass


class SortedView:
    """See ``View``. Its entries, sorted when they are first read in order."""

    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self._entries: Final = entries
        self._sorted: list[bytes] | None = None

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._entries.get(key) for key in keys]

    def items(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._sorted is None:
            self._sorted = sorted(self._entries)
        begin, end = bisect_left(self._sorted, start), bisect_left(self._sorted, stop)
        return ((key, self._entries[key]) for key in self._sorted[begin:end])

    def close(self) -> None:
        pass

    def copy(self) -> dict[bytes, bytes]:
        return dict(self._entries)

    def update(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        self._sorted = None
        self._entries.update(puts)
        for key in deletes:
            self._entries.pop(key, None)


@contextmanager
def sorted_stores() -> Generator[DiskEngine]:
    """Let backends with the returned engine use a ``SortedStore``."""
    with pytest.MonkeyPatch.context() as patch:
        engines = backend_choice._ENGINES  # pyright: ignore[reportPrivateUsage]
        patch.setitem(engines, DiskEngine.SQLITE, SortedStore)
        yield DiskEngine.SQLITE
