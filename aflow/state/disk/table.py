"""The values of all keys as one mapping, for operators that handle whole batches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, MutableMapping
from typing import Any, TypeVar

T = TypeVar("T")


# Not a dict with other ways to iterate: those who are handed a dict may take it for what it is.
class DiskTable(MutableMapping[Hashable, T]):
    """``rows`` are those of resident keys; a key is made so when it is asked for. Iterating goes by a view.

    A loop may replace values and remove keys as it goes.
    """

    __slots__ = ("_admit", "_all", "_rows")

    def __init__(
        self,
        rows: dict[Hashable, T],
        admit: Callable[[Hashable], None],
        all_keys: Callable[[], Iterator[Hashable]],
    ) -> None:
        self._rows = rows
        self._admit = admit
        self._all = all_keys

    def __getitem__(self, key: Hashable) -> T:
        self._admit(key)
        return self._rows[key]

    def __setitem__(self, key: Hashable, value: T) -> None:
        self._admit(key)
        self._rows[key] = value

    def __delitem__(self, key: Hashable) -> None:
        self._admit(key)
        del self._rows[key]

    def __contains__(self, key: Any) -> bool:
        self._admit(key)
        return key in self._rows

    def __iter__(self) -> Iterator[Hashable]:
        return self._all()

    def __len__(self) -> int:
        return sum(1 for _ in self._all())
