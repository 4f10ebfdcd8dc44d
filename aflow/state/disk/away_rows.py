"""Rows of windows that were in the database, and not in memory, at the moment of a capture."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aflow.state.disk.row_places import HEAD, RowPlaces, number_of
from aflow.state.disk.store import View
from aflow.state.keyed_entries import KeyRow

#: Rows that are looked up at once.
_AT_ONCE: Final = 1024


@dataclass(frozen=True, slots=True)
class AwayRows:
    """Rows in ``view`` that were not ``resident``, as entries of a snapshot; of ``keys``, or of all keys."""

    view: View
    resident: Mapping[int, frozenset[Hashable]]
    keys: set[Hashable] | None
    scans: bool
    """True to read all rows: ``keys`` are many."""
    places: RowPlaces
    rows_of: Callable[[int, Hashable, bytes], Iterable[KeyRow]]

    def __iter__(self) -> Iterator[KeyRow]:
        key_of, stored_key = self.places.keys.key, self.places.stored_key
        rows_of, keys = self.rows_of, self.keys
        for place, data in self._all() if self.scans else self._found():
            number, key = number_of(place), key_of(stored_key(place[HEAD:]))
            if key not in self.resident[number] and (keys is None or key in keys):
                yield from rows_of(number, key, data)

    def _all(self) -> Iterator[tuple[bytes, bytes]]:
        return self.view.items(*self.places.all_bounds())

    def _found(self) -> Iterator[tuple[bytes, bytes]]:
        """Look up the rows of ``keys``."""
        tails = sorted(self.places.tails(self.keys or ()))
        for number in sorted(self.resident):
            head = self.places.head(number)
            for start in range(0, len(tails), _AT_ONCE):
                places = [head + tail for tail in tails[start : start + _AT_ONCE]]
                for place, data in zip(places, self.view.get(places), strict=True):
                    if data is not None:
                        yield place, data
