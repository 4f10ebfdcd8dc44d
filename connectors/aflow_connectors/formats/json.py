"""``Json``: one JSON value in each message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

import msgspec
import orjson

from aflow.errors import FlowDefinitionError
from aflow_connectors.formats.format import Format, FormatError
from aflow_connectors.json_decoder import json_decoder
from aflow_connectors.json_encoder import encode_json

T = TypeVar("T")


class Json(Format[T]):
    """One JSON value in each message, decoded as ``of``; without ``of``, any value: dicts, lists, numbers, text.

    ``of`` is a dataclass, ``msgspec.Struct``, NamedTuple, TypedDict or any other type that msgspec decodes. Undeclared
    fields are ignored, missing ones get their defaults. Raises ``FlowDefinitionError`` for a type that cannot be
    decoded. Encoded are dicts, dataclasses, ``msgspec.Struct``, NamedTuples and plain values, as by ``JsonLinesSink``.
    """

    @overload
    def __init__(self: Json[Any], of: None = None) -> None: ...
    @overload
    def __init__(self, of: type[T]) -> None: ...
    def __init__(self, of: type[T] | None = None) -> None:
        self.of = of
        self._decode = cast("Callable[[bytes], T]", orjson.loads)
        if of is not None:
            try:
                self._decode = json_decoder(of)
            except TypeError as exc:
                raise FlowDefinitionError(f"Json: cannot decode into {of!r}: {exc}") from exc

    def decode(self, data: bytes) -> T:
        try:
            return self._decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as exc:  # too deeply nested
            raise FormatError(f"not JSON of the declared type: {exc}") from exc

    def encode(self, value: T) -> bytes:
        try:
            return encode_json(value)
        except TypeError as exc:
            raise FormatError(f"JSON cannot hold it: {exc}") from exc

    def __reduce__(self) -> tuple[type[Json[T]], tuple[type[T] | None]]:
        """Decoders cannot be pickled, for executors of Spark."""
        return type(self), (self.of,)
