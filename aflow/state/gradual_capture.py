"""Captures of many rows in pieces, while records are processed.

Theory. A capture promises the state of one moment. To encode the rows of a million keys at once takes up to 1.5 s, and
to copy their dict up to 50 ms. So the moment itself only lists the keys, and the rows are collected later (copy on
write): in pieces, and for the keys of a batch before the batch may change them. The owner of the rows calls ``save``
for that. A row that was not saved is the same as at the moment of the capture, except that a sweep may have removed an
expired one.

Which keys were collected in pieces is not recorded: a set of a million keys is copied when it grows. So a key of a
later batch may be collected again. Its rows are the same both times, and an iteration leaves out the former ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from weakref import ref

from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyRow

#: Number of rows from which a capture collects them in pieces: fewer are encoded in some milliseconds.
MANY: Final = 2048

#: Rows that are collected at once: less than a millisecond for most rows, some for lists of many records.
_PIECE: Final = 256

Collect: TypeAlias = Callable[[list[Hashable]], Mapping[str, Iterable[KeyRow]]]
"""Returns the present rows of some keys by their names in a snapshot, also names without rows.

Raises ``CheckpointError``.
"""


def are_many(rows: int) -> bool:
    """Return True if a capture of ``rows`` should collect them in pieces."""
    return rows >= MANY


class WaitingRows(NamedTuple):
    """Some of the rows of a capture."""

    keys: list[Hashable]
    """The keys whose rows are not collected. The list belongs to the capture. A key may be without a row."""
    collect: Collect
    most: int = sys.maxsize
    """The maximum of keys that are collected at once, for keys with several rows."""


def waiting_rows(
    rows: dict[Hashable, Any],
    collect: Callable[[list[tuple[Hashable, Any]]], Mapping[str, Iterable[KeyRow]]],
) -> WaitingRows:
    """Return all ``rows`` by key as a part of a capture; ``collect`` gets keys with their rows."""

    def collect_present(keys: list[Hashable]) -> Mapping[str, Iterable[KeyRow]]:
        return collect([(key, rows[key]) for key in keys if key in rows])

    return WaitingRows(list(rows), collect_present)


class ObservedRows:
    """Base of rows whose keys are observed when they are collected or loaded; an iteration gets all of them at once."""

    __slots__ = ()


@dataclass(slots=True)
class GradualRows(ObservedRows):
    """Rows under one name at the moment of a capture. Iteration collects what is missing first."""

    capture: GradualCapture
    pieces: list[Iterable[KeyRow]] = field(default_factory=list[Iterable[KeyRow]])
    saved: list[Iterable[KeyRow]] = field(default_factory=list[Iterable[KeyRow]])
    """Rows of keys of batches, which ``pieces`` may have too."""

    def __iter__(self) -> Iterator[KeyRow]:
        for _ in self.capture.gather():
            pass
        saved = self.capture.saved
        rows = chain.from_iterable(self.pieces)
        if not saved:
            return rows
        others = (row for row in rows if row[0] not in saved)
        return chain(others, chain.from_iterable(self.saved))


class GradualCapture:
    """The rows of ``parts``, as they are now; ``kinds`` observes all their keys.

    ``changed`` are the keys of the parts in a capture of changes; None: all keys that there are.
    Raises ``CheckpointError`` if the first piece of a part cannot be encoded: a type that was not declared.
    """

    __slots__ = ("__weakref__", "_changed", "_kinds", "_parts", "rows", "saved")

    def __init__(
        self,
        parts: Iterable[WaitingRows],
        kinds: KeyKinds,
        changed: Container[Hashable] | None = None,
    ) -> None:
        self._changed: Final = changed
        self._parts: Final = list(parts)
        self._kinds: Final = kinds
        self.rows: Final[dict[str, GradualRows]] = {}
        """By their names in a snapshot."""
        self.saved: Final[set[Hashable]] = set()
        """The keys of which all rows were collected for a batch."""
        for part in self._parts:
            self._collect_some(part)

    @property
    def is_complete(self) -> bool:
        """True once all rows are collected."""
        return not any(part.keys for part in self._parts)

    def save(self, keys: Iterable[Hashable]) -> None:
        """Collect the rows of ``keys``, which may change now. Raises ``CheckpointError``, or ``TypeError`` for a key
        that cannot be hashed.
        """
        saved, changed = self.saved, self._changed
        new = [key for key in dict.fromkeys(keys) if key not in saved]
        if changed is not None:
            new = [key for key in new if key in changed]
        if not new:
            return
        self._kinds.see(new)
        if self._kinds.mixed:
            # A row would be stored under an equal key of another type.
            for _ in self.gather():
                pass
            return
        for part in self._parts:
            for name, rows in part.collect(new).items():
                self._rows(name).saved.append(rows)
        saved.update(new)

    def gather(self) -> Iterator[None]:
        """Collect all rows, in pieces. Raises ``CheckpointError`` for one that cannot be encoded."""
        for part in self._parts:
            while part.keys:
                self._collect_some(part)
                yield

    def _collect_some(self, part: WaitingRows) -> None:
        size = min(_PIECE, part.most)
        keys = part.keys[-size:]
        self._kinds.see(keys)
        if saved := self.saved:
            keys = [key for key in keys if key not in saved]
        for name, rows in part.collect(keys).items():
            self._rows(name).pieces.append(rows)
        # Only now: a piece that cannot be encoded fails all uses of the capture, not only the first one.
        del part.keys[-size:]

    def _rows(self, name: str) -> GradualRows:
        rows = self.rows.get(name)
        if rows is None:
            rows = self.rows[name] = GradualRows(self)
        return rows


class Unfinished(Protocol):
    """A capture that is collected in pieces."""

    @property
    def is_complete(self) -> bool: ...
    def save(self, keys: Iterable[Any], /) -> None: ...
    def gather(self) -> Iterator[None]: ...


class GradualCaptures:
    """The gradual captures of one owner of rows, one after the other. False if there is none to be completed."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        #: The capture is completed only if it is still referenced elsewhere.
        self._last: ref[Unfinished] | None = None

    def __bool__(self) -> bool:
        return self._last is not None

    def begin(
        self,
        parts: Iterable[WaitingRows],
        kinds: KeyKinds,
        changed: Container[Hashable] | None = None,
    ) -> GradualCapture:
        """Return a new capture; see ``GradualCapture``. Complete the last one before."""
        capture = GradualCapture(parts, kinds, changed)
        self.follow(capture)
        return capture

    def follow(self, capture: Unfinished) -> None:
        """Let ``capture`` be the last one."""
        self._last = ref(capture)

    def save(self, keys: Collection[Hashable]) -> None:
        """Collect the rows of ``keys``, which may change now. Raises as ``GradualCapture.save``."""
        capture = self._unfinished()
        if capture is not None:
            capture.save(keys)

    def gather(self) -> Iterator[None]:
        """Collect all rows, which may change afterwards, in pieces. Raises as ``GradualCapture.gather``."""
        capture = self._unfinished()
        if capture is not None:
            yield from capture.gather()
            self._last = None

    def gather_slices(self) -> Iterator[int]:
        """Do as ``gather``, for work of an operator in pieces without results."""
        for _ in self.gather():
            yield 0

    def complete(self) -> None:
        """Collect all rows at once, and observe their keys. Raises as ``GradualCapture.gather``."""
        for _ in self.gather():
            pass

    def _unfinished(self) -> Unfinished | None:
        capture = None if self._last is None else self._last()
        if capture is None or capture.is_complete:
            self._last = capture = None
        return capture
