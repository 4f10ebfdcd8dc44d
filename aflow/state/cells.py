"""Cells: the state of the current key for handlers, one class for each kind of state.

A cell belongs to a declaration, not to a key. It reads and writes the state of the key of the current record or timer,
so a cell can be kept from one handler call to the next. Outside of a handler there is no current key, and access
raises ``OperatorError``. A cleared cell takes no memory and no space in a snapshot.

Change a value only by writing it back. With the memory backend ``get()`` returns the stored object itself, so later
reads would see a change in place; with a backend on disk the change would be lost.

Theory. A row is the state of one key under one name: a value, a list, a map, an accumulator. A cell asks its owner for
the current key and reads and writes the row of that key. The rows decide how long a row lives and where it is written:

- Rows without a time to live are a ``dict``.
- ``TimedRows`` forget a row some time after its last touch.
- An ``OverlayRow`` is the row of one key in a transaction. It keeps changes until they are committed.

A cell replaces rows, except lists and maps: it asks for these with ``touch`` and changes them in place.

Cells are on the hot path of every keyed step: with a ``dict`` each method is a dict operation or two.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, overload

from aflow.state.aggregate import Aggregate

R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
IN_contra = TypeVar("IN_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)


class CurrentKey(Protocol):
    """Owner of a cell: a backend, whose current key changes, or a transaction of one key."""

    @property
    def key(self) -> Hashable: ...


class LiveRows(Protocol[R]):
    """Rows by key that are more than a ``dict``: access has effects of its own."""

    @overload
    def get(self, key: Hashable, /) -> R | None: ...
    @overload
    def get(self, key: Hashable, default: D, /) -> R | D: ...

    def __contains__(self, key: object, /) -> bool: ...

    def __getitem__(self, key: Hashable, /) -> R:
        """Return the row of a ``key`` for which ``in`` has just returned True."""
        ...

    def __setitem__(self, key: Hashable, row: R, /) -> None: ...

    def pop(self, key: Hashable, default: None, /) -> object:
        """Remove the row of ``key`` if there is one."""
        ...

    def touch(self, key: Hashable, /) -> R | None:
        """Return the row of ``key``, which the caller changes in place; None if there is none."""
        ...


#: Without empty lists and maps: a key without values has no row.
Rows: TypeAlias = dict[Hashable, R] | LiveRows[R]


class ListRow(Protocol[T]):
    """The row of a list: a ``list``, or an overlay of one."""

    def append(self, value: T, /) -> None: ...

    def extend(self, values: Iterable[T], /) -> None: ...

    def __iter__(self) -> Iterator[T]: ...

    def __len__(self) -> int: ...


class MapRow(Protocol[K, V]):
    """The row of a map: a ``dict``, or an overlay of one."""

    def get(self, key: K, default: D, /) -> V | D: ...

    def items(self) -> Iterable[tuple[K, V]]: ...

    def values(self) -> Iterable[V]: ...

    def __setitem__(self, key: K, value: V, /) -> None: ...

    def __delitem__(self, key: K, /) -> None: ...

    def __contains__(self, key: object, /) -> bool: ...

    def __iter__(self) -> Iterator[K]: ...

    def __len__(self) -> int: ...


class _Cell(Generic[R]):
    """Parts common to all cells: the owner, which has the current key, and the rows."""

    __slots__ = ("_at", "_rows")

    def __init__(self, at: CurrentKey, rows: Rows[R]) -> None:
        self._at = at
        self._rows = rows

    def clear(self) -> None:
        """Remove the state of the current key if there is any."""
        self._rows.pop(self._at.key, None)


class _InPlaceCell(_Cell[R]):
    """A cell that changes its row in place."""

    __slots__ = ("_touch",)

    # No call of the base class in any `__init__`: transactions make cells for each record.
    def __init__(self, at: CurrentKey, rows: Rows[R]) -> None:
        self._at = at
        self._rows = rows
        #: Return the row of a key, to be changed in place.
        self._touch: Callable[[Hashable], R | None] = (
            rows.get if isinstance(rows, dict) else rows.touch
        )


class ValueCell(_Cell[T]):
    """One value of the current key."""

    __slots__ = ()

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: T | D) -> T | D: ...
    def get(self, default: T | D | None = None) -> T | D | None:
        return self._rows.get(self._at.key, default)

    def set(self, value: T) -> None:
        """Replace the value."""
        self._rows[self._at.key] = value


class ListCell(_InPlaceCell[ListRow[T]]):
    """List of values of the current key. An empty list and one that was never written are the same."""

    __slots__ = ()

    def get(self) -> list[T]:
        """Return a new list of all values."""
        return list(self._rows.get(self._at.key, ()))

    def add(self, value: T) -> None:
        """Append one value."""
        key, touch = self._at.key, self._touch
        values = touch(key)
        if values is None:
            self._rows[key] = [value]
        else:
            values.append(value)

    def extend(self, values: Iterable[T]) -> None:
        """Append several values."""
        more = list(values)
        touch = self._touch
        row = touch(self._at.key)
        if row is None:
            self.set(more)
        else:
            row.extend(more)

    def set(self, values: Iterable[T]) -> None:
        """Replace all values."""
        if row := list(values):
            self._rows[self._at.key] = row
        else:
            self.clear()

    def __iter__(self) -> Iterator[T]:
        """Iterate over a copy: values added during the iteration are not seen."""
        return iter(self.get())

    def __len__(self) -> int:
        return len(self._rows.get(self._at.key, ()))


class MapCell(_InPlaceCell[MapRow[K, V]]):
    """Mapping of the current key. An empty mapping and one that was never written are the same."""

    __slots__ = ()

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        entries = self._rows.get(self._at.key)
        return default if entries is None else entries.get(key, default)

    def put(self, key: K, value: V) -> None:
        """Add an entry or replace it."""
        touch = self._touch
        entries = touch(self._at.key)
        if entries is None:
            new: dict[K, V] = {key: value}
            self._rows[self._at.key] = new
        else:
            entries[key] = value

    def remove(self, key: K) -> bool:
        """Remove an entry. Return False if there was none."""
        at, touch = self._at.key, self._touch
        entries = self._rows.get(at)
        if entries is None or key not in entries:
            return False
        entries = touch(at)
        if entries is not None:  # None if it has expired just now
            del entries[key]
            if not entries:
                self.clear()
        return True

    def items(self) -> list[tuple[K, V]]:
        """Return a new list of all entries in the order of insertion; ``keys`` and ``values`` alike."""
        return list(self._entries().items())

    def keys(self) -> list[K]:
        return list(self._entries())

    def values(self) -> list[V]:
        return list(self._entries().values())

    def __iter__(self) -> Iterator[K]:
        """Iterate over a copy of the keys."""
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self._entries()

    def __len__(self) -> int:
        return len(self._entries())

    def _entries(self) -> MapRow[K, V]:
        """Return the row, to be read only: an entry put into a new dict is lost."""
        entries = self._rows.get(self._at.key)
        if entries is None:
            nothing: dict[K, V] = {}
            return nothing
        return entries


class ReducingCell(_Cell[T]):
    """Values of the current key reduced to one."""

    __slots__ = ("_fn",)

    def __init__(self, at: CurrentKey, rows: Rows[T], fn: Callable[[T, T], T]) -> None:
        self._at = at
        self._rows = rows
        self._fn = fn

    def add(self, value: T) -> None:
        """Combine ``value`` with the stored one; the first value is stored as it is."""
        key, rows = self._at.key, self._rows
        rows[key] = self._fn(rows[key], value) if key in rows else value

    def get(self) -> T | None:
        """Return the reduced value; None if there were no values."""
        return self._rows.get(self._at.key)


class AggregatingCell(_Cell[Any], Generic[IN_contra, OUT_co]):
    """Values of the current key in the accumulator of an ``Aggregate``."""

    __slots__ = ("_aggregate",)

    def __init__(
        self, at: CurrentKey, rows: Rows[Any], aggregate: Aggregate[IN_contra, Any, OUT_co]
    ) -> None:
        self._at = at
        self._rows = rows
        self._aggregate = aggregate

    def add(self, value: IN_contra) -> None:
        """Add ``value`` to the accumulator."""
        key, rows, aggregate = self._at.key, self._rows, self._aggregate
        rows[key] = aggregate.add(rows[key] if key in rows else aggregate.create(), value)

    def get(self) -> OUT_co | None:
        """Return the result of the values added since the last ``clear``; None if there were none."""
        key, rows = self._at.key, self._rows
        return self._aggregate.result(rows[key]) if key in rows else None
