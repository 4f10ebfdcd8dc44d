"""Complete captures of many rows in pieces, while records are processed.

Theory. A capture promises the state of one moment. Copying the rows of a million keys at once takes 0.1 s, encoding
them 0.3 s. So the moment itself only copies the dict of rows, and the rows are collected later (copy on write): in
pieces, and for the keys of a batch before the batch may change them. ``touch`` of a backend, which precedes each access
to the state of a key, is the place for that. An untouched row is the same as at the moment of the capture, except that
a sweep may have removed an expired one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyRow
from aflow.state.tables import Table

#: Rows that are collected at once: a millisecond for rows that have to be encoded.
_PIECE: Final = 512

#: Stands for a key that is not waiting.
_NONE: Final = object()


@dataclass(slots=True)
class GradualRows:
    """Rows under one name at the moment of a capture. Iteration collects what is missing first."""

    capture: GradualCapture
    parts: list[Iterable[KeyRow]]

    def __iter__(self) -> Iterator[KeyRow]:
        for _ in self.capture.gather():
            pass
        return chain.from_iterable(self.parts)


class GradualCapture:
    """The rows of all keys in ``tables``, as they are now; ``kinds`` observes the keys.

    As long as this object is referenced, the owner of the tables calls ``save`` before the rows of any key change.
    """

    __slots__ = ("__weakref__", "_kinds", "_waiting", "rows")

    def __init__(self, tables: Iterable[Table], kinds: KeyKinds) -> None:
        self._kinds: Final = kinds
        #: By table: the keys whose rows are not collected. The values are not used.
        self._waiting: Final = [(table, table.rows.copy()) for table in tables]
        self.rows: Final[dict[str, GradualRows]] = {}
        """By the name of the rows in a snapshot."""
        for table, _ in self._waiting:
            # The names of the rows, and the error of a value that was not declared.
            self._collect(table, ())
        self._begin()

    @property
    def is_complete(self) -> bool:
        """True once all rows are collected."""
        return not any(waiting for _, waiting in self._waiting)

    def save(self, keys: Collection[Hashable]) -> None:
        """Collect the rows of ``keys``. Raises ``CheckpointError`` for one that cannot be encoded."""
        for table, waiting in self._waiting:
            if waiting:
                self._collect(table, [key for key in keys if waiting.pop(key, _NONE) is not _NONE])

    def gather(self) -> Iterator[None]:
        """Collect all rows, in pieces. Raises ``CheckpointError`` for one that cannot be encoded."""
        for table, waiting in self._waiting:
            while waiting:
                self._collect(table, _some(waiting))
                yield

    def _begin(self) -> None:
        """Collect the first piece of each table: a type that was not declared is an error at once."""
        for table, waiting in self._waiting:
            if waiting:
                self._collect(table, _some(waiting))

    def _collect(self, table: Table, keys: Collection[Hashable]) -> None:
        self._kinds.see(keys)
        for name, rows in table.captured(keys).items():
            if name not in self.rows:
                self.rows[name] = GradualRows(self, [])
            if keys:
                self.rows[name].parts.append(rows)


def _some(waiting: dict[Hashable, Any]) -> list[Hashable]:
    return [waiting.popitem()[0] for _ in range(min(_PIECE, len(waiting)))]
