"""A dict in parts, for as many keys as a window may have.

CPython copies a dict at once when it grows: 20 ms for 350,000 keys, 45 ms for 700,000, in which the event loop waits. A
part with ``_MOST`` keys grows in 5 ms, and when it is full, new keys are added to a new part. Iteration is in order of
insertion, as in a dict.

Most dicts are small and have one part. So loops over many keys keep the part of the last key, look up the next key
there, and call ``part_of`` if it is missing. Neighbours in one dict are mostly neighbours in another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

from aflow.operators.pieces import discarded

V = TypeVar("V")
D = TypeVar("D")

#: Number of keys in a part. At 174,763 keys CPython would copy it.
_MOST: Final = 1 << 17


class SplitDict(Generic[V]):
    """Values by key, in dicts of bounded size."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        #: Never empty. A key is in one of them; new ones are added to the last.
        self._parts: list[dict[Hashable, V]] = [{}]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def part_of(self, key: Hashable) -> dict[Hashable, V]:
        """Return the dict that has ``key``, or the one to which it must be added."""
        for part in self._parts:
            if key in part:
                return part
        if len(self._parts[-1]) >= _MOST:
            self._parts = [*filter(None, self._parts), {}]
        return self._parts[-1]

    def getter(self) -> Callable[[Hashable, D], V | D]:
        """Return ``get(key, default)`` of the present entries, to be read once for a pass over keys."""
        return self._parts[0].get if len(self._parts) == 1 else self._getter_of_parts()

    def items(self) -> Iterator[tuple[Hashable, V]]:
        """Iterate over keys and values in order of insertion."""
        return chain.from_iterable(part.items() for part in self._parts)

    def discard(self, key: Hashable) -> None:
        """Remove ``key`` if it is present."""
        self.part_of(key).pop(key, None)

    def cleared(self) -> Iterator[int]:
        """Remove all entries, in pieces."""
        for part in self._parts:
            yield from discarded(part)
        self._parts = [{}]

    def _getter_of_parts(self) -> Callable[[Hashable, D], V | D]:
        parts = self._parts
        #: The part of the last key.
        part = parts[0]

        def get(key: Hashable, default: D) -> V | D:
            nonlocal part
            if key in part:
                return part[key]
            for other in parts:
                if key in other:
                    part = other
                    return other[key]
            return default

        return get
