"""Messages between the bytes of a broker and the records of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from aflow.connect import BadRecord, ConnectorError, SinkError, SourceError, Tag
from aflow.errors import described, shown
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.formats.format import Format, FormatError
from aflow_connectors.message import Message

T = TypeVar("T")
R = TypeVar("R")

Headers: TypeAlias = tuple[tuple[str, bytes], ...]

HeadersOf: TypeAlias = Callable[[T], Mapping[str, bytes | str]]
"""Maps a record to the headers of its message."""

_Formats: TypeAlias = tuple[Format[Any], Format[Any]]

_TOMBSTONE: Final = "it is a tombstone, a message without value; messages=True reads those too"


class RawMessage(NamedTuple):
    """A message as bytes."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    """Epoch ms."""
    offset: int | str | None = None


class Decoded(NamedTuple):
    """The records of some messages; the columns of ``Chunk``."""

    values: list[Any]
    timestamps: list[int] | None
    """None if a message has none."""
    rejected: list[BadRecord]


class MessageDecoder(Generic[T]):
    """Decodes the messages of one split, named ``origin`` in messages of errors.

    With ``messages`` the records are ``Message``, else their values alone. ``unit`` names a position in messages.
    """

    def __init__(
        self,
        origin: str,
        format: Format[Any],
        *,
        key_format: Format[Any] | None = None,
        messages: bool = False,
        partition: int | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        unit: str = "offset",
    ) -> None:
        self._origin = origin
        self._unit = unit
        self._format = format
        self._key_format = key_format
        self._messages = messages
        self._partition = partition
        place = origin if partition is None else f"{origin}, partition {partition}"
        self._bad = BadRecords(place, dead_letters)

    async def decode(self, raw: Sequence[RawMessage]) -> Decoded:
        """Return the records. Raises ``SourceError`` for one that is none, unless there are ``dead_letters``."""
        bodies = [one.value for one in raw if one.value is not None]
        try:
            await self._format.before_decoding(bodies)
            if self._key_format is not None and self._messages:
                keys = [one.key for one in raw if one.key is not None]
                await self._key_format.before_decoding(keys)
        except ConnectorError as exc:
            raise SourceError(f"{self._origin}: {exc}") from exc
        if self._messages:
            return self._each(raw, self._message)
        if len(bodies) < len(raw):  # tombstones, which a format need not refuse
            return self._each(raw, self._value)
        try:
            # Hot path of all brokers: without a tombstone or a bad message, one loop.
            return Decoded(list(map(self._format.decode, bodies)), _timestamps(raw), [])
        except Exception:
            return self._each(raw, self._value)

    def _each(self, raw: Sequence[RawMessage], of: Callable[[RawMessage], Any]) -> Decoded:
        values: list[Any] = []
        good: list[RawMessage] = []
        rejected: list[BadRecord] = []
        for one in raw:
            try:
                value = of(one)
            except FormatError as exc:
                rejected.append(
                    self._bad.bad(f"{self._unit} {one.offset}", str(exc), one.value or b"")
                )
            except Exception as exc:
                raise SourceError(
                    f"{self._origin}, {self._unit} {one.offset}: {type(self._format).__name__} failed: {described(exc)}"
                ) from exc
            else:
                values.append(value)
                good.append(one)
        return Decoded(values, _timestamps(good), rejected)

    def _value(self, raw: RawMessage) -> Any:
        if raw.value is None:
            raise FormatError(_TOMBSTONE)
        return self._format.decode(raw.value)

    def _message(self, raw: RawMessage) -> Message[Any, Any]:
        key: object = raw.key
        if raw.key is not None and self._key_format is not None:
            key = self._key_format.decode(raw.key)
        value = None if raw.value is None else self._format.decode(raw.value)
        # A header of Kafka may have no value.
        headers = tuple((name, data or b"") for name, data in raw.headers)
        return Message(
            key, value, headers, raw.timestamp, self._origin, self._partition, raw.offset
        )


class MessageEncoder(Generic[T]):
    """Encodes the records of a sink; ``place`` names it in messages.

    A record that is a ``Message`` brings its own key, headers and timestamp, unless ``key`` or ``headers`` are given.
    """

    def __init__(
        self,
        place: str,
        format: Format[Any],
        *,
        key: Callable[[T], Any] | None = None,
        key_format: Format[Any],
        headers: HeadersOf[T] | None = None,
    ) -> None:
        self._place = place
        self._format = format
        self._key = key
        self._key_format = key_format
        self._headers = headers
        #: The formats of values and keys of each topic.
        self._formats: dict[str, _Formats] = {}

    async def encode(
        self,
        values: Sequence[T],
        timestamps: Sequence[int] | None = None,
        *,
        topics: Sequence[str] | str = "",
    ) -> list[RawMessage]:
        """Return the messages; ``timestamps`` are those of records that are no ``Message`` with one of its own.

        ``topics`` are those of the records, or that of all: formats with schemas need them. Raises ``SinkError`` with
        the record for one that cannot be encoded.
        """
        envelopes = [_envelope(value) for value in values]
        bodies = [
            value if envelope is None else envelope.value
            for value, envelope in zip(values, envelopes, strict=True)
        ]
        keys = [self._key_of(*one) for one in zip(values, envelopes, strict=True)]
        formats = await self._ready_formats(bodies, keys, topics)
        times: Iterable[int | None] = timestamps or repeat(None, len(values))
        columns = zip(values, envelopes, bodies, keys, times, formats, strict=True)
        return [self._encoded(*one) for one in columns]

    async def _ready_formats(
        self, bodies: Sequence[Any], keys: Sequence[Any], topics: Sequence[str] | str
    ) -> Sequence[_Formats]:
        """Return the formats of each record, after they have fetched what they need."""
        if isinstance(topics, str):
            return [await self._ready(topics, bodies, keys)] * len(bodies)
        for topic in set(topics):
            mine = [number for number, other in enumerate(topics) if other == topic]
            await self._ready(topic, [bodies[one] for one in mine], [keys[one] for one in mine])
        return [self._formats[topic] for topic in topics]

    async def _ready(self, topic: str, bodies: Sequence[Any], keys: Sequence[Any]) -> _Formats:
        formats = self._formats.get(topic)
        if formats is None:
            value, key = (
                self._format.for_topic(topic),
                self._key_format.for_topic(topic, is_key=True),
            )
            formats = self._formats[topic] = (value, key)
        try:
            await formats[0].before_encoding([body for body in bodies if body is not None])
            await formats[1].before_encoding([key for key in keys if key is not None])
        except ConnectorError as exc:
            raise SinkError(f"{self._place}: {exc}") from exc
        return formats

    def _encoded(
        self,
        record: T,
        envelope: Message[Any, Any] | None,
        body: Any,
        key: Any,
        time: int | None,
        formats: _Formats,
    ) -> RawMessage:
        is_tombstone = envelope is not None and envelope.value is None
        try:
            value = None if is_tombstone else formats[0].encode(body)
            encoded_key = None if key is None else formats[1].encode(key)
        except FormatError as exc:
            raise SinkError(f"{self._place}: record {shown(record)}: {exc}") from exc
        if envelope is not None and envelope.timestamp is not None:
            time = envelope.timestamp
        return RawMessage(value, encoded_key, self._headers_of(record, envelope), time)

    def _key_of(self, record: T, envelope: Message[Any, Any] | None) -> Any:
        if self._key is None:
            return None if envelope is None else envelope.key
        return self._called("key", self._key, record)

    def _headers_of(self, record: T, envelope: Message[Any, Any] | None) -> Headers:
        if self._headers is None:
            return () if envelope is None else envelope.headers
        given: object = self._called("headers", self._headers, record)
        headers = _headers(given)
        if headers is None:
            raise SinkError(
                f"{self._place}: headers= must return a mapping of str to bytes or str, not {shown(given)}, for record "
                f"{shown(record)}"
            )
        return headers

    def _called(self, argument: str, fn: Callable[[T], R], record: T) -> R:
        try:
            return fn(record)
        except Exception as exc:
            raise SinkError(
                f"{self._place}: {argument}= failed for record {shown(record)}: {described(exc)}"
            ) from exc


def _headers(given: object) -> Headers | None:
    """Return the headers of a message; None if ``given`` is no mapping of str to bytes or str."""
    if not isinstance(given, Mapping):
        return None
    found: list[tuple[str, bytes]] = []
    for name, value in cast("Mapping[object, object]", given).items():
        data = value.encode() if isinstance(value, str) else value
        if not isinstance(name, str) or not isinstance(data, bytes):
            return None
        found.append((name, data))
    return tuple(found)


def _envelope(record: object) -> Message[Any, Any] | None:
    return record if isinstance(record, Message) else None  # pyright: ignore[reportUnknownVariableType]


def _timestamps(raw: Sequence[RawMessage]) -> list[int] | None:
    times = [one.timestamp for one in raw if one.timestamp is not None]
    return times if len(times) == len(raw) else None
