"""What every codec does, and how it fails."""

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
        """What errors call it."""
        ...

    def encode(self, value: T, /) -> bytes:
        """The bytes of ``value``. Raises ``CodecError``."""
        ...

    def decode(self, data: bytes, /) -> T:
        """The value that ``data`` was made from. Raises ``CodecError``."""
        ...
