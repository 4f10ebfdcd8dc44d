"""Complete captures of many rows in pieces, while records are processed.

Theory. A capture promises the state of one moment. Copying the rows of a million keys at once takes 0.1 s, encoding
them 0.3 s. So the moment itself only copies dicts of rows, and the rows are collected later (copy on write): in pieces,
and for the keys of a batch before the batch may change them. The owner of the rows calls ``save`` for that. A row that
was not saved is the same as at the moment of the capture, except that a sweep may have removed an expired one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import ref

from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyRow

#: Number of rows from which a complete capture collects them in pieces.
MANY: Final = 4096

#: Rows that are collected at once: a millisecond for rows that have to be encoded.
_PIECE: Final = 512

#: Stands for a key that does not wait.
_ABSENT: Final = object()

Collect: TypeAlias = Callable[[list[Hashable], list[Any]], Mapping[str, Iterable[KeyRow]]]
"""Returns the rows of some keys by their names in a snapshot. Raises ``CheckpointError``."""


class WaitingRows(NamedTuple):
    """Some of the rows of a capture."""

    waiting: dict[Hashable, Any]
    """The rows that are not collected, by key: a copy that belongs to the capture."""
    collect: Collect


@dataclass(slots=True)
class GradualRows:
    """Rows under one name at the moment of a capture. Iteration collects what is missing first."""

    capture: GradualCapture
    pieces: list[Iterable[KeyRow]]

    def __iter__(self) -> Iterator[KeyRow]:
        for _ in self.capture.gather():
            pass
        return chain.from_iterable(self.pieces)


class GradualCapture:
    """The rows of ``parts``, as they are now; ``kinds`` observes all their keys.

    Raises ``CheckpointError`` if the first piece of a part cannot be encoded: a type that was not declared.
    """

    __slots__ = ("__weakref__", "_kinds", "_parts", "rows")

    def __init__(self, parts: Iterable[WaitingRows], kinds: KeyKinds) -> None:
        self._parts: Final = list(parts)
        self._kinds: Final = kinds
        self.rows: Final[dict[str, GradualRows]] = {}
        """By their names in a snapshot."""
        for part in self._parts:
            self._collect_some(part)

    @property
    def is_complete(self) -> bool:
        """True once all rows are collected."""
        return not any(part.waiting for part in self._parts)

    def save(self, keys: Iterable[Hashable]) -> None:
        """Collect the rows of ``keys``, which may change now. Raises ``CheckpointError``, or ``TypeError`` for a key
        that cannot be hashed.
        """
        distinct = dict.fromkeys(keys)
        self._kinds.see(distinct)
        if self._kinds.mixed:
            # A row would be stored under an equal key of another type.
            for _ in self.gather():
                pass
            return
        for part in self._parts:
            waiting = part.waiting
            if waiting:
                found = [
                    (key, row)
                    for key in distinct
                    if (row := waiting.pop(key, _ABSENT)) is not _ABSENT
                ]
                self._collect(part, [key for key, _ in found], [row for _, row in found])

    def gather(self) -> Iterator[None]:
        """Collect all rows, in pieces. Raises ``CheckpointError`` for one that cannot be encoded."""
        for part in self._parts:
            while part.waiting:
                self._collect_some(part)
                yield

    def _collect_some(self, part: WaitingRows) -> None:
        found = [part.waiting.popitem() for _ in range(min(_PIECE, len(part.waiting)))]
        self._collect(part, [key for key, _ in found], [row for _, row in found])

    def _collect(self, part: WaitingRows, keys: list[Hashable], rows: list[Any]) -> None:
        self._kinds.see(keys)
        for name, piece in part.collect(keys, rows).items():
            if name not in self.rows:
                self.rows[name] = GradualRows(self, [])
            self.rows[name].pieces.append(piece)


class GradualCaptures:
    """The gradual captures of one owner of rows, one after the other. False if there is none to be completed."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        #: The capture is completed only if it is still referenced elsewhere.
        self._last: ref[GradualCapture] | None = None

    def __bool__(self) -> bool:
        return self._last is not None

    def begin(self, parts: Iterable[WaitingRows], kinds: KeyKinds) -> GradualCapture:
        """Return a new capture; see ``GradualCapture``. Complete the last one before."""
        capture = GradualCapture(parts, kinds)
        self._last = ref(capture)
        return capture

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

    def complete(self) -> None:
        """Collect all rows at once, and observe their keys. Raises as ``GradualCapture.gather``."""
        for _ in self.gather():
            pass

    def _unfinished(self) -> GradualCapture | None:
        capture = None if self._last is None else self._last()
        if capture is None or capture.is_complete:
            self._last = capture = None
        return capture
