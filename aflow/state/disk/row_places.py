"""Database keys of rows in numbered ranges.

    r <number, 9 bytes> <stored key>
    q <number, 9 bytes> <length, 4 bytes> <canonical key> <stored key>

The second form is for steps with equal keys of different bytes (``1`` and ``True``): as for timers, the bytes up to the
canonical key are the *slot* of a key, which all equal keys have.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from aflow.errors import OperatorError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import check_key, encode_key
from aflow.state.keyed_entries import KeyGroupCodec

#: Bytes of a number, for starts of panes before the first timestamp too.
_NUMBER: Final = 9
#: Added to numbers, so that negative ones are in order too.
_OFFSET: Final = 2**70

#: Bytes of a database key before the key.
HEAD: Final = 1 + _NUMBER

_LENGTH: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """The database keys of one operator, with slots or without."""

    key_codec: KeyGroupCodec
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
        try:
            if self.slotted:
                return [_slot(key) + self.key_codec.stored(key) for key in keys]
            return list(map(self.key_codec.stored, keys))
        except CodecError:
            return [self._tail(key) for key in keys]

    def slot(self, number: int, key: Hashable) -> tuple[bytes, bytes]:
        """Return start and end (exclusive) of the slot of a key."""
        slot = self.head(number) + _slot(key)
        kept = slot.rstrip(b"\xff")
        return slot, kept[:-1] + bytes([kept[-1] + 1])

    def stored_key(self, tail: bytes) -> bytes:
        """Return the stored key in the bytes after the head."""
        return tail[self.length_of_slot(tail) :] if self.slotted else tail

    def length_of_slot(self, tail: bytes) -> int:
        """Return the number of bytes in a tail that are the slot."""
        length: int = _LENGTH.unpack_from(tail)[0]
        return _LENGTH.size + length

    def unstorable(self, key: Hashable, cause: CodecError) -> OperatorError:
        """Return the error for a key, or a row of it, that cannot be encoded."""
        operator = self.key_codec.operator
        return OperatorError(
            f"step {operator!r} cannot keep windows on disk for key {shown(key)}: {cause}",
            operator=operator,
            key=key,
        )

    @property
    def _prefix(self) -> bytes:
        return b"q" if self.slotted else b"r"

    def _tail(self, key: Hashable) -> bytes:
        check_key(key)
        try:
            stored = self.key_codec.stored(key)
        except CodecError as exc:
            raise self.unstorable(key, exc) from exc
        return _slot(key) + stored if self.slotted else stored


def number_of(place: bytes) -> int:
    """Return the number of a database key."""
    return int.from_bytes(place[1:HEAD], "big") - _OFFSET


def _slot(key: Hashable) -> bytes:
    canonical = encode_key(key)
    return _LENGTH.pack(len(canonical)) + canonical
