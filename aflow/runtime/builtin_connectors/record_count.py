"""Common parts of the sources whose position is the number of emitted records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, TypeVar

from aflow.connect import Position, Source, Split
from aflow.errors import FlowDefinitionError, RestoreError, SourceError, described, shown

T_co = TypeVar("T_co", covariant=True)


def count_in(position: Position | None, source: str) -> int:
    """Read a position as a number of records. Raises ``RestoreError`` if it is none."""
    if position is None:
        return 0
    if type(position) is int and position >= 0:
        return position
    raise RestoreError(
        f"{source} continues at a number of records, not at {shown(position)}: "
        f"the snapshot was taken with another kind of source under this name"
    )


def read_failed(source: str, position: int, cause: BaseException) -> SourceError:
    """Describe ``cause``, raised by the user's iterable when it was asked for record ``position`` (from 0)."""
    return SourceError(f"{source} failed at record {position}, counted from 0: {described(cause)}")


def check_capacity(capacity: int, end: str) -> int:
    """Return ``capacity`` if it is a positive number of records. Raises ``FlowDefinitionError`` otherwise."""
    if type(capacity) is not int or capacity < 1:
        raise FlowDefinitionError(
            f"capacity of {end} must be a number of records above zero, not {shown(capacity)}"
        )
    return capacity


class Origin:
    """The object that a source was given, which may be readable only once."""

    def __init__(self, source: str, *, single_use: bool) -> None:
        self._source = source
        self._single_use = single_use
        self._opened = False

    def open(self) -> None:
        """Record the start of reading. Raises ``SourceError`` if it was read before and cannot be read again."""
        if self._opened and self._single_use:
            raise SourceError(
                f"{self._source} is exhausted: it was given an iterator, which can be read only once, and a job "
                f"has read it; give each job a source of its own, or one over an object that can be iterated again"
            )
        self._opened = True


class OneIterableSource(Source[T_co]):
    """Base of the sources of a plain iterable, which is one split with the number of emitted records as position."""

    max_parallelism = 1

    #: The id of the split.
    _split: ClassVar[str]

    def __init__(self, iterable: Iterable[T_co], *, hint: str = "") -> None:
        """Raises ``FlowDefinitionError``, whose message ends with ``hint``, for an object that is no iterable."""
        name = type(self).__name__
        if not hasattr(iterable, "__iter__"):
            raise FlowDefinitionError(f"{name} needs an iterable, not {shown(iterable)}{hint}")
        self._iterable = iterable
        # Iterators and generators do not start at the first record again.
        self._single_use = isinstance(iterable, Iterator)
        self._origin = Origin(name, single_use=self._single_use)
        # The order of a set depends on hashes, and those of strings differ from process to process.
        self.replayable = not isinstance(iterable, Iterator | set | frozenset)

    @property
    def iterator(self) -> object:
        """The iterable if it can be read only once; otherwise None."""
        return self._iterable if self._single_use else None

    async def splits(self) -> Sequence[Split]:
        return (Split(self._split),)
