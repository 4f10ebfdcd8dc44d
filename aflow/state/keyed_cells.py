"""Cells of the current key, one class for each kind of state, over the rows of one state.

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
from typing import Generic, Protocol, TypeAlias, TypeVar, overload

from aflow.state.aggregate import Aggregate

R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


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


class KeyedValueCell(_Cell[T]):
    __slots__ = ()

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: T | D) -> T | D: ...
    def get(self, default: T | D | None = None) -> T | D | None:
        return self._rows.get(self._at.key, default)

    def set(self, value: T) -> None:
        self._rows[self._at.key] = value


class KeyedListCell(_InPlaceCell[ListRow[T]]):
    __slots__ = ()

    def get(self) -> list[T]:
        return list(self._rows.get(self._at.key, ()))

    def add(self, value: T) -> None:
        key, touch = self._at.key, self._touch
        values = touch(key)
        if values is None:
            self._rows[key] = [value]
        else:
            values.append(value)

    def extend(self, values: Iterable[T]) -> None:
        more = list(values)
        touch = self._touch
        row = touch(self._at.key)
        if row is None:
            self.set(more)
        else:
            row.extend(more)

    def set(self, values: Iterable[T]) -> None:
        if row := list(values):
            self._rows[self._at.key] = row
        else:
            self.clear()

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self._rows.get(self._at.key, ()))


class KeyedMapCell(_InPlaceCell[MapRow[K, V]]):
    __slots__ = ()

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        entries = self._rows.get(self._at.key)
        return default if entries is None else entries.get(key, default)

    def put(self, key: K, value: V) -> None:
        touch = self._touch
        entries = touch(self._at.key)
        if entries is None:
            new: dict[K, V] = {key: value}
            self._rows[self._at.key] = new
        else:
            entries[key] = value

    def remove(self, key: K) -> bool:
        rows = self._rows
        entries = rows.get(self._at.key)
        if entries is None or key not in entries:
            return False
        if not isinstance(rows, dict):
            entries = rows.touch(self._at.key)
        if entries is not None:  # None if it has expired just now
            del entries[key]
            if not entries:
                self.clear()
        return True

    def items(self) -> list[tuple[K, V]]:
        return list(self._entries().items())

    def keys(self) -> list[K]:
        return list(self._entries())

    def values(self) -> list[V]:
        return list(self._entries().values())

    def __iter__(self) -> Iterator[K]:
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


class KeyedReducingCell(_Cell[T]):
    __slots__ = ("_fn",)

    def __init__(self, at: CurrentKey, rows: Rows[T], fn: Callable[[T, T], T]) -> None:
        self._at = at
        self._rows = rows
        self._fn = fn

    def add(self, value: T) -> None:
        key, rows = self._at.key, self._rows
        rows[key] = self._fn(rows[key], value) if key in rows else value

    def get(self) -> T | None:
        return self._rows.get(self._at.key)


class KeyedAggregatingCell(_Cell[ACC], Generic[IN, ACC, OUT]):
    __slots__ = ("_aggregate",)

    def __init__(self, at: CurrentKey, rows: Rows[ACC], aggregate: Aggregate[IN, ACC, OUT]) -> None:
        self._at = at
        self._rows = rows
        self._aggregate = aggregate

    def add(self, value: IN) -> None:
        key, rows, aggregate = self._at.key, self._rows, self._aggregate
        rows[key] = aggregate.add(rows[key] if key in rows else aggregate.create(), value)

    def get(self) -> OUT | None:
        key, rows = self._at.key, self._rows
        return self._aggregate.result(rows[key]) if key in rows else None
