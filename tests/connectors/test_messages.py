"""Messages of brokers become records, and records messages; what is none is an error or a dead letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import aflow as af
from aflow.connect import BadRecord, SinkError, SourceError
from aflow_connectors.formats import Format, FormatError, Json, Raw, Text
from aflow_connectors.message import Message
from aflow_connectors.messages import MessageDecoder, MessageEncoder, RawMessage

BAD = af.Tag[BadRecord]("bad")

pytestmark = pytest.mark.asyncio


class Registered(Format[int]):
    """A format that knows only what it was told before."""

    def __init__(self) -> None:
        self.known: set[object] = set()

    async def before_decoding(self, messages: Sequence[bytes]) -> None:
        self.known.update(messages)

    async def before_encoding(self, values: Sequence[int]) -> None:
        self.known.update(values)

    def decode(self, data: bytes) -> int:
        assert data in self.known
        return int(data)

    def encode(self, value: int) -> bytes:
        assert value in self.known
        return str(value).encode()


class Broken(Format[int]):
    """A format with a bug."""

    def decode(self, data: bytes) -> int:
        raise ZeroDivisionError("a bug")

    def encode(self, value: int) -> bytes:
        raise FormatError("never")


async def test_values_have_the_timestamps_of_their_messages() -> None:
    decoded = await MessageDecoder[Any]("topic", Json()).decode(
        [RawMessage(b"1", timestamp=5), RawMessage(b"[2]", timestamp=6)]
    )

    assert decoded.values == [1, [2]]
    assert decoded.timestamps == [5, 6]
    assert decoded.rejected == []


async def test_messages_without_a_timestamp_have_none() -> None:
    decoded = await MessageDecoder[Any]("topic", Json()).decode(
        [RawMessage(b"1", timestamp=5), RawMessage(b"2")]
    )

    assert decoded.timestamps is None


async def test_an_envelope_has_all_that_the_broker_knows() -> None:
    decoder = MessageDecoder[Message[str, Any]](
        "topic", Json(), key_format=Text(), messages=True, partition=3
    )
    raw = RawMessage(b"1", b"key", (("h", b"x"),), 5, 17)

    decoded = await decoder.decode([raw, RawMessage(None, b"gone", offset=18)])

    assert decoded.values == [
        Message("key", 1, (("h", b"x"),), 5, "topic", 3, 17),
        Message("gone", None, (), None, "topic", 3, 18),
    ]


async def test_a_bad_message_is_a_dead_letter_between_the_records() -> None:
    decoder = MessageDecoder[Any]("topic", Json(int), partition=3, dead_letters=BAD)
    raw = [
        RawMessage(b"1", timestamp=1, offset=0),
        RawMessage(b"x", timestamp=2, offset=1),
        RawMessage(None, timestamp=3, offset=2),
        RawMessage(b"", timestamp=3, offset=3),
        RawMessage(b"2", timestamp=4, offset=4),
    ]

    decoded = await decoder.decode(raw)

    assert decoded.values == [1, 2]
    assert decoded.timestamps == [1, 4]
    assert [one.place for one in decoded.rejected] == [
        f"topic, partition 3, offset {n}" for n in (1, 2, 3)
    ]
    assert decoded.rejected[0].raw == b"x"
    assert "tombstone" in decoded.rejected[1].reason


async def test_a_tombstone_is_no_record_of_a_format_that_takes_any_value() -> None:
    decoder = MessageDecoder[bytes]("topic", Raw(), dead_letters=BAD)

    decoded = await decoder.decode([RawMessage(b"1", offset=0), RawMessage(None, offset=1)])

    assert decoded.values == [b"1"]
    assert "tombstone" in decoded.rejected[0].reason


async def test_without_dead_letters_a_bad_message_fails_with_its_place() -> None:
    with pytest.raises(SourceError, match=r"topic, offset 7: not JSON.*dead_letters="):
        await MessageDecoder[int]("topic", Json(int)).decode([RawMessage(b"x", offset=7)])


async def test_a_bad_key_is_a_dead_letter_too() -> None:
    decoder = MessageDecoder[Any](
        "topic", Json(), key_format=Text(), messages=True, dead_letters=BAD
    )

    decoded = await decoder.decode([RawMessage(b"1", b"\xff")])

    assert decoded.values == []
    assert "not UTF-8" in decoded.rejected[0].reason


async def test_a_format_that_fails_otherwise_is_an_error_also_with_dead_letters() -> None:
    decoder = MessageDecoder[int]("topic", Broken(), dead_letters=BAD)

    with pytest.raises(SourceError, match=r"offset 3: Broken failed: .*a bug"):
        await decoder.decode([RawMessage(b"1", offset=3)])


async def test_formats_are_told_before_they_decode_and_encode() -> None:
    decoded = await MessageDecoder[int]("topic", Registered()).decode([RawMessage(b"1")])
    encoder = MessageEncoder[int]("sink", Registered(), key=lambda n: n, key_format=Registered())

    assert decoded.values == [1]
    assert await encoder.encode([7]) == [RawMessage(b"7", b"7")]


async def test_keys_headers_and_timestamps_come_from_the_record_or_from_functions() -> None:
    envelope = Message("k", {"a": 1}, (("h", b"x"),), 9)
    own = MessageEncoder[Any]("sink", Json(), key_format=Text())
    given = MessageEncoder[Any](
        "sink",
        Json(),
        key=lambda _: "fn",
        key_format=Text(),
        headers=lambda _: {"n": "1", "b": b"2"},
    )

    assert await own.encode([envelope, 5], [1, 2]) == [
        RawMessage(b'{"a":1}', b"k", (("h", b"x"),), 9),
        RawMessage(b"5", None, (), 2),
    ]
    assert await given.encode([envelope]) == [
        RawMessage(b'{"a":1}', b"fn", (("n", b"1"), ("b", b"2")), 9)
    ]


async def test_a_tombstone_has_no_value_and_none_as_a_value_is_json_null() -> None:
    encoder = MessageEncoder[Any]("sink", Json(), key_format=Text())

    tombstone, null = await encoder.encode([Message("k", None), None])

    assert tombstone.value is None
    assert null.value == b"null"


async def test_a_record_that_cannot_be_encoded_is_named() -> None:
    encoder = MessageEncoder[Any]("sink 'out'", Raw(), key_format=Text())

    with pytest.raises(SinkError, match="sink 'out': record 'text': Raw holds bytes, not str"):
        await encoder.encode(["text"])


@pytest.mark.parametrize("headers", [None, {"n": 1}, {1: b"x"}])
async def test_headers_that_are_none_are_refused_with_the_record(headers: Any) -> None:
    encoder = MessageEncoder[int]("sink", Json(), key_format=Text(), headers=lambda _: headers)

    with pytest.raises(SinkError, match=r"headers= must return a mapping .*, for record 5$"):
        await encoder.encode([5])


async def test_a_function_that_fails_is_named_with_the_record() -> None:
    def fail(record: object) -> Mapping[str, str]:
        raise KeyError("h")

    of_key = MessageEncoder[Any]("sink", Json(), key=fail, key_format=Text())
    of_headers = MessageEncoder[Any]("sink", Json(), headers=fail, key_format=Text())

    with pytest.raises(SinkError, match="key= failed for record 5"):
        await of_key.encode([5])
    with pytest.raises(SinkError, match="headers= failed for record 5"):
        await of_headers.encode([5])
