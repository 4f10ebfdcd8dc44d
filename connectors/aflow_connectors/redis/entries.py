"""Records of a stream: the fields of an entry, or a payload in one of them.

``EntryDecoder`` and ``EntryEncoder`` have two modes. Without a format, the fields of an entry are the fields of the
record, as text. With one, the field ``value`` (or another name) has the encoded record, the field ``key`` its key, and
all other fields are the headers of a ``Message``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import inspect

from aflow.connect import BadRecord, SinkError, Tag
from aflow.errors import shown
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.declared_types import fields_by_name, without_none
from aflow_connectors.fields import fields_of, rfc3339
from aflow_connectors.formats import Format
from aflow_connectors.message import Message
from aflow_connectors.messages import (
    Decoded,
    HeadersOf,
    MessageDecoder,
    MessageEncoder,
    RawMessage,
)

T = TypeVar("T")

Entry = tuple[Any, Sequence[Any]]
"""An entry as Redis returns it: its id, and names and values in turn, each as text or as bytes."""

Fields = list[bytes | str]
"""Names and values in turn."""

#: The script that writes has a limit for the length of a command.
MOST_FIELDS: Final = 1000


class FieldsDecoder(Generic[T]):
    """Decodes entries whose fields are those of a record of type ``of``; of a dict of text without it.

    Entries are text, with surrogates where they are not UTF-8. Fields that are declared as bytes get the bytes of the
    entry, and may be no UTF-8.
    """

    def __init__(
        self,
        stream: str,
        of: type[T] | None,
        *,
        messages: bool,
        dead_letters: Tag[BadRecord] | None,
    ) -> None:
        self._stream = stream
        self._of = of
        #: Returns True for the name of a field of bytes; None: there are none.
        self._is_bytes = _bytes_fields(of)
        self._messages = messages
        self._bad = BadRecords(stream, dead_letters)

    async def decode(self, entries: Sequence[Entry]) -> Decoded:
        """Return the records. Raises ``SourceError`` for one that is none, unless there are ``dead_letters``."""
        values: list[Any] = []
        times: list[int] = []
        rejected: list[BadRecord] = []
        for id, flat in entries:
            try:
                record = self._record(flat)
            except (msgspec.ValidationError, UnicodeEncodeError, ValueError) as exc:
                reason = "not UTF-8" if isinstance(exc, UnicodeEncodeError) else str(exc)
                rejected.append(self._bad.bad(f"entry {id}", reason, _raw(flat)))
                continue
            time = int(id.partition("-")[0])
            if self._messages:
                message: Message[None, Any] = Message(
                    None, record, (), time, self._stream, None, id
                )
                values.append(message)
            else:
                values.append(record)
            times.append(time)
        return Decoded(values, times, rejected)

    def _record(self, flat: Sequence[str]) -> Any:
        # Hot path: one pass over the names and values of an entry.
        pairs = iter(flat)
        fields: dict[str, Any] = dict(zip(pairs, pairs, strict=True))
        if self._is_bytes is not None:
            # msgspec would decode their text as Base64.
            for name in filter(self._is_bytes, fields):
                fields[name] = fields[name].encode("utf-8", "surrogateescape")
        for text in flat if self._is_bytes is None else (*fields, *fields.values()):
            if not text.isascii() and isinstance(text, str):
                text.encode()
        if 2 * len(fields) < len(flat):
            raise ValueError("it has several fields of one name")
        if self._of is None:
            return fields
        return msgspec.convert(fields, self._of, strict=False)


_BYTES: Final = (inspect.BytesType, inspect.ByteArrayType, inspect.MemoryViewType)


def _bytes_fields(of: type[Any] | None) -> Callable[[str], bool] | None:
    """Return the function that tells the fields of bytes of ``of`` from others; None if there are none."""
    if of is None:
        return None
    declared = without_none(inspect.type_info(of))
    if isinstance(declared, inspect.DictType):
        return (lambda _: True) if _is_bytes(declared.value_type) else None
    names = {name for name, field in fields_by_name(declared).items() if _is_bytes(field.type)}
    return names.__contains__ if names else None


def _is_bytes(want: inspect.Type) -> bool:
    return isinstance(without_none(want), _BYTES)


class PayloadDecoder(Generic[T]):
    """Decodes entries of which the field ``value_field`` has the payload. Entries are bytes."""

    def __init__(
        self,
        stream: str,
        format: Format[Any],
        *,
        key_format: Format[Any],
        messages: bool,
        value_field: str,
        key_field: str,
        dead_letters: Tag[BadRecord] | None,
    ) -> None:
        self._bad = BadRecords(stream, dead_letters)
        self._value_name = value_field.encode()
        self._key_name = key_field.encode()
        self._messages = messages
        self._decoder = MessageDecoder[T](
            stream,
            format,
            key_format=key_format,
            messages=messages,
            dead_letters=dead_letters,
            unit="entry",
        )

    async def decode(self, entries: Sequence[Entry]) -> Decoded:
        """Return the records. Raises ``SourceError`` for one that is none, unless there are ``dead_letters``."""
        raw: list[RawMessage] = []
        rejected: list[BadRecord] = []
        for id, flat in entries:
            message = self._raw_message(id.decode(), flat)
            if message.value is None and (not self._messages or message.key is None):
                reason = f"it has no field {self._value_name.decode()!r}"
                rejected.append(self._bad.bad(f"entry {message.offset}", reason, _raw(flat)))
            else:
                raw.append(message)
        found = await self._decoder.decode(raw)
        return found if not rejected else found._replace(rejected=rejected + found.rejected)

    def _raw_message(self, id: str, flat: Sequence[bytes]) -> RawMessage:
        time = int(id.partition("-")[0])
        if len(flat) == 2 and flat[0] == self._value_name:
            return RawMessage(flat[1], None, (), time, id)
        value: bytes | None = None
        key: bytes | None = None
        headers: list[tuple[str, bytes]] = []
        pairs = iter(flat)
        for name, data in zip(pairs, pairs, strict=True):
            if name == self._value_name:
                value = data
            elif name == self._key_name:
                key = data
            else:
                headers.append((name.decode("utf-8", "backslashreplace"), data))
        return RawMessage(value, key, tuple(headers), time, id)


class FieldsEncoder(Generic[T]):
    """Encodes records as the fields of an entry or a hash; ``place`` names the sink in messages.

    The key of a ``Message`` is an error unless ``ignore_key`` is True.
    """

    def __init__(self, place: str, *, ignore_key: bool = False) -> None:
        self._place = place
        self._ignores_key = ignore_key

    async def encode(self, values: Sequence[T]) -> list[Fields]:
        """Return names and values for each record. Raises ``SinkError`` with the record for one that has none."""
        return [self._one(value) for value in values]

    def _one(self, record: T) -> Fields:
        body: object = record
        if isinstance(body, Message):
            envelope = cast("Message[object, object]", body)
            if envelope.headers or not (envelope.key is None or self._ignores_key):
                raise SinkError(
                    f"{self._place}: record {shown(record)} has a key or headers, which format= stores"
                )
            body = envelope.value
        try:
            return _flat(body)
        except (TypeError, ValueError) as exc:
            raise SinkError(f"{self._place}: record {shown(record)}: {exc}") from exc


class PayloadEncoder(Generic[T]):
    """Encodes records as the payload of an entry, with key and headers in fields of their own."""

    def __init__(
        self,
        place: str,
        format: Format[Any],
        *,
        key: Callable[[T], Any] | None,
        key_format: Format[Any],
        headers: HeadersOf[T] | None,
        value_field: str,
        key_field: str,
    ) -> None:
        self._place = place
        self._encoder = MessageEncoder[T](
            place, format, key=key, key_format=key_format, headers=headers
        )
        self._value_field = value_field
        self._key_field = key_field

    async def encode(self, values: Sequence[T]) -> list[Fields]:
        """Return names and values for each record. Raises ``SinkError`` with the record for one that is no message."""
        raw = await self._encoder.encode(values)
        return [self._one(*one) for one in zip(values, raw, strict=True)]

    def _one(self, record: T, raw: RawMessage) -> Fields:
        fields: Fields = [] if raw.value is None else [self._value_field, raw.value]
        if raw.key is not None:
            fields += (self._key_field, raw.key)
        if not fields:
            raise SinkError(
                f"{self._place}: record {shown(record)} has neither key nor value, and a tombstone needs a key"
            )
        for name, data in raw.headers:
            if name in (self._value_field, self._key_field):
                raise SinkError(
                    f"{self._place}: record {shown(record)} has a header {name!r}, which is the name of another field"
                )
            fields += (name, data)
        _check_number(fields)
        return fields


def _flat(record: object) -> Fields:
    """Return names and values of the fields of ``record``. Raises ``TypeError`` or ``ValueError`` if it has none."""
    fields: Fields = []
    for name, value in fields_of(record).items():
        if not isinstance(name, str):
            raise TypeError(f"names of fields are str, not {shown(name)}")
        if value is not None:
            fields += (name, value if isinstance(value, (str, bytes)) else _plain(name, value))
    if not fields:
        raise ValueError("it has no fields")
    _check_number(fields)
    return fields


def _plain(name: str, value: object) -> str | bytes:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(cast("bytearray", value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, datetime):
        return rfc3339(value)
    plain: object = msgspec.to_builtins(value)
    if isinstance(plain, (str, int, float)) and not isinstance(plain, bool):
        return str(plain)
    raise TypeError(
        f"field {name!r} is a {type(value).__name__}, and fields of Redis are text; format=Json() stores such records"
    )


def _check_number(fields: Fields) -> None:
    if len(fields) > 2 * MOST_FIELDS:
        raise SinkError(f"an entry has {len(fields) // 2:,} fields, and the limit is {MOST_FIELDS}")


def _raw(flat: Sequence[Any]) -> bytes:
    """Return names and values for a dead letter."""
    data = [one.encode("utf-8", "surrogateescape") if isinstance(one, str) else one for one in flat]
    pairs = iter(data)
    return b" ".join(name + b"=" + value for name, value in zip(pairs, pairs, strict=True))
