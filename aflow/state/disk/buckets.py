"""Buckets: the format of the state of keys in the database.

An entry of the database is a *bucket*: all state of the keys with the same canonical encoding, which are equal keys
and, in rare cases (``1`` and ``"1"``), others. So equal keys of different types have one place, and all state of a key
is read and written at once.

    k <canonical key>                           [[stored key, state 0, state 1, …], …] in MessagePack
    t <moment, 8 bytes> <state, 2 bytes> <k …>  empty: rows of the state in that bucket may expire at that moment

States are in the order of their declaration, None without a row. The bytes of a row with a time to live begin with the
moment of its last touch.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from aflow.model.time import Timestamp

Held = list[bytes | None]
"""A stored key and its row of each state; rows of states declared later may be missing at the end."""

BUCKETS: Final = b"k"
BUCKETS_END: Final = b"l"

_DUE: Final = struct.Struct(">cQH")
#: Added to moments, so that those before 1970 are in order too.
_OFFSET: Final = 2**63

encode_bucket: Final = msgspec.msgpack.Encoder().encode
decode_bucket: Final = msgspec.msgpack.Decoder(list[Held]).decode


def expiry_key(moment: Timestamp, state: int, place: bytes) -> bytes:
    """Return the index key of ``state`` of the bucket at ``place``, whose rows may expire at ``moment``."""
    return _DUE.pack(b"t", moment + _OFFSET, state) + place


def expiry_range(moment: Timestamp) -> tuple[bytes, bytes]:
    """Return start and end (exclusive) of the index keys up to ``moment``."""
    return b"t", _DUE.pack(b"t", moment + _OFFSET + 1, 0)


def expiry_target(key: bytes) -> tuple[int, bytes]:
    """Return the state and the place of an index key."""
    return _DUE.unpack_from(key)[2], key[_DUE.size :]


def part(held: Held, state: int) -> bytes | None:
    """Return the row of ``state``; None if there is none."""
    return held[state + 1] if state + 1 < len(held) else None
