"""Layouts: the encoding of the state of one key under one name, the same for all backends.

A list or map is a msgpack array of separately encoded parts, so that each element has the encoding of ``of=`` and its
tolerance for changed types.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from aflow.errors import FlowDefinitionError, RestoreError, shown
from aflow.model.codecs import PLAIN, Codec, CodecError, Schema, codec_for, decode_all, encode_all
from aflow.state.descriptions import Described, Description, compare_descriptions
from aflow.state.schema_change import Incompatible

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Layout(Protocol[T]):
    """Encoding of the state of one key, with the data that a reader needs."""

    @property
    def kind(self) -> str:
        """Kind of state: ``value``, ``list``, ``map``, …"""
        ...

    @property
    def codecs(self) -> tuple[Codec[Any], ...]:
        """The codecs of its parts."""
        ...

    def encode(self, stored: T) -> bytes:
        """Return the bytes of ``stored``. Raises ``CodecError``."""
        ...

    def encode_all(self, stored: Collection[T]) -> list[bytes]:
        """Return the bytes of the states of many keys. Raises ``CodecError``."""
        ...

    def decode(self, data: bytes) -> T:
        """Return the state that was encoded as ``data``. Raises ``CodecError``."""
        ...

    def decode_all(self, stored: Sequence[bytes]) -> list[T]:
        """Return the states of many keys. Raises ``CodecError``."""
        ...


def state_codec(of: type[T] | None, codec: Codec[T] | None = None) -> Codec[T]:
    """Return the typed codec of ``of``, or ``codec``, or the self-describing codec if both are None.

    Raises ``FlowDefinitionError`` for unsupported types and if both are given.
    """
    if codec is not None:
        return _checked(codec, of)
    if of is not None:
        return codec_for(of)
    return cast("Codec[T]", PLAIN)  # encode refuses each value that is not plain


def _checked(codec: Codec[T], of: type[T] | None) -> Codec[T]:
    if of is not None:
        raise FlowDefinitionError(
            f"of={shown(of)} and codec={shown(codec)} both define how values are stored; omit one of them"
        )
    usable = all(callable(getattr(codec, name, None)) for name in ("encode", "decode"))
    if isinstance(codec, type) or not usable or not isinstance(getattr(codec, "name", None), str):
        raise FlowDefinitionError(
            f"codec={shown(codec)} must be a Codec with encode, decode and name, for instance Pickled[Model]()"
        )
    return codec


@dataclass(frozen=True, slots=True)
class One(Generic[T]):
    """A single value."""

    kind: str
    codec: Codec[T]

    @property
    def codecs(self) -> tuple[Codec[Any], ...]:
        return (self.codec,)

    def encode(self, stored: T) -> bytes:
        return self.codec.encode(stored)

    def encode_all(self, stored: Collection[T]) -> list[bytes]:
        return encode_all(self.codec, stored)

    def decode(self, data: bytes) -> T:
        return self.codec.decode(data)

    def decode_all(self, stored: Sequence[bytes]) -> list[T]:
        return decode_all(self.codec, stored)


@dataclass(frozen=True, slots=True)
class Many(Generic[T]):
    """A list of values."""

    codec: Codec[T]
    kind: str = "list"

    @property
    def name(self) -> str:
        """Name as a codec, which this is too."""
        return f"a list of {self.codec.name}"

    @property
    def codecs(self) -> tuple[Codec[Any], ...]:
        return (self.codec,)

    def encode(self, stored: list[T]) -> bytes:
        return _join(list(map(self.codec.encode, stored)))

    def encode_all(self, stored: Collection[list[T]]) -> list[bytes]:
        return list(map(self.encode, stored))

    def decode(self, data: bytes) -> list[T]:
        return list(map(self.codec.decode, _split(data)))

    def decode_all(self, stored: Sequence[bytes]) -> list[list[T]]:
        return list(map(self.decode, stored))


@dataclass(frozen=True, slots=True)
class Pairs(Generic[K, V]):
    """A dict, as key, value, key, value, …"""

    key: Codec[K]
    value: Codec[V]
    kind: str = "map"

    @property
    def codecs(self) -> tuple[Codec[Any], ...]:
        return (self.key, self.value)

    def encode(self, stored: dict[K, V]) -> bytes:
        pairs = ((self.key.encode(key), self.value.encode(value)) for key, value in stored.items())
        return _join(list(chain.from_iterable(pairs)))

    def encode_all(self, stored: Collection[dict[K, V]]) -> list[bytes]:
        return list(map(self.encode, stored))

    def decode(self, data: bytes) -> dict[K, V]:
        parts = iter(_split(data))
        decoded = map(self.key.decode, parts)
        return {key: self.value.decode(next(parts)) for key in decoded}

    def decode_all(self, stored: Sequence[bytes]) -> list[dict[K, V]]:
        return list(map(self.decode, stored))


def described(layout: Layout[Any]) -> Description:
    """Return the description of a state: its kind, and the codecs and schemas of its parts."""
    return Description(
        layout.kind, tuple(Described(one.name, _schema_of(one)) for one in layout.codecs)
    )


def description(layout: Layout[Any]) -> bytes:
    """Return the encoded description of a state for a snapshot."""
    return described(layout).encoded()


class Declared(Protocol):
    """A declaration of state of any kind."""

    @property
    def name(self) -> str: ...

    def layout(self) -> Layout[Any]: ...


def descriptions(states: Iterable[Declared]) -> dict[str, bytes]:
    """Return the encoded description of each of ``states`` by name."""
    return {state.name: description(state.layout()) for state in states}


def check_description(layout: Layout[Any], data: bytes, *, what: str) -> None:
    """Raise ``RestoreError`` if ``layout`` cannot read bytes of the description ``data``, or would misread them.

    If one side has no schema (older snapshots, values without ``of=``), only another kind of state and reading typed
    bytes without a type are refused: ``decode`` raises for all else. ``what`` names the state in errors.
    """
    declared = described(layout)
    try:
        stored = Description.decoded(data)
    except CodecError as exc:
        raise RestoreError(
            f"the description of {what} in the snapshot cannot be read: {exc}"
        ) from exc
    if stored.kind != declared.kind:
        raise RestoreError(
            f"{what} is declared as {declared.kind} state, but the snapshot holds {stored.kind} state under that name; "
            f"give the new state another name"
        )
    verdict = compare_descriptions(stored, declared)
    if isinstance(verdict, Incompatible):
        raise RestoreError(
            f"{what} was stored as {_short(stored)}, and is declared as {_short(declared)}: {verdict.reason}. "
            f"Fields may be added with defaults and dropped, types widened; otherwise declare the former type again, "
            f"or give the new state another name"
        )


def _schema_of(codec: Codec[Any]) -> Schema | None:
    """Return the schema of a codec, None without one: codecs of users need none."""
    schema: object = getattr(codec, "schema", None)
    return schema if isinstance(schema, Schema) else None


def _short(one: Description) -> str:
    text = str(one)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


#: Maximal length of a type in an error.
_SHOWN: Final = 400

_join: Final = msgspec.msgpack.Encoder().encode
_PARTS: Final = msgspec.msgpack.Decoder(list[bytes])


def _split(data: bytes) -> list[bytes]:
    try:
        return _PARTS.decode(data)
    except msgspec.MsgspecError as exc:
        raise CodecError(f"{len(data)} stored bytes are not a list of parts: {exc}") from exc
