"""The stable key hash: the same number for a key in every process, on every machine, for ever.

Python's ``hash`` of a ``str`` differs from one process to the next, so it cannot determine which subtask, or which
Spark partition, owns a key. ``stable_hash`` is the CRC-32 of a canonical encoding that ``docs/reference/key-hash.md``
specifies byte by byte.

State lives in Python dicts, so *equal keys must have equal encodings* (``1``, ``1.0``, ``True`` and ``Decimal(1)``
are one key). The reverse is not needed: two different keys with the same encoding merely share a key group, and that
freedom makes the encoding one that Spark SQL's ``crc32`` reproduces. A type with unknown equality is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, Flag
from functools import lru_cache
from math import isinf, isnan
from typing import Any, Final
from uuid import UUID
from zlib import crc32

from aflow.errors import AflowError, shown

__all__ = ["UnsupportedKey", "encode_key", "encode_keys", "stable_hash"]

_Encoder = Callable[[Any], bytes]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
#: Between the parts of a compound key: the ASCII unit separator.
_SEPARATOR: Final = b"\x1f"
#: Up to 617 digits, so that ``str`` never meets the interpreter's limit on int-to-text, whose lowest setting is 640.
_SHORT_INT_BITS: Final = 2048
#: ``Decimal("1E+999999999")`` is nine letters of source and a gigabyte of digits.
_MAX_DECIMAL_EXPONENT: Final = 10_000

_SUPPORTED: Final = (
    "str, bytes, int, bool, None, float, Decimal, tuple, aware datetime, date, UUID, Enum and "
    "frozen dataclasses"
)


class UnsupportedKey(AflowError, TypeError):
    """A value cannot be a key: ``key`` is the value, ``reason`` the cause and what to use instead."""

    def __init__(self, key: object, reason: str) -> None:
        super().__init__(key, reason)  # both, so that the error survives pickling between processes
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"{shown(self.key)} cannot be a key: {self.reason}"


def encode_key(key: Hashable) -> bytes:
    """Return the canonical bytes of ``key``; equal keys have equal bytes, whatever their types.

    Raises ``UnsupportedKey`` for a type, or a value such as NaN or a naive ``datetime``, that cannot be a key.
    """
    kind = type(key)
    return (_EXACT.get(kind) or _encoder_for(kind))(key)


def encode_keys(keys: Collection[Hashable]) -> list[bytes]:
    """Return ``encode_key`` of each. Keys of one common type take half the time."""
    kinds = set(map(type, keys))
    encoder = _EXACT.get(kinds.pop()) if len(kinds) == 1 else None
    return list(map(encoder or encode_key, keys))


def check_key(key: Hashable) -> None:
    """Raise ``UnsupportedKey`` if ``key`` cannot be one; for steps that need no hash."""
    # Hot path: once for each key and window. Most keys are one of these, and text in ASCII has no lone surrogates.
    kind = type(key)
    if kind is int or (kind is str and key.isascii()):  # type: ignore[attr-defined]
        return
    encode_key(key)


class CheckedKeys(dict[Hashable, None]):
    """Keys that were checked: ``checked[key]`` checks a key that is not in it, and raises ``UnsupportedKey``.

    A key that compares equal to a checked one is not checked again. All entries are dropped once ``limit`` are held, so
    a stream of ever new keys costs bounded memory.
    """

    __slots__ = ("_limit",)

    def __init__(self, *, limit: int = 65_536) -> None:
        super().__init__()
        self._limit = limit

    def __missing__(self, key: Hashable) -> None:
        check_key(key)
        if len(self) >= self._limit:
            self.clear()
        self[key] = None


def stable_hash(key: Hashable) -> int:
    """Return the CRC-32 (as in zip and zlib, 0 to 2**32 - 1) of ``encode_key(key)``.

    >>> stable_hash("JFK")
    3311509919

    Raises ``UnsupportedKey`` as ``encode_key`` does.
    """
    return crc32(encode_key(key))


def _encode_str(key: str) -> bytes:
    try:
        return str.encode(key)
    except UnicodeEncodeError as exc:
        raise UnsupportedKey(
            key,
            f"it holds a lone surrogate at index {exc.start}, which UTF-8 cannot express; repair the text first",
        ) from exc


def _encode_bytes(key: bytes) -> bytes:
    return b"".join((key,))  # unlike bytes(key), ignores __bytes__ of a subclass


def _encode_none(_key: None) -> bytes:
    return b""


def _encode_bool(key: bool) -> bytes:
    return b"1" if key else b"0"


def _encode_int(key: int) -> bytes:
    if key.bit_length() <= _SHORT_INT_BITS:
        return int.__repr__(key).encode()
    return f"{Decimal(key):f}".encode()


def _encode_float(key: float) -> bytes:
    if float.is_integer(key):
        return _encode_int(float.__int__(key))
    if isnan(key):
        raise UnsupportedKey(
            key,
            "NaN is not equal to itself, so each one would be a key of its own; replace it, for instance by None",
        )
    if isinf(key):
        return _infinity(key > 0)
    return _encode_finite(Decimal.from_float(key))


def _encode_decimal(key: Decimal) -> bytes:
    if Decimal.is_nan(key):
        raise UnsupportedKey(key, "NaN is not equal to itself; replace it, for instance by None")
    if Decimal.is_infinite(key):
        return _infinity(not Decimal.is_signed(key))
    exponent = Decimal.as_tuple(key).exponent
    if isinstance(exponent, int) and abs(exponent) > _MAX_DECIMAL_EXPONENT:
        raise UnsupportedKey(
            key,
            f"its exponent {exponent} is beyond ±{_MAX_DECIMAL_EXPONENT}, too many digits; use str(key)",
        )
    return _encode_finite(key)


def _encode_finite(number: Decimal) -> bytes:
    """Return the exact decimal expansion: no exponent, no needless zero, no minus before zero."""
    if not number:
        return b"0"
    digits = Decimal.__format__(number, "f")
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits).encode()


def _infinity(positive: bool) -> bytes:
    return b"Infinity" if positive else b"-Infinity"


def _encode_tuple(key: tuple[Hashable, ...]) -> bytes:
    return _encode_parts(key, key)


def _encode_parts(key: object, parts: tuple[Hashable, ...]) -> bytes:
    try:
        return _SEPARATOR.join([encode_key(part) for part in parts])
    except UnsupportedKey as exc:
        raise UnsupportedKey(key, f"its part {exc}") from None


def _encode_datetime(key: datetime) -> bytes:
    # Equality and hash of Python's datetimes use fold=0, so the encoding must too.
    instant = datetime.replace(key, fold=0) if key.fold else key
    if instant.utcoffset() is None:
        raise UnsupportedKey(
            key,
            "a datetime without a zone is a different instant on each machine; "
            "give it one, for instance key.replace(tzinfo=UTC)",
        )
    return _encode_int((instant - _EPOCH) // _MICROSECOND)


def _encode_date(key: date) -> bytes:
    return date.isoformat(key).encode()


def _encode_uuid(key: UUID) -> bytes:
    return UUID.__str__(key).encode()


def _encode_flag(key: Flag) -> bytes:
    return encode_key(key.value)


def _encode_enum(key: Enum) -> bytes:
    return _encode_str(key.name)


#: Exact types first: one dict lookup for what nearly every key is.
_EXACT: Final[dict[type, _Encoder]] = {
    str: _encode_str,
    int: _encode_int,
    tuple: _encode_tuple,
    bytes: _encode_bytes,
    type(None): _encode_none,
    bool: _encode_bool,
    float: _encode_float,
    Decimal: _encode_decimal,
    datetime: _encode_datetime,
    date: _encode_date,
    UUID: _encode_uuid,
}

_MUTABLE: Final[dict[type, str]] = {
    list: "a list is mutable; use tuple(key)",
    set: "a set is mutable; use tuple(sorted(key))",
    frozenset: "a frozenset has no order; use tuple(sorted(key))",
    dict: "a dict is mutable; use tuple(sorted(key.items())) or a frozen dataclass",
    bytearray: "a bytearray is mutable; use bytes(key)",
    memoryview: "a memoryview may change under the key; use bytes(key)",
}


@lru_cache(maxsize=1024)
def _encoder_for(kind: type) -> _Encoder:
    """Return the encoder of a class that is not in ``_EXACT``; computed once for each class."""
    if _is_dataclass(kind) and not issubclass(kind, Enum):
        return _dataclass_encoder(kind)
    base = next((known for known in kind.__mro__ if known in _EXACT), None)
    if base is not None:
        same = kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__
        return (
            _EXACT[base] if same else _refusal(_own_equality(kind, f"use a plain {base.__name__}"))
        )
    if issubclass(kind, Enum):
        return _enum_encoder(kind)
    advice = next((_MUTABLE[known] for known in kind.__mro__ if known in _MUTABLE), None)
    return _refusal(
        advice
        or f"its type {kind.__module__}.{kind.__qualname__} has no fixed bytes; a key is made of {_SUPPORTED}"
    )


def _is_dataclass(kind: type) -> bool:
    """Return True for a dataclass, without the type narrowing of ``is_dataclass``."""
    return dataclasses.is_dataclass(kind)


def _enum_encoder(kind: type[Enum]) -> _Encoder:
    if kind.__eq__ is not Enum.__eq__:
        return _refusal(_own_equality(kind, "use its .name or .value"))
    return _encode_flag if issubclass(kind, Flag) else _encode_enum


def _dataclass_encoder(kind: Any) -> _Encoder:
    options = kind.__dataclass_params__
    if not (options.frozen and options.eq):
        return _refusal(
            f"dataclass {kind.__qualname__} is not frozen with eq; declare it @dataclass(frozen=True)"
        )
    if not _has_generated_equality(kind):
        return _refusal(_own_equality(kind, "use a tuple of the fields that matter"))
    names = [field.name for field in dataclasses.fields(kind) if field.compare]

    def encode(key: object) -> bytes:
        return _encode_parts(key, tuple(getattr(key, name) for name in names))

    return encode


def _has_generated_equality(kind: type) -> bool:
    """Return True if ``dataclass`` generated ``__eq__``: generated code has no file."""
    code = getattr(kind.__eq__, "__code__", None)
    return code is not None and code.co_filename == "<string>"


def _own_equality(kind: type, advice: str) -> str:
    return f"{kind.__qualname__} defines its own equality, so aflow cannot tell which of its keys are equal; {advice}"


def _refusal(reason: str) -> _Encoder:
    def refuse(key: object) -> bytes:
        raise UnsupportedKey(key, reason)

    return refuse
