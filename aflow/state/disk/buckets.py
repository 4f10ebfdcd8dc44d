"""How the state of keys stands in the database.

One entry of the database is a *bucket*: all that the keys with one canonical encoding have, which are equal keys and,
in rare cases (``1`` and ``"1"``), others. So equal keys are found however they are written, and a key is read and
written in one go, whatever it has.

    k <canonical key>                           [[stored key, state 0, state 1, …], …] in MessagePack
    t <moment, 8 bytes> <state, 2 bytes> <k …>  empty: look there at that moment, something may be out of date

States are in the order of their declaration, None where the key has nothing. One with a time to live begins with the
moment of its last touch.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from aflow.model.time import Timestamp

Held = list[bytes | None]
"""A stored key and what it has of each state; states declared later may be missing at the end."""

BUCKETS: Final = b"k"
BEHIND_BUCKETS: Final = b"l"

_DUE: Final = struct.Struct(">cQH")
#: So that moments before 1970 too are in order.
_OFFSET: Final = 2**63

encode_bucket: Final = msgspec.msgpack.Encoder().encode
decode_bucket: Final = msgspec.msgpack.Decoder(list[Held]).decode


def due_key(moment: Timestamp, state: int, place: bytes) -> bytes:
    """Under which to note that ``state`` of the bucket at ``place`` is to be looked at."""
    return _DUE.pack(b"t", moment + _OFFSET, state) + place


def due_until(moment: Timestamp) -> tuple[bytes, bytes]:
    """From where to where what is due at ``moment`` is noted."""
    return b"t", _DUE.pack(b"t", moment + _OFFSET + 1, 0)


def due_at(key: bytes) -> tuple[int, bytes]:
    """Of which state at which place to look."""
    return _DUE.unpack_from(key)[2], key[_DUE.size :]


def part(held: Held, state: int) -> bytes | None:
    """What a key has of ``state``."""
    return held[state + 1] if state + 1 < len(held) else None
