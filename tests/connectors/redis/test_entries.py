"""Records as the fields of entries, without a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from aflow_connectors.redis.entries import FieldsDecoder, FieldsEncoder

pytestmark = pytest.mark.asyncio


@dataclass
class Picture:
    name: str
    data: bytes
    small: bytearray | None = None


async def again(record: object, of: Any) -> object:
    """Return ``record`` as it is read, with the text that the client makes of its fields."""
    (flat,) = await FieldsEncoder[Any]("sink").encode([record])
    text = [one if isinstance(one, str) else one.decode("utf-8", "surrogateescape") for one in flat]
    decoder = FieldsDecoder[Any]("pictures", of, messages=False, dead_letters=None)
    return (await decoder.decode([("1-0", text)])).values[0]


@pytest.mark.parametrize("data", [b"data", b"hello", b"", b"\xff\x00", "é".encode()])
async def test_bytes_are_read_as_they_were_written(data: bytes) -> None:
    picture = Picture("é", data, bytearray(data))

    assert await again(picture, Picture) == picture
    assert await again({"data": data}, dict[str, bytes]) == {"data": data}
