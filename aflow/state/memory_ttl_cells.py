"""Cells whose state has a time to live: those over dicts, and before and behind each use a look at the clock."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar, overload

from aflow.state.aggregate import Aggregate
from aflow.state.lifetimes import Lifetimes
from aflow.state.memory_cells import (
    CurrentKey,
    MemoryAggregatingCell,
    MemoryListCell,
    MemoryMapCell,
    MemoryReducingCell,
    MemoryValueCell,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class TtlValueCell(MemoryValueCell[T]):
    __slots__ = ("_lifetimes",)

    def __init__(self, at: CurrentKey, table: dict[Hashable, T], lifetimes: Lifetimes) -> None:
        super().__init__(at, table)
        self._lifetimes = lifetimes

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: T | D) -> T | D: ...
    def get(self, default: T | D | None = None) -> T | D | None:
        self._lifetimes.read(self._at.key)
        return self._table.get(self._at.key, default)

    def set(self, value: T) -> None:
        super().set(value)
        self._lifetimes.written(self._at.key)

    def clear(self) -> None:
        self._lifetimes.forget(self._at.key)


class TtlListCell(MemoryListCell[T]):
    __slots__ = ("_lifetimes",)

    def __init__(
        self, at: CurrentKey, table: dict[Hashable, list[T]], lifetimes: Lifetimes
    ) -> None:
        super().__init__(at, table)
        self._lifetimes = lifetimes

    def get(self) -> list[T]:
        self._lifetimes.read(self._at.key)
        return super().get()

    def add(self, value: T) -> None:
        self._lifetimes.drop_expired(self._at.key)
        super().add(value)
        self._lifetimes.written(self._at.key)

    def set(self, values: Iterable[T]) -> None:
        super().set(values)
        self._lifetimes.written(self._at.key)

    def clear(self) -> None:
        self._lifetimes.forget(self._at.key)

    def __len__(self) -> int:
        self._lifetimes.read(self._at.key)
        return super().__len__()


class TtlMapCell(MemoryMapCell[K, V]):
    """One time to live for the whole mapping of a key."""

    __slots__ = ("_lifetimes",)

    def __init__(
        self, at: CurrentKey, table: dict[Hashable, dict[K, V]], lifetimes: Lifetimes
    ) -> None:
        super().__init__(at, table)
        self._lifetimes = lifetimes

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        self._lifetimes.read(self._at.key)
        entries = self._table.get(self._at.key)
        return default if entries is None else entries.get(key, default)

    def put(self, key: K, value: V) -> None:
        self._lifetimes.drop_expired(self._at.key)
        super().put(key, value)
        self._lifetimes.written(self._at.key)

    def remove(self, key: K) -> bool:
        self._lifetimes.drop_expired(self._at.key)
        removed = super().remove(key)
        if removed:
            self._lifetimes.written(self._at.key)
        return removed

    def clear(self) -> None:
        self._lifetimes.forget(self._at.key)

    def _entries(self) -> dict[K, V]:
        self._lifetimes.read(self._at.key)
        return super()._entries()


class TtlReducingCell(MemoryReducingCell[T]):
    __slots__ = ("_lifetimes",)

    def __init__(
        self,
        at: CurrentKey,
        table: dict[Hashable, T],
        fn: Callable[[T, T], T],
        lifetimes: Lifetimes,
    ) -> None:
        super().__init__(at, table, fn)
        self._lifetimes = lifetimes

    def add(self, value: T) -> None:
        self._lifetimes.drop_expired(self._at.key)
        super().add(value)
        self._lifetimes.written(self._at.key)

    def get(self) -> T | None:
        self._lifetimes.read(self._at.key)
        return super().get()

    def clear(self) -> None:
        self._lifetimes.forget(self._at.key)


class TtlAggregatingCell(MemoryAggregatingCell[IN, ACC, OUT], Generic[IN, ACC, OUT]):
    __slots__ = ("_lifetimes",)

    def __init__(
        self,
        at: CurrentKey,
        table: dict[Hashable, ACC],
        aggregate: Aggregate[IN, ACC, OUT],
        lifetimes: Lifetimes,
    ) -> None:
        super().__init__(at, table, aggregate)
        self._lifetimes = lifetimes

    def add(self, value: IN) -> None:
        self._lifetimes.drop_expired(self._at.key)
        super().add(value)
        self._lifetimes.written(self._at.key)

    def get(self) -> OUT | None:
        self._lifetimes.read(self._at.key)
        return super().get()

    def clear(self) -> None:
        self._lifetimes.forget(self._at.key)
