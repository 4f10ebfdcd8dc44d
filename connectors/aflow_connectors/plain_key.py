"""The default format of keys of sinks."""

from __future__ import annotations

from typing import Any

from aflow_connectors.formats import Format, FormatError


class PlainKey(Format[Any]):
    """Keys of a sink by default: bytes as they are, text as UTF-8."""

    def decode(self, data: bytes) -> bytes:
        return data

    def encode(self, value: object) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError as exc:
                raise FormatError(f"the key is not UTF-8: {exc.reason} at {exc.start}") from exc
        raise FormatError(
            f"a key is bytes or str, not {type(value).__name__}; key_format=Json() encodes other types"
        )
