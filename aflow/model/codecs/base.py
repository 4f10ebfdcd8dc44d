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


def decode_all(codec: Codec[T], stored: Iterable[bytes]) -> list[T]:
    """Return ``decode`` of each. Raises ``CodecError`` as ``decode`` does.

    A codec may have an attribute ``decode_unguarded``: as ``decode``, but with other errors. It saves a Python call for
    each value, which is most of the time of a restore.
    """
    stored = list(stored)
    unguarded = getattr(codec, "decode_unguarded", None)
    if unguarded is not None:
        try:
            return list(map(cast("Callable[[bytes], T]", unguarded), stored))
        except Exception:
            pass  # `decode` describes it
    return list(map(codec.decode, stored))
