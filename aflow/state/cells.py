"""Cells: the state of the current key for handlers, one protocol for each kind of state.

A cell belongs to a declaration, not to a key. It reads and writes the state of the key of the current record or timer,
so a cell can be kept from one handler call to the next. Outside of a handler there is no current key, and access
raises ``OperatorError``. A cleared cell takes no memory and no space in a snapshot.

Change a value only by writing it back. With the memory backend ``get()`` returns the stored object itself, so later
reads would see a change in place; with a backend on disk the change would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
IN_contra = TypeVar("IN_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)


class ValueCell(Protocol[T]):
    """One value of the current key."""

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: T | D) -> T | D: ...

    def set(self, value: T) -> None:
        """Replace the value."""
        ...

    def clear(self) -> None:
        """Remove the value if there is one."""
        ...


class ListCell(Protocol[T]):
    """List of values of the current key. An empty list and one that was never written are the same."""

    def get(self) -> list[T]:
        """Return a new list of all values."""
        ...

    def add(self, value: T) -> None:
        """Append one value."""
        ...

    def extend(self, values: Iterable[T]) -> None:
        """Append several values."""
        ...

    def set(self, values: Iterable[T]) -> None:
        """Replace all values."""
        ...

    def clear(self) -> None:
        """Remove all values."""
        ...

    def __iter__(self) -> Iterator[T]:
        """Iterate over a copy: values added during the iteration are not seen."""
        ...

    def __len__(self) -> int: ...


class MapCell(Protocol[K, V]):
    """Mapping of the current key. An empty mapping and one that was never written are the same."""

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...

    def put(self, key: K, value: V) -> None:
        """Add an entry or replace it."""
        ...

    def remove(self, key: K) -> bool:
        """Remove an entry. Return False if there was none."""
        ...

    def items(self) -> list[tuple[K, V]]:
        """Return a new list of all entries in the order of insertion; ``keys`` and ``values`` alike."""
        ...

    def keys(self) -> list[K]: ...

    def values(self) -> list[V]: ...

    def clear(self) -> None:
        """Remove all entries."""
        ...

    def __iter__(self) -> Iterator[K]:
        """Iterate over a copy of the keys."""
        ...

    def __contains__(self, key: object) -> bool: ...

    def __len__(self) -> int: ...


class ReducingCell(Protocol[T]):
    """Values of the current key reduced to one."""

    def add(self, value: T) -> None:
        """Combine ``value`` with the stored one; the first value is stored as it is."""
        ...

    def get(self) -> T | None:
        """Return the reduced value; None if there were no values."""
        ...

    def clear(self) -> None:
        """Remove the reduced value."""
        ...


class AggregatingCell(Protocol[IN_contra, OUT_co]):
    """Values of the current key in the accumulator of an ``Aggregate``."""

    def add(self, value: IN_contra) -> None:
        """Add ``value`` to the accumulator."""
        ...

    def get(self) -> OUT_co | None:
        """Return the result of the values added since the last ``clear``; None if there were none."""
        ...

    def clear(self) -> None:
        """Remove the accumulator."""
        ...
