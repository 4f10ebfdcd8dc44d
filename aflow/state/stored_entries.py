"""Entries of a snapshot as bytes, decoded one frame at a time.

Theory. An entry takes some 200 bytes as a tuple of two ``bytes`` objects, and some 30 in a part file; and it takes time
to release a million tuples. So a snapshot that was read from files refers to the bytes of their frames, each of some
thousand entries, and a reader decodes one frame at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeAlias, TypeVar, cast, overload

import msgspec

T = TypeVar("T")

Entry: TypeAlias = tuple[bytes, bytes]
"""An encoded key and an encoded value."""

Entries: TypeAlias = Sequence[Entry]
"""Entries of one name in one key group."""

#: Maximum of entries in a piece, after which a reader may yield: most take 1 to 5 µs each.
PIECE: Final = 256
#: Bytes of a piece of stored entries, if the entries of a frame have about the same size.
_BYTES: Final = 1 << 15

_decode: Final = msgspec.msgpack.Decoder(tuple[Entry, ...]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class Frame:
    """Entries as a MessagePack array, which was checked when it was read."""

    __slots__ = ("_count", "stored")

    def __init__(self, stored: msgspec.Raw) -> None:
        self.stored: Final = stored
        self._count: Final = _length(stored)

    def decoded(self) -> Entries:
        """Return the entries."""
        return _decode(self.stored)

    def __len__(self) -> int:
        return self._count


def _length(array: msgspec.Raw) -> int:
    """Return the number of items of a MessagePack array, from its header."""
    head = bytes(memoryview(array)[:5])
    match head[0]:
        case 0xDC:
            return int.from_bytes(head[1:3], "big")
        case 0xDD:
            return int.from_bytes(head[1:5], "big")
        case short:
            return short & 0x0F


class StoredEntries(Sequence[Entry]):
    """Entries in frames. Each iteration decodes the frames again; an index decodes all of them."""

    __slots__ = ("frames",)

    def __init__(self, frames: Iterable[Frame]) -> None:
        self.frames: Final = tuple(frames)

    def selected(self, select: Callable[[Entries], Entries]) -> StoredEntries:
        """Return the entries that ``select`` returns of those of each frame."""
        frames: list[Frame] = []
        for frame in self.frames:
            valid = select(frame.decoded())
            if len(valid) == len(frame):
                frames.append(frame)
            elif valid:
                frames.append(_frame_of(valid))
        return StoredEntries(frames)

    def __iter__(self) -> Iterator[Entry]:
        return chain.from_iterable(frame.decoded() for frame in self.frames)

    def __len__(self) -> int:
        return sum(map(len, self.frames))

    def __bool__(self) -> bool:
        return any(map(len, self.frames))

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Entries: ...
    def __getitem__(self, index: int | slice) -> Entry | Entries:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        """Return True for any sequence of the same entries."""
        if not isinstance(other, tuple | list | StoredEntries):
            return NotImplemented
        return tuple(self) == tuple(cast("Entries", other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StoredEntries({tuple(self)!r})"


def joined(pieces: Sequence[Entries]) -> Entries:
    """Return the entries of all ``pieces``, which are not decoded."""
    if len(pieces) == 1:
        return pieces[0]
    if not any(isinstance(some, StoredEntries) for some in pieces):
        return tuple(chain.from_iterable(pieces))
    return StoredEntries(
        chain.from_iterable(
            some.frames if isinstance(some, StoredEntries) else (_frame_of(some),)
            for some in pieces
        )
    )


def _frame_of(entries: Entries) -> Frame:
    return Frame(msgspec.Raw(_encode(entries)))


def in_pieces(entries: Entries) -> Iterator[Entries]:
    """Yield ``entries`` in pieces of at least one and at most ``PIECE``; fewer if they are large."""
    if not isinstance(entries, StoredEntries):
        yield from _divided(entries, PIECE)
        return
    for frame in entries.frames:
        most = len(frame) * _BYTES // memoryview(frame.stored).nbytes
        yield from _divided(frame.decoded(), max(1, min(PIECE, most)))


def _divided(entries: Entries, most: int) -> Iterator[Entries]:
    for at in range(0, len(entries), most):
        yield entries[at : at + most]


def batched(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield ``items`` in lists of up to ``PIECE``."""
    left = iter(items)
    while some := list(islice(left, PIECE)):
        yield some
