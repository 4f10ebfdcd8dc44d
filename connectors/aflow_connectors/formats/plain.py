"""``Raw`` and ``Text``: messages without structure."""

from __future__ import annotations

from aflow_connectors.formats.format import Format, FormatError


class Raw(Format[bytes]):
    """The bytes themselves."""

    def decode(self, data: bytes) -> bytes:
        return data

    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise FormatError(f"Raw holds bytes, not {type(value).__name__}")
        return bytes(value)


class Text(Format[str]):
    """UTF-8."""

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as exc:
            raise FormatError(f"not UTF-8: byte 0x{data[exc.start]:02x} at {exc.start}") from exc

    def encode(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise FormatError(f"Text holds str, not {type(value).__name__}")
        try:
            return value.encode()
        except UnicodeEncodeError as exc:
            raise FormatError(f"not UTF-8: {exc.reason} at {exc.start}") from exc
