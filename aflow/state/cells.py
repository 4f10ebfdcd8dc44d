"""What a handler uses: the state of the current key, one protocol for each kind of state.

A cell belongs to a declaration, not to a key: which key it reads and writes is that of the record (or timer) being
handled, so a cell kept from one handler call to the next follows along. Outside a handler there is no current key, and
using a cell raises ``OperatorError``. A cleared cell takes no memory and no room in a snapshot.

What a cell hands out must be changed only by writing it back. With the memory backend ``get()`` returns the very object
that is stored, so a change in place would be seen by later reads; with a backend on disk it would be lost.
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
        """Replace what is stored."""
        ...

    def clear(self) -> None:
        """Forget the value; nothing if there is none."""
        ...


class ListCell(Protocol[T]):
    """Values of the current key in the order of their arrival; empty and never written are the same."""

    def get(self) -> list[T]:
        """All values, as a list of your own."""
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
        """Forget all values."""
        ...

    def __iter__(self) -> Iterator[T]:
        """Over the values of this moment: what is added meanwhile is not seen."""
        ...

    def __len__(self) -> int: ...


class MapCell(Protocol[K, V]):
    """A mapping of its own for the current key; empty and never written are the same."""

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...

    def put(self, key: K, value: V) -> None:
        """Add an entry or replace it."""
        ...

    def remove(self, key: K) -> bool:
        """Forget an entry; False if there was none."""
        ...

    def items(self) -> list[tuple[K, V]]:
        """All entries in the order in which their keys came, as a list of your own; so are ``keys`` and ``values``."""
        ...

    def keys(self) -> list[K]: ...

    def values(self) -> list[V]: ...

    def clear(self) -> None:
        """Forget all entries."""
        ...

    def __iter__(self) -> Iterator[K]:
        """Over the keys of this moment."""
        ...

    def __contains__(self, key: object) -> bool: ...

    def __len__(self) -> int: ...


class ReducingCell(Protocol[T]):
    """All values of the current key reduced to one."""

    def add(self, value: T) -> None:
        """Combine ``value`` with what is stored; the first one is stored as it is."""
        ...

    def get(self) -> T | None:
        """What the values were reduced to; None if there were none."""
        ...

    def clear(self) -> None:
        """Forget the values."""
        ...


class AggregatingCell(Protocol[IN_contra, OUT_co]):
    """All values of the current key in the accumulator of an ``Aggregate``."""

    def add(self, value: IN_contra) -> None:
        """Add ``value`` to the accumulator."""
        ...

    def get(self) -> OUT_co | None:
        """The result of the values added since the last ``clear``; None if there were none."""
        ...

    def clear(self) -> None:
        """Forget the accumulator."""
        ...
