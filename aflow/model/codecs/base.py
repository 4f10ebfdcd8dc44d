"""The interface of codecs, and their error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol, TypeVar, cast

from aflow.errors import AflowError

T = TypeVar("T")


class CodecError(AflowError, ValueError):
    """A value could not be turned into bytes, or bytes not into a value; the message names the codec and the reason."""


class Codec(Protocol[T]):
    """Turns values into bytes and back; ``decode(encode(value))`` equals ``value``. Keeps no state between calls."""

    @property
    def name(self) -> str:
        """Its name in errors."""
        ...

    def encode(self, value: T, /) -> bytes:
        """Return the bytes of ``value``. Raises ``CodecError``."""
        ...

    def decode(self, data: bytes, /) -> T:
        """Return the value that ``data`` was made from. Raises ``CodecError``."""
        ...


def encode_all(codec: Codec[T], values: Collection[T]) -> list[bytes]:
    """Return ``encode`` of each. Raises ``CodecError`` as ``encode`` does.

    A codec may have an attribute ``encode_all``, a function that does it in fewer Python calls.
    """
    own = getattr(codec, "encode_all", None)
    if own is not None:
        return cast("Callable[[Collection[T]], list[bytes]]", own)(values)
    return list(map(codec.encode, values))


def unguarded_decoder(codec: Codec[T]) -> Callable[[bytes], T]:
    """Return ``decode``, or ``decode_unguarded`` if the codec has it: as ``decode``, but with other errors.

    It saves a Python call for each value. After an error call ``decode``, which describes it.
    """
    unguarded = getattr(codec, "decode_unguarded", None)
    return codec.decode if unguarded is None else cast("Callable[[bytes], T]", unguarded)


def decode_all(codec: Codec[T], stored: Iterable[bytes]) -> list[T]:
    """Return ``decode`` of each. Raises ``CodecError`` as ``decode`` does."""
    stored = list(stored)
    decode = unguarded_decoder(codec)
    try:
        return list(map(decode, stored))
    except Exception:
        if decode == codec.decode:
            raise
        return list(map(codec.decode, stored))  # describes the error
