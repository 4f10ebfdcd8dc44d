"""The interface of codecs, and their error."""

from __future__ import annotations

from typing import Protocol, TypeVar

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
