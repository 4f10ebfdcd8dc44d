"""Self-describing encoding of records whose type nobody has declared: plain values, and objects that are their fields.

What ``PLAIN`` stores is stored in the same way. Instances of dataclasses, named tuples, msgspec Structs and enums are
msgpack extensions, by codes that never change, of ``[module:qualified name, fields …]``:

==  ===========  ==================================================================
32  dataclass    the values of its fields, in order, and None or a dict of what else stands in its ``__dict__``
33  named tuple  its items
34  Struct       the values of its fields, in order
35  enum         the name of the member
==  ===========  ==================================================================

Decoding imports the module and accepts nothing but a class of that kind, so no code runs but that of the module, and
the ``__post_init__`` of Structs. Dataclasses and named tuples are put together field by field, without ``__init__``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, MutableMapping
from enum import Enum
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec.msgpack import Ext

from aflow.errors import shown
from aflow.model.codecs.base import Codec, CodecError
from aflow.model.codecs.plain import DICT, FROZENSET, SET, TUPLE, Packer, paired, unpack

_DATACLASS, _NAMED_TUPLE, _STRUCT, _ENUM = range(32, 36)

_encode: Final = msgspec.msgpack.Encoder().encode
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})


class _Records:
    """See ``RECORDS``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "records"

    def encode(self, value: object) -> bytes:
        try:
            return _encode(_PACKER.pack(value))
        except OverflowError:
            return self._encode_large_ints(value)
        except (ValueError, RecursionError, AttributeError) as exc:
            raise _unstorable(value, exc) from exc

    def decode(self, data: bytes) -> object:
        try:
            return _decode(data)
        except Exception as exc:  # damaged bytes, and modules of users
            raise CodecError(f"{len(data)} stored bytes are no records: {exc}") from exc

    def _encode_large_ints(self, value: object) -> bytes:
        try:
            return _encode(_CAREFUL.pack(value))
        except (ValueError, RecursionError, AttributeError) as exc:
            raise _unstorable(value, exc) from exc


class _RecordPacker(Packer):
    """Packs objects by their fields, and the rest as ``PLAIN`` does."""

    __slots__ = ()

    def unknown(self, value: object) -> object:
        kind = type(value)
        pack = _PACKING.get(kind)
        if pack is None:
            pack = _PACKING[kind] = _packing(kind)
        return pack(self, value)


#: How instances of each class that was seen are packed; a class that is no more in use is forgotten.
_PACKING: Final[MutableMapping[type, Callable[[_RecordPacker, Any], Ext]]] = WeakKeyDictionary()

_PACKER: Final = _RecordPacker(_SCALARS)
_CAREFUL: Final = _RecordPacker(_SCALARS - {int})


def _packing(kind: type) -> Callable[[_RecordPacker, Any], Ext]:
    """How instances of ``kind`` are packed. Raises ``CodecError`` for a type that is not its fields."""
    name = _name_of(kind)
    if issubclass(kind, Enum):
        return lambda packer, value: Ext(_ENUM, _encode([name, value.name]))
    if issubclass(kind, msgspec.Struct):
        return _packing_fields(_STRUCT, name, kind.__struct_fields__)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return lambda packer, value: Ext(
            _NAMED_TUPLE, _encode([name, *map(packer.pack, cast("tuple[object, ...]", value))])
        )
    if dataclasses.is_dataclass(kind):
        return _packing_dataclass(name, kind)
    raise CodecError(
        f"{kind.__module__}.{kind.__qualname__} is neither a plain Python type nor a dataclass, NamedTuple, Struct or "
        f"enum; make it one of them, or choose Unaligned(pickle=True)"
    )


def _packing_fields(
    code: int, name: str, fields: tuple[str, ...]
) -> Callable[[_RecordPacker, Any], Ext]:
    def pack(packer: _RecordPacker, value: object) -> Ext:
        return Ext(code, _encode([name, *[packer.pack(getattr(value, field)) for field in fields]]))

    return pack


def _packing_dataclass(name: str, kind: type) -> Callable[[_RecordPacker, Any], Ext]:
    fields = _field_names(kind)

    def pack(packer: _RecordPacker, value: object) -> Ext:
        values = [packer.pack(getattr(value, field)) for field in fields]
        more = {
            key: held for key, held in getattr(value, "__dict__", {}).items() if key not in fields
        }
        return Ext(_DATACLASS, _encode([name, *values, packer.pack(more) if more else None]))

    return pack


@lru_cache(maxsize=1024)
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _name_of(kind: type) -> str:
    """``module:qualified name``, by which the class will be found. Raises ``CodecError`` if it will not."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    found: object = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not kind:
        raise CodecError(
            f"{name} cannot be found by its name when it is read; define the class at the top of a module, or choose "
            f"Unaligned(pickle=True)"
        )
    return name


@lru_cache(maxsize=1024)
def _class_of(name: str) -> type:
    module, _, qualified = name.partition(":")
    found: object = import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise CodecError(f"{name} is no class")
    return found


def _unpack(code: int, data: memoryview) -> object:
    if (container := _CONTAINERS.get(code)) is not None:
        return container(cast("list[object]", _decode(data)))
    if (rebuild := _REBUILD.get(code)) is not None:
        name, *parts = cast("list[Any]", _decode(data))
        return rebuild(_class_of(name), parts)
    return unpack(code, data)


_decode: Final = msgspec.msgpack.Decoder(ext_hook=_unpack).decode

#: As in ``PLAIN``, but what is in them may be records.
_CONTAINERS: Final[dict[int, Callable[[list[object]], object]]] = {
    TUPLE: tuple,
    SET: set,
    FROZENSET: frozenset,
    DICT: paired,
}


def _dataclass(kind: type, parts: list[Any]) -> object:
    *values, more = parts
    if not dataclasses.is_dataclass(kind):
        raise CodecError(f"{kind.__qualname__} is no dataclass any more")
    fields = _field_names(kind)
    if len(fields) != len(values):
        raise CodecError(f"{kind.__qualname__} has other fields now: {', '.join(fields)}")
    made: Any = object.__new__(kind)
    for field, value in zip(fields, values, strict=True):
        object.__setattr__(made, field, value)
    for field, value in (more or {}).items():
        object.__setattr__(made, field, value)
    return made


def _named_tuple(kind: type, parts: list[Any]) -> object:
    if not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise CodecError(f"{kind.__qualname__} is no named tuple any more")
    if len(parts) != len(cast("Any", kind)._fields):
        raise CodecError(f"{kind.__qualname__} has other fields now")
    return tuple.__new__(kind, parts)


def _struct(kind: type, parts: list[Any]) -> object:
    if not issubclass(kind, msgspec.Struct):
        raise CodecError(f"{kind.__qualname__} is no Struct any more")
    fields = kind.__struct_fields__
    if len(fields) != len(parts):
        raise CodecError(f"{kind.__qualname__} has other fields now: {', '.join(fields)}")
    return kind(**dict(zip(fields, parts, strict=True)))


def _enum(kind: type, parts: list[Any]) -> object:
    if not issubclass(kind, Enum):
        raise CodecError(f"{kind.__qualname__} is no enum any more")
    return kind[parts[0]]


_REBUILD: Final[dict[int, Callable[[type, list[Any]], object]]] = {
    _DATACLASS: _dataclass,
    _NAMED_TUPLE: _named_tuple,
    _STRUCT: _struct,
    _ENUM: _enum,
}


def _unstorable(value: object, cause: Exception) -> CodecError:
    why = (
        "it is nested too deeply, or contains itself"
        if isinstance(cause, RecursionError)
        else str(cause)
    )
    return CodecError(f"{shown(value)} cannot be stored: {why}")


#: Plain values, and instances of dataclasses, named tuples, Structs and enums that are defined at the top of a module
#: (or in a class there); they come back equal, type for type. All else is refused with ``CodecError``.
RECORDS: Final[Codec[object]] = _Records()
