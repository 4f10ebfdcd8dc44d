"""How the state that a key has under one name becomes bytes: the same for every backend.

A list or map is a msgpack array of separately encoded parts, so that each element has the encoding, and the tolerance
for changed types, that ``of=`` promises.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from aflow.errors import FlowDefinitionError, RestoreError, shown
from aflow.model.codecs import PLAIN, Codec, CodecError, Schema, codec_for
from aflow.state.descriptions import Described, Description, compare_descriptions
from aflow.state.schema_change import Incompatible

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
    def codecs(self) -> tuple[Codec[Any], ...]:
        """The codecs in use."""
        ...

    def encode(self, stored: T) -> bytes:
        """Raises ``CodecError``."""
        ...

    def decode(self, data: bytes) -> T:
        """Raises ``CodecError``."""
        ...


def state_codec(of: type[T] | None, codec: Codec[T] | None = None) -> Codec[T]:
    """The typed codec of ``of``, or ``codec``, or the self-describing one without either.

    Raises ``FlowDefinitionError``, also for both.
    """
    if codec is not None:
        return _checked(codec, of)
    if of is not None:
        return codec_for(of)
    return cast(
        "Codec[T]", PLAIN
    )  # whether values are plain is checked one by one: encode refuses others


def _checked(codec: Codec[T], of: type[T] | None) -> Codec[T]:
    if of is not None:
        raise FlowDefinitionError(
            f"of={shown(of)} and codec={shown(codec)} both say how values are stored; leave one of them out"
        )
    usable = all(callable(getattr(codec, name, None)) for name in ("encode", "decode"))
    if isinstance(codec, type) or not usable or not isinstance(getattr(codec, "name", None), str):
        raise FlowDefinitionError(
            f"codec={shown(codec)} is no Codec, which has encode, decode and name; for instance Pickled[Model]()"
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
    def codecs(self) -> tuple[Codec[Any], ...]:
        return (self.codec,)

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
    def codecs(self) -> tuple[Codec[Any], ...]:
        return (self.key, self.value)

    def encode(self, stored: dict[K, V]) -> bytes:
        pairs = ((self.key.encode(key), self.value.encode(value)) for key, value in stored.items())
        return _join(list(chain.from_iterable(pairs)))

    def decode(self, data: bytes) -> dict[K, V]:
        parts = iter(_split(data))
        decoded = map(self.key.decode, parts)
        return {key: self.value.decode(next(parts)) for key in decoded}


def described(layout: Layout[Any]) -> Description:
    """The kind of a state, and how its parts are stored, schemas included where codecs have one."""
    return Description(
        layout.kind, tuple(Described(one.name, _schema_of(one)) for one in layout.codecs)
    )


def description(layout: Layout[Any]) -> bytes:
    """What a snapshot says about the bytes of a state."""
    return described(layout).encoded()


class Declared(Protocol):
    """A declaration of state, whatever its kind."""

    @property
    def name(self) -> str: ...

    def layout(self) -> Layout[Any]: ...


def descriptions(states: Iterable[Declared]) -> dict[str, bytes]:
    """What snapshots are going to say about each of ``states``, by name."""
    return {state.name: description(state.layout()) for state in states}


def check_description(layout: Layout[Any], data: bytes, *, what: str) -> None:
    """Refuse bytes that ``layout`` cannot read, or would misread without noticing, before any of them is read.

    Where one side has no schema (older snapshots, values without ``of=``) only another kind of state is refused, and
    typed bytes read untyped: ``decode`` notices what else does not fit. Raises ``RestoreError``.
    """
    declared = described(layout)
    try:
        stored = Description.decoded(data)
    except CodecError as exc:
        raise RestoreError(f"what the snapshot says about {what} cannot be read: {exc}") from exc
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
    """That of a codec that has one; codecs of users need none."""
    schema: object = getattr(codec, "schema", None)
    return schema if isinstance(schema, Schema) else None


def _short(one: Description) -> str:
    text = str(one)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


#: A type is shown in an error up to this many characters.
_SHOWN: Final = 400

_join: Final = msgspec.msgpack.Encoder().encode
_PARTS: Final = msgspec.msgpack.Decoder(list[bytes])


def _split(data: bytes) -> list[bytes]:
    try:
        return _PARTS.decode(data)
    except msgspec.MsgspecError as exc:
        raise CodecError(f"{len(data)} stored bytes are not a list of parts: {exc}") from exc
