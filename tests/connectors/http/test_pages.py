"""``PageDecoder``: the records of a response."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from aflow.connect import BadRecord, Tag
from aflow_connectors.formats import Json
from aflow_connectors.http.pages import PageDecoder

pytestmark = pytest.mark.asyncio

COUNT = 3000
BAD = (0, 1023, 1024, 2999)


async def test_a_large_page_with_bad_entries_is_decoded_in_pieces() -> None:
    entries: list[object] = [f"bad {n}" if n in BAD else n for n in range(COUNT)]
    decoder = PageDecoder("the page", Json(int), (), Tag[BadRecord]("bad"))
    passes = 0

    async def count_passes() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count_passes())
        found = await decoder.decode(orjson.dumps(entries))
        counting.cancel()

    good = [n for n in range(COUNT) if n not in BAD]
    assert passes > 4
    assert (found.count, found.values, found.numbers) == (COUNT, good, good)
    assert [number for number, _ in found.rejected] == list(BAD)
    assert [bad.raw for _, bad in found.rejected] == [b'"bad %d"' % n for n in BAD]
