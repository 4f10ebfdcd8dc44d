"""A source of records from an iterable of this process: a list, a range, a generator, any object with ``__iter__``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from inspect import isgenerator
from itertools import islice
from typing import Final, TypeVar

from aflow.connect import Chunk, Position, Reader, Split
from aflow.operators.base import RAISED
from aflow.runtime.builtin_connectors.record_count import (
    OneIterableSource,
    count_in,
    read_failed,
)

T_co = TypeVar("T_co", covariant=True)

_NAME: Final = "IterableSource"

#: Types that are sliced instead of being iterated over.
_SLICED: Final = (list, tuple, range)


class IterableSource(OneIterableSource[T_co]):
    """Reads ``iterable`` on the event loop, in one subtask.

    It must not block: put an iterator that waits into a ``ThreadSource``. The position is the number of emitted
    records. Replayable unless the iterable is an iterator or generator (read once; a second job gets a ``SourceError``)
    or a set (no order that another process would repeat). A sequence must not change during the run.
    """

    _split = "iterable"

    def __init__(self, iterable: Iterable[T_co]) -> None:
        super().__init__(iterable, hint="; for an async iterable there is AsyncIterableSource")

    async def reader(self, split: Split, position: Position | None) -> Reader[T_co]:
        """Open a reader. A position after the end of the iterable is its end."""
        start = count_in(position, _NAME)
        self._origin.open()
        iterable = self._iterable
        # Not any Sequence: a deque, for example, cannot be sliced.
        if isinstance(iterable, Sequence) and type(iterable) in _SLICED:
            return _SequenceReader(iterable, start)
        return _IteratorReader(iterable, start)


class _SequenceReader(Reader[T_co]):
    """Cuts slices, so that continuing at a large position costs nothing."""

    def __init__(self, sequence: Sequence[T_co], start: int) -> None:
        self._sequence = sequence
        self._position = start

    async def read(self, limit: int) -> Chunk[T_co] | None:
        values = list(self._sequence[self._position : self._position + limit])
        if not values:
            return None
        self._position += len(values)
        return Chunk(values, self._position)


class _IteratorReader(Reader[T_co]):
    """Iterates; records before an error are returned first, then the error is raised."""

    def __init__(self, iterable: Iterable[T_co], start: int) -> None:
        self._position = 0
        self._failure: BaseException | None = None
        self._iterator: Iterator[T_co] = iter(())
        try:
            self._iterator = iter(iterable)
            for _ in islice(self._iterator, start):
                self._position += 1
        except RAISED as exc:
            self._failure = exc

    async def read(self, limit: int) -> Chunk[T_co] | None:
        values: list[T_co] = []
        if self._failure is None:
            try:
                values.extend(islice(self._iterator, limit))  # hot path: no Python code per record
            except RAISED as exc:
                self._failure = exc
        if values:
            self._position += len(values)
            return Chunk(values, self._position)
        if self._failure is not None:
            raise read_failed(_NAME, self._position, self._failure) from self._failure
        return None

    async def close(self) -> None:
        """Close a generator, so that its ``finally`` blocks run now. Other iterators belong to the user."""
        if isgenerator(self._iterator):
            try:
                self._iterator.close()
            except RAISED as exc:
                raise read_failed(_NAME, self._position, exc) from exc
