"""Codecs inferred from annotations, for values whose type is not declared with ``of=``.

The accumulator of ``fold(Count, lambda count, view: count.plus(view))`` is a ``Count``, since its initial value is that
class. A type is inferred only if it contains records (dataclasses, NamedTuples, Structs, enums), which cannot be stored
as plain values. A function may return plain values despite its annotation: these are stored as plain values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from aflow.errors import FlowDefinitionError
from aflow.model.codecs import PLAIN, Codec, CodecError, Schema, codec_for

#: Precedes the bytes of a plain value. No msgpack begins with it, so none of a value of the inferred type does.
_PLAIN_MARK: Final = b"\xc1"


class _Inferred:
    """Codec of values of the inferred type as with ``of=``, and of others as plain values."""

    __slots__ = ("_of", "_typed")

    def __init__(self, of: Any) -> None:
        self._of = of
        self._typed: Codec[Any] = codec_for(of)

    def __reduce__(self) -> tuple[object, ...]:
        return _Inferred, (self._of,)

    @property
    def name(self) -> str:
        return self._typed.name

    @property
    def schema(self) -> Schema | None:
        return getattr(self._typed, "schema", None)

    def encode(self, value: Any) -> bytes:
        try:
            return self._typed.encode(value)
        except CodecError as exc:
            try:
                return _PLAIN_MARK + PLAIN.encode(value)
            except CodecError:
                raise CodecError(
                    f"{exc} (of={self.name} is inferred from annotations; of= of the step takes precedence)"
                ) from exc

    def decode(self, data: bytes) -> Any:
        if data[:1] == _PLAIN_MARK:
            return PLAIN.decode(data[1:])
        return self._typed.decode(data)


def codec_of_results(*functions: Callable[..., Any]) -> Codec[Any] | None:
    """Return the codec of the results of ``functions``, by the first annotation with records.

    None if there is none, or if the type cannot be stored: then the first value raises an error.
    """
    return _codec_of(map(_result, functions))


def codec_of_items(function: Callable[..., Any]) -> Codec[Any] | None:
    """Return the codec of the items of the list that is the first argument of ``function``, if it is annotated."""
    return _codec_of(
        get_args(hint)[0] for hint in _first_argument(function) if get_origin(hint) is list
    )


def codec_of_reduced(function: Callable[..., Any]) -> Codec[Any] | None:
    """Return the codec of the result or the first argument of a reducing function, if one of them is annotated."""
    return _codec_of([_result(function), *_first_argument(function)])


def may_return_none(function: Callable[..., Any]) -> bool:
    """Return True if the result of ``function`` is annotated as optional, such as ``int | None``."""
    result = _result(function)
    return get_origin(result) in (Union, UnionType) and NoneType in get_args(result)


def _codec_of(types: Iterable[Any]) -> Codec[Any] | None:
    for found in types:
        if _has_records(found):
            try:
                return _Inferred(found)
            except FlowDefinitionError:
                return None
    return None


def _result(function: Callable[..., Any]) -> object:
    function = _inner(function)
    return function if isinstance(function, type) else _hints(function).get("return")


def _first_argument(function: Callable[..., Any]) -> list[object]:
    function = _inner(function)
    hints = _hints(function)
    code = getattr(function, "__code__", None)
    if code is None or not code.co_argcount:
        return []
    name = code.co_varnames[0]
    return [hints[name]] if name in hints else []


def _inner(function: Any) -> Any:
    return _inner(function.func) if isinstance(function, partial) else function


def _hints(function: Any) -> dict[str, object]:
    try:
        return get_type_hints(function)
    except Exception:  # names that are undefined at run time, and objects without annotations
        return {}


def _has_records(found: Any) -> bool:
    if get_args(found):
        return _has_records(get_origin(found)) or any(map(_has_records, get_args(found)))
    if not isinstance(found, type):
        return False
    kind = cast("type[object]", found)
    return (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, msgspec.Struct | Enum)
        or ("_fields" in vars(kind) and issubclass(kind, tuple))
    )
