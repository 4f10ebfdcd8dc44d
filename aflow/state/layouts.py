"""How the state that a key has under one name becomes bytes: the same for every backend.

A list or map is a msgpack array of separately encoded parts, so that each element has the encoding, and the tolerance
for changed types, that ``of=`` promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN, Codec, CodecError, codec_for

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Layout(Protocol[T]):
    """Bytes of the whole state of one key, and what a reader has to know about them."""

    @property
    def kind(self) -> str:
        """Which kind of state this is: ``value``, ``list``, ``map``, …"""
        ...

    @property
    def codecs(self) -> tuple[str, ...]:
        """The names of the codecs in use."""
        ...

    def encode(self, stored: T) -> bytes:
        """Raises ``CodecError``."""
        ...

    def decode(self, data: bytes) -> T:
        """Raises ``CodecError``."""
        ...


def state_codec(of: type[T] | None) -> Codec[T]:
    """The typed codec of ``of``, or the self-describing one without it. Raises ``FlowDefinitionError``."""
    if of is not None:
        return codec_for(of)
    return cast(
        "Codec[T]", PLAIN
    )  # whether values are plain is checked one by one: encode refuses others


@dataclass(frozen=True, slots=True)
class One(Generic[T]):
    """A single value."""

    kind: str
    codec: Codec[T]

    @property
    def codecs(self) -> tuple[str, ...]:
        return (self.codec.name,)

    def encode(self, stored: T) -> bytes:
        return self.codec.encode(stored)

    def decode(self, data: bytes) -> T:
        return self.codec.decode(data)


@dataclass(frozen=True, slots=True)
class Many(Generic[T]):
    """A list of values."""

    codec: Codec[T]
    kind: str = "list"

    @property
    def name(self) -> str:
        """As the name of a codec, which this is too."""
        return f"a list of {self.codec.name}"

    @property
    def codecs(self) -> tuple[str, ...]:
        return (self.codec.name,)

    def encode(self, stored: list[T]) -> bytes:
        return _join(list(map(self.codec.encode, stored)))

    def decode(self, data: bytes) -> list[T]:
        return list(map(self.codec.decode, _split(data)))


@dataclass(frozen=True, slots=True)
class Pairs(Generic[K, V]):
    """A dict: key, value, key, value, …"""

    key: Codec[K]
    value: Codec[V]
    kind: str = "map"

    @property
    def codecs(self) -> tuple[str, ...]:
        return (self.key.name, self.value.name)

    def encode(self, stored: dict[K, V]) -> bytes:
        pairs = ((self.key.encode(key), self.value.encode(value)) for key, value in stored.items())
        return _join(list(chain.from_iterable(pairs)))

    def decode(self, data: bytes) -> dict[K, V]:
        parts = iter(_split(data))
        decoded = map(self.key.decode, parts)
        return {key: self.value.decode(next(parts)) for key in decoded}


def description(layout: Layout[Any]) -> bytes:
    """What a snapshot says about the bytes of a state."""
    return PLAIN.encode([layout.kind, *layout.codecs])


def check_description(layout: Layout[Any], data: bytes, *, what: str) -> None:
    """Refuse bytes that ``layout`` would misread without noticing: another kind of state, or typed bytes read untyped.

    Typed bytes read by another type are not refused: types may be renamed, and ``decode`` notices what does not fit.
    Raises ``RestoreError``.
    """
    kind, *codecs = cast("list[str]", PLAIN.decode(data))
    if kind != layout.kind:
        raise RestoreError(
            f"{what} is declared as {layout.kind} state, but the snapshot holds {kind} state under that name; "
            f"give the new state another name"
        )
    for stored, declared in zip(codecs, layout.codecs, strict=True):
        if declared == PLAIN.name != stored:
            raise RestoreError(
                f"{what} was stored with of={stored}, and is declared without a type now; declare of={stored} again"
            )


_join: Final = msgspec.msgpack.Encoder().encode
_PARTS: Final = msgspec.msgpack.Decoder(list[bytes])


def _split(data: bytes) -> list[bytes]:
    try:
        return _PARTS.decode(data)
    except msgspec.MsgspecError as exc:
        raise CodecError(f"{len(data)} stored bytes are not a list of parts: {exc}") from exc
