"""Keys in a database: their bytes, the slots in which equal keys are found, and the errors for those without bytes.

A key has its *stored* bytes, those of snapshots, which differ for some equal keys (``1`` and ``True``). Its *slot* is
the same for all equal keys. A slot is no prefix of another one, since it begins with its length.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final

from aflow.errors import OperatorError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import check_key, encode_key, encode_keys
from aflow.state.disk.store import StoreReader
from aflow.state.keyed_entries import KeyGroupCodec

_LENGTH: Final = struct.Struct(">I")


class StoredKeys:
    """Encodes the keys of one operator for its database; ``what`` it keeps there is for messages.

    Raises ``OperatorError`` for a key that cannot be encoded, and ``UnsupportedKey`` for one that cannot be a key.
    """

    def __init__(self, key_codec: KeyGroupCodec, what: str) -> None:
        self._key_codec = key_codec
        self._what = what
        self.keys: Final = key_codec.keys
        """Return the keys of some stored bytes."""
        self.key: Final = key_codec.key
        """Return the key of stored bytes."""

    def stored(self, key: Hashable) -> bytes:
        """Return the stored bytes of a key."""
        try:
            return self._key_codec.stored(key)
        except CodecError as exc:
            check_key(key)
            raise self.unstorable(key, exc) from exc

    def all_stored(self, keys: Sequence[Hashable]) -> list[bytes]:
        """Return the stored bytes of each key."""
        # Hot path: a loop in C.
        try:
            return list(map(self._key_codec.stored, keys))
        except CodecError:
            return list(map(self.stored, keys))

    def unstorable(self, key: Hashable, cause: CodecError) -> OperatorError:
        """Return the error for a key, or for data of it, that cannot be encoded."""
        return unstorable(self._key_codec.operator, self._what, key, cause)


def unstorable(operator: str, what: str, key: Hashable, cause: CodecError) -> OperatorError:
    """Return the error of step ``operator`` for data of ``key`` that cannot be encoded; ``what`` names the data."""
    return OperatorError(
        f"step {operator!r} cannot keep {what} on disk for key {shown(key)}: {cause}",
        operator=operator,
        key=key,
    )


def slot_of(key: Hashable) -> bytes:
    """Return the slot of a key."""
    canonical = encode_key(key)
    return _LENGTH.pack(len(canonical)) + canonical


def slots_of(keys: Collection[Hashable]) -> list[bytes]:
    """Return the slot of each key."""
    pack = _LENGTH.pack
    return [pack(len(canonical)) + canonical for canonical in encode_keys(keys)]


def slot_length(data: bytes, at: int = 0) -> int:
    """Return the length of the slot that begins at index ``at`` of ``data``."""
    length: int = _LENGTH.unpack_from(data, at)[0]
    return _LENGTH.size + length


def after(prefix: bytes) -> bytes:
    """Return the first bytes after all that begin with ``prefix``, whose first byte is not the largest."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def read_sorted(
    reader: StoreReader, places: Iterable[bytes]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Read ``places`` at once, and yield each with its value, None if there is none.

    Databases read faster in the order of their keys.
    """
    in_order = sorted(places)
    return zip(in_order, reader.get(in_order), strict=True)


def keys_of(keys: Iterable[Hashable]) -> list[Hashable]:
    """Return ``keys`` without those that cannot be one."""
    return [key for key in keys if _is_key(key)]


def _is_key(value: Hashable) -> bool:
    try:
        check_key(value)
    except TypeError:
        return False
    return True
