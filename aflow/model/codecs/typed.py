"""Typed encoding: msgpack that is read by the declared type (``of=Payment``)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator
from typing import Final, Generic, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import inspect

from aflow.errors import FlowDefinitionError, shown
from aflow.model.codecs.attribute_names import teach_attribute_names
from aflow.model.codecs.base import Codec, CodecError
from aflow.model.codecs.schema import Schema
from aflow.model.codecs.schema_of import SCALARS, schema_of

T = TypeVar("T")


def codec_for(of: type[T]) -> Codec[T]:
    """Return the codec of type ``of``: dataclass, ``Struct``, TypedDict, NamedTuple, Enum, builtin, standard type.

    Fields are stored by name: a field added with a default and a removed field both load, and in a ``Struct`` a renamed
    one does too, if it declares its old name with ``msgspec.field(name=…)``. NamedTuples are stored by position
    instead, so fields can only be added, with a default, at the end.

    Restored values have the declared type: an ``int`` in a ``float`` field is restored as ``float``, an aware
    ``datetime`` as the same instant in UTC. ``encode`` checks the type of the value itself; the types inside are left
    to the type checker, and a mismatch is an error in ``decode``. Integers go from -2**63 to
    2**64 - 1.

    Raises ``FlowDefinitionError`` for a type with values that could not be restored.
    """
    try:
        described = inspect.type_info(of)
        decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(of)
    except (
        Exception
    ) as exc:  # unresolvable names, contradictory unions, whatever a user's annotation may raise
        raise FlowDefinitionError(f"of={_named(of)} cannot be stored: {exc}") from exc
    for where, part in _parts(described, _named(of)):
        if reason := _reason_to_refuse(part):
            raise FlowDefinitionError(f"of={_named(of)} cannot be stored: {where} {reason}")
        if isinstance(part, inspect.DataclassType):
            kind: type[object] = get_origin(part.cls) or part.cls
            teach_attribute_names(kind, [field.name for field in part.fields])
    return _Typed(of, decoder, described)


class _Typed(Generic[T]):
    """See ``codec_for``."""

    __slots__ = ("_decoder", "_described", "_encode", "_name", "_of", "_schema", "_types")

    def __init__(
        self, of: type[T], decoder: msgspec.msgpack.Decoder[T], described: inspect.Type
    ) -> None:
        self._of = of
        self._name = _named(of)
        self._decoder = decoder
        self._encode = msgspec.msgpack.Encoder().encode
        #: Accepted types of values. A subclass would be restored as its base, without its own fields.
        self._types = frozenset(python_types(described))
        self._described = described
        self._schema: Schema | None = None

    def __reduce__(self) -> tuple[object, ...]:
        # The decoder cannot be pickled. A backfill sends steps, and so codecs, to executors.
        return codec_for, (self._of,)

    @property
    def name(self) -> str:
        return self._name

    @property
    def schema(self) -> Schema:
        """The schema of the bytes, computed at the first access."""
        if self._schema is None:
            self._schema = schema_of(self._described)
        return self._schema

    def encode(self, value: T) -> bytes:
        if type(value) not in self._types:
            raise CodecError(
                f"{shown(value)} has type {type(value).__qualname__}, but of={self._name} was declared; "
                f"declare the type that the values have"
            )
        try:
            return self._encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as exc:
            raise CodecError(f"{shown(value)} cannot be stored as of={self._name}: {exc}") from exc

    def encode_all(self, values: Collection[T]) -> list[bytes]:
        if self._types.issuperset(map(type, values)):
            try:
                return list(map(self._encode, values))
            except Exception:
                pass  # `encode` describes it
        return list(map(self.encode, values))

    @property
    def decode_unguarded(self) -> Callable[[bytes], T]:
        return self._decoder.decode

    def decode(self, data: bytes) -> T:
        try:
            return self._decoder.decode(data)
        except (ValueError, RecursionError, msgspec.MsgspecError) as exc:
            raise CodecError(
                f"{len(data)} stored bytes are not of={self._name}: {exc}; "
                f"a changed type can add fields with defaults and drop fields, nothing else"
            ) from exc


def _named(of: object) -> str:
    return of.__qualname__ if isinstance(of, type) and not get_args(of) else repr(of)


def _parts(root: inspect.Type, name: str) -> Iterator[tuple[str, inspect.Type]]:
    """Yield ``root`` and every type inside it, each with a path for errors; a recursive type once."""
    waiting: list[tuple[str, object]] = [(name, root)]
    seen: set[int] = set()
    while waiting:
        where, part = waiting.pop()
        if isinstance(part, tuple):
            waiting += [(where, item) for item in cast("tuple[object, ...]", part)]
        elif isinstance(part, inspect.Field):
            waiting.append((f"{where}.{part.name}", part.type))
        elif isinstance(part, inspect.Type) and id(part) not in seen:
            seen.add(id(part))
            yield where, part
            fields = [cast("object", getattr(part, field)) for field in part.__struct_fields__]
            waiting += [
                (where, value) for value in fields if isinstance(value, (tuple, inspect.Type))
            ]


def _reason_to_refuse(part: inspect.Type) -> str | None:
    """Return the reason for which values of ``part`` would not be restored exactly, or None."""
    if isinstance(part, inspect.AnyType) or (
        isinstance(part, inspect.CustomType) and part.cls is object
    ):
        return (
            "may hold anything, so a tuple would be restored as a list; declare the types inside, "
            "for instance dict[str, float], or omit `of` for values of plain Python types"
        )
    if isinstance(part, inspect.CustomType):
        return f"has type {_named(part.cls)}, which has no encoding; make it a dataclass, or ask for PICKLE"
    if isinstance(part, inspect.EnumType) and issubclass(part.cls, enum.Flag):
        return f"has type {_named(part.cls)}, whose combinations have no encoding; store its .value as an int"
    if not python_types(part):
        return f"has a type without an encoding ({type(part).__name__}); use a builtin type or a dataclass"
    return None


#: The Python types of each description that has no class of its own. Other descriptions are refused.
_BUILTIN: Final[dict[type[inspect.Type], tuple[type, ...]]] = {
    **{kind: types for kind, (_, types) in SCALARS.items()},
    inspect.ListType: (list,),
    inspect.VarTupleType: (tuple,),
    inspect.TupleType: (tuple,),
    inspect.SetType: (set,),
    inspect.FrozenSetType: (frozenset,),
    inspect.DictType: (dict,),
    inspect.TypedDictType: (dict,),
}
_WITH_CLASS: Final = (
    inspect.EnumType,
    inspect.NamedTupleType,
    inspect.DataclassType,
    inspect.StructType,
)


def python_types(part: inspect.Type) -> set[type]:
    """Return the types of values that ``part`` describes; empty if they are refused."""
    if isinstance(part, inspect.Metadata):
        return python_types(part.type)
    if isinstance(part, inspect.UnionType):
        return {kind for option in part.types for kind in python_types(option)}
    if isinstance(part, inspect.LiteralType):
        return {type(value) for value in part.values}
    if isinstance(part, _WITH_CLASS):
        return {get_origin(part.cls) or part.cls}
    return set(_BUILTIN.get(type(part), ()))
