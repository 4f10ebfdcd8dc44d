"""Database keys of rows in numbered ranges.

    r <number, 9 bytes> <stored key>
    q <number, 9 bytes> <slot> <stored key>

The second form is for steps with equal keys of different bytes (``1`` and ``True``), which have one slot; see
``stored_keys``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from aflow.state.disk.stored_keys import StoredKeys, after, slot_length, slot_of, slots_of

#: Bytes of a number, for starts of panes before the first timestamp too.
_NUMBER: Final = 9
#: Added to numbers, so that negative ones are in order too.
_OFFSET: Final = 2**70

#: Bytes of a database key before the key.
HEAD: Final = 1 + _NUMBER


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """The database keys of one operator, with slots or without."""

    keys: StoredKeys
    slotted: bool = False

    def head(self, number: int) -> bytes:
        """Return the first bytes of the database keys of a number."""
        return self._prefix + (number + _OFFSET).to_bytes(_NUMBER, "big")

    def bounds(self, number: int) -> tuple[bytes, bytes]:
        """Return start and end (exclusive) of the range of a number."""
        return self.head(number), self.head(number + 1)

    def all_bounds(self) -> tuple[bytes, bytes]:
        """Return start and end (exclusive) of the ranges of all numbers."""
        return self._prefix, bytes([self._prefix[0] + 1])

    def tails(self, keys: Iterable[Hashable]) -> list[bytes]:
        """Return the bytes of each key after the head. Raises ``OperatorError`` for a key that cannot be stored."""
        keys = list(keys)
        stored = self.keys.all_stored(keys)
        if self.slotted:
            return [slot + data for slot, data in zip(slots_of(keys), stored, strict=True)]
        return stored

    def slot(self, number: int, key: Hashable) -> tuple[bytes, bytes]:
        """Return start and end (exclusive) of the slot of a key."""
        slot = self.head(number) + slot_of(key)
        return slot, after(slot)

    def stored_key(self, tail: bytes) -> bytes:
        """Return the stored key in the bytes after the head."""
        return tail[slot_length(tail) :] if self.slotted else tail

    @property
    def _prefix(self) -> bytes:
        return b"q" if self.slotted else b"r"


def number_of(place: bytes) -> int:
    """Return the number of a database key."""
    return int.from_bytes(place[1:HEAD], "big") - _OFFSET
