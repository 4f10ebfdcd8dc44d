"""Cells over dicts: one dict for each state name, from key to what the key has.

They are on the hot path of every keyed step: each method is a dict operation or two with the current key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar, overload

from aflow.state.aggregate import Aggregate

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class CurrentKey(Protocol):
    """Who says which key is the current one."""

    @property
    def key(self) -> Hashable: ...


class _Cell(Generic[V]):
    """What all cells have: who knows the current key, and what each key has."""

    __slots__ = ("_at", "_table")

    def __init__(self, at: CurrentKey, table: dict[Hashable, V]) -> None:
        self._at = at
        #: Holds no empty lists or maps: a key with nothing to remember is not in it.
        self._table = table

    def clear(self) -> None:
        self._table.pop(self._at.key, None)


class MemoryValueCell(_Cell[T]):
    __slots__ = ()

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: T | D) -> T | D: ...
    def get(self, default: T | D | None = None) -> T | D | None:
        return self._table.get(self._at.key, default)

    def set(self, value: T) -> None:
        self._table[self._at.key] = value


class MemoryListCell(_Cell[list[T]]):
    __slots__ = ()

    def get(self) -> list[T]:
        return list(self._table.get(self._at.key, ()))

    def add(self, value: T) -> None:
        key = self._at.key
        values = self._table.get(key)
        if values is None:
            self._table[key] = [value]
        else:
            values.append(value)

    def extend(self, values: Iterable[T]) -> None:
        self.set([*self.get(), *values])

    def set(self, values: Iterable[T]) -> None:
        if kept := list(values):
            self._table[self._at.key] = kept
        else:
            self.clear()

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self._table.get(self._at.key, ()))


class MemoryMapCell(_Cell[dict[K, V]]):
    __slots__ = ()

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        entries = self._table.get(self._at.key)
        return default if entries is None else entries.get(key, default)

    def put(self, key: K, value: V) -> None:
        entries = self._table.get(self._at.key)
        if entries is None:
            self._table[self._at.key] = {key: value}
        else:
            entries[key] = value

    def remove(self, key: K) -> bool:
        entries = self._table.get(self._at.key)
        if entries is None or key not in entries:
            return False
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

    def _entries(self) -> dict[K, V]:
        """To read only: what is put into the dict of a key that has none is lost."""
        return self._table.get(self._at.key) or {}


class MemoryReducingCell(_Cell[T]):
    __slots__ = ("_fn",)

    def __init__(self, at: CurrentKey, table: dict[Hashable, T], fn: Callable[[T, T], T]) -> None:
        super().__init__(at, table)
        self._fn = fn

    def add(self, value: T) -> None:
        key, table = self._at.key, self._table
        table[key] = self._fn(table[key], value) if key in table else value

    def get(self) -> T | None:
        return self._table.get(self._at.key)


class MemoryAggregatingCell(_Cell[ACC], Generic[IN, ACC, OUT]):
    __slots__ = ("_aggregate",)

    def __init__(
        self, at: CurrentKey, table: dict[Hashable, ACC], aggregate: Aggregate[IN, ACC, OUT]
    ) -> None:
        super().__init__(at, table)
        self._aggregate = aggregate

    def add(self, value: IN) -> None:
        key, table, aggregate = self._at.key, self._table, self._aggregate
        table[key] = aggregate.add(table[key] if key in table else aggregate.create(), value)

    def get(self) -> OUT | None:
        key, table = self._at.key, self._table
        return self._aggregate.result(table[key]) if key in table else None
