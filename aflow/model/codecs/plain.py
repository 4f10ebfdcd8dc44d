"""Self-describing encoding of plain Python values, exact in their types.

The bytes are msgpack. Whatever msgpack has no type for is an extension, by these codes, which never change:

==  ===========  =======================================================================
 1  int          outside -2**63 .. 2**64 - 1: two's complement, big-endian, fewest bytes
 2  tuple        msgpack array of the items
 3  set          msgpack array of the items, in no particular order
 4  frozenset    likewise
 5  dict         with keys that msgpack would change: msgpack array k1, v1, k2, v2, …
 6  datetime     msgpack array of ISO 8601 text without zone; fold; zone, which is None, microseconds east
              of UTC, an array of those and a name, or an IANA name
 7  date         ISO 8601 text
 8  timedelta    microseconds, in the form of extension 1
 9  Decimal      text of ``str``
10  UUID         16 bytes
==  ===========  =======================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec.msgpack import Ext

from aflow.errors import shown
from aflow.model.codecs.base import Codec, CodecError

_INT, TUPLE, SET, FROZENSET, DICT, _DATETIME, _DATE, _TIMEDELTA, _DECIMAL, _UUID = range(1, 11)

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_MICROSECOND: Final = timedelta(microseconds=1)
_ZONE_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")

_encode: Final = msgspec.msgpack.Encoder().encode


class _Plain:
    """See ``PLAIN``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "plain values"

    def encode(self, value: object) -> bytes:
        try:
            # Hot path: a scalar is passed directly to C, and so is a flat list or dict after one check of its types.
            return _encode(value if type(value) in _SCALARS else _TRUSTING.pack(value))
        except OverflowError:
            return self._encode_large_ints(value)
        except (ValueError, RecursionError) as exc:
            raise unstorable(value, exc) from exc

    @property
    def decode_unguarded(self) -> Callable[[bytes], object]:
        return _decode

    def decode(self, data: bytes) -> object:
        try:
            return _decode(data)
        except (
            Exception
        ) as exc:  # damaged bytes reach the constructors of Decimal, datetime, ZoneInfo, …
            raise CodecError(f"{len(data)} stored bytes are not a plain value: {exc}") from exc

    def _encode_large_ints(self, value: object) -> bytes:
        try:
            return _encode(_CAREFUL.pack(value))
        except (ValueError, RecursionError) as exc:
            raise unstorable(value, exc) from exc


class Packer:
    """Replaces values inside a value that msgpack would change by extensions; ``native`` types are kept."""

    __slots__ = ("_native",)

    def __init__(self, native: frozenset[type]) -> None:
        self._native = native

    def pack(self, value: object) -> object:
        kind = type(value)
        if kind in self._native:
            return value
        if (container := _CONTAINERS.get(kind)) is not None:
            return container(self, value)
        if (leaf := _LEAVES.get(kind)) is not None:
            return leaf(value)
        return self.unknown(value)

    def unknown(self, value: object) -> object:
        """Return the replacement of a value of no plain type. Raises ``CodecError``."""
        raise CodecError(_advice(value))

    def of_list(self, value: list[object]) -> object:
        return value if self._native.issuperset(map(type, value)) else self.items(value)

    def of_dict(self, value: dict[object, object]) -> object:
        if not self._native.issuperset(map(type, value)):
            return Ext(DICT, _encode(self.items(part for item in value.items() for part in item)))
        if self._native.issuperset(map(type, value.values())):
            return value
        return {key: self.pack(held) for key, held in value.items()}

    def of_tuple(self, value: Iterable[object]) -> object:
        return Ext(TUPLE, _encode(self.items(value)))

    def of_set(self, value: Iterable[object]) -> object:
        return Ext(SET, _encode(self.items(value)))

    def of_frozenset(self, value: Iterable[object]) -> object:
        return Ext(FROZENSET, _encode(self.items(value)))

    def items(self, values: Iterable[object]) -> object:
        """Return the replacement of a list of ``values``."""
        return [self.pack(value) for value in values]


#: Assumes that an int fits msgpack, which raises OverflowError if not; then the careful one checks each.
_TRUSTING: Final = Packer(_SCALARS)
_CAREFUL: Final = Packer(_SCALARS - {int})

_CONTAINERS: Final[dict[type, Callable[[Packer, Any], object]]] = {
    list: Packer.of_list,
    dict: Packer.of_dict,
    tuple: Packer.of_tuple,
    set: Packer.of_set,
    frozenset: Packer.of_frozenset,
}


def _int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _int_from(data: memoryview) -> int:
    return int.from_bytes(data, "big", signed=True)


def _pack_int(value: int) -> object:
    return value if -(2**63) <= value < 2**64 else Ext(_INT, _int_bytes(value))


def _pack_datetime(value: datetime) -> Ext:
    wall_clock = value.replace(tzinfo=None, fold=0).isoformat()
    return Ext(_DATETIME, _encode([wall_clock, value.fold, _zone(value)]))


def _zone(value: datetime) -> object:
    """Return None, microseconds east of UTC, those and a name, or the IANA name."""
    zone = value.tzinfo
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key:
        return zone.key
    offset, name = _fixed_offset(zone, value)
    if offset is None:
        raise CodecError(
            f"{shown(value)} cannot be stored: its zone is a {type(zone).__module__}.{type(zone).__qualname__}, which "
            f"has no fixed offset; use a ZoneInfo of IANA name, or .astimezone(UTC)"
        )
    east = offset // _MICROSECOND
    return east if not name or name == timezone(offset).tzname(None) else [east, name]


def _fixed_offset(zone: tzinfo, value: datetime) -> tuple[timedelta | None, str | None]:
    """Return offset and name of a zone that has the same offset at all times; None if it changes, or does not say.

    By convention ``utcoffset(None)`` is the offset of such a zone, and None for others: of ``timezone``, the zones of
    pydantic, pytz and dateutil, and nearly any other.
    """
    if type(zone) is timezone:
        return zone.utcoffset(None), zone.tzname(None)
    try:
        offset = zone.utcoffset(None)
        if offset != value.utcoffset():
            return None, None
    except Exception:  # the code of another library, which may have expected a datetime
        return None, None
    with suppress(Exception):  # a zone need not have a name
        return offset, value.tzname()
    return offset, None


def _unpack_datetime(data: memoryview) -> datetime:
    wall_clock, fold, zone = cast("tuple[str, int, int | str | list[Any] | None]", _decode(data))
    return datetime.fromisoformat(wall_clock).replace(fold=fold, tzinfo=_unpack_zone(zone))


def _unpack_zone(zone: int | str | list[Any] | None) -> tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        # Without this, a name could lead ZoneInfo to other files than those of zones, and to packages inside `tzdata`.
        if not _ZONE_NAME.fullmatch(zone):
            raise ValueError(f"{shown(zone)} is no name of a zone")
        return ZoneInfo(zone)
    if isinstance(zone, int):
        return timezone(zone * _MICROSECOND)
    east, name = zone
    return timezone(east * _MICROSECOND, name)


def _unpack_dict(data: memoryview) -> dict[object, object]:
    return paired(_unpack_items(data))


def paired(items: Iterable[object]) -> dict[object, object]:
    """Return items that are key, value, key, value … as a dict."""
    parts = iter(items)
    return dict(zip(parts, parts, strict=True))


def _unpack_items(data: memoryview) -> list[object]:
    return cast("list[object]", _decode(data))


_LEAVES: Final[dict[type, Callable[[Any], object]]] = {
    int: _pack_int,
    datetime: _pack_datetime,
    date: lambda value: Ext(_DATE, value.isoformat().encode()),
    timedelta: lambda value: Ext(_TIMEDELTA, _int_bytes(value // _MICROSECOND)),
    Decimal: lambda value: Ext(_DECIMAL, str(value).encode()),
    UUID: lambda value: Ext(_UUID, value.bytes),
}

_UNPACK: Final[dict[int, Callable[[memoryview], object]]] = {
    _INT: _int_from,
    SET: lambda data: set(_unpack_items(data)),
    FROZENSET: lambda data: frozenset(_unpack_items(data)),
    DICT: _unpack_dict,
    _DATETIME: _unpack_datetime,
    _DATE: lambda data: date.fromisoformat(str(data, "ascii")),
    _TIMEDELTA: lambda data: timedelta(microseconds=_int_from(data)),
    _DECIMAL: lambda data: Decimal(str(data, "ascii")),
    _UUID: lambda data: UUID(bytes=bytes(data)),
}


def unpack(code: int, data: memoryview) -> object:
    """Return the value of an extension."""
    if code == TUPLE:  # Hot path: accumulators are often tuples
        return _decode_tuple(data)
    if (restore := _UNPACK.get(code)) is None:
        raise ValueError(f"extension {code} is unknown; were they written by a newer aflow?")
    return restore(data)


_decode: Final = msgspec.msgpack.Decoder(ext_hook=unpack).decode
_decode_tuple: Final = msgspec.msgpack.Decoder(tuple, ext_hook=unpack).decode


def unstorable(value: object, cause: Exception) -> CodecError:
    """Return the error for ``value``: ``cause`` itself if it names that value already."""
    if isinstance(cause, CodecError) and str(cause).startswith(f"{shown(value)} cannot be stored"):
        return cause
    why = (
        "it is nested too deeply, or contains itself"
        if isinstance(cause, RecursionError)
        else str(cause)
    )
    return CodecError(f"{shown(value)} cannot be stored: {why}")


def _advice(value: object) -> str:
    name = type(value).__qualname__
    return (
        f"{shown(value)} cannot be stored without a declared type, because {name} is not a plain Python type; "
        f"declare of={name}, or the type of the value that contains it"
    )


#: Values that need no declared type: None, bool, int of any size, float, str, bytes, list, tuple, dict, set, frozenset,
#: datetime, date, timedelta, Decimal and UUID are restored exactly, type for type; subclasses of them and all
#: else are refused with ``CodecError``. The bytes of a set follow its iteration order: do not compare them.
PLAIN: Final[Codec[object]] = _Plain()
