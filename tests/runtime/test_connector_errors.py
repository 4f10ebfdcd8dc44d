"""Any exception of any method of a connector becomes an error of aflow that names the step."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import aflow as af
from aflow.connect import (
    Batch,
    Chunk,
    Committable,
    Position,
    Reader,
    Sink,
    Source,
    Split,
    Writer,
    WriterContext,
)
from aflow.testing.virtual_time import virtual_time


class Broken:
    """A connector that raises ``error`` in the method named ``place``."""

    def __init__(self, place: str, error: type[BaseException]) -> None:
        self._place = place
        self._error = error

    def reach(self, place: str) -> None:
        if place == self._place:
            raise self._error("disk gone")


class BrokenSource(Source[int]):
    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    async def splits(self) -> list[Split]:
        self._broken.reach("splits")
        return [Split("one")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        self._broken.reach("reader")
        return BrokenReader(self._broken)


class BrokenReader(Reader[int]):
    def __init__(self, broken: Broken) -> None:
        self._broken = broken
        self._left = 1

    async def read(self, limit: int) -> Chunk[int] | None:
        self._broken.reach("read")
        self._left -= 1
        return Chunk([1], 1) if self._left == 0 else None

    async def close(self) -> None:
        self._broken.reach("close")


class BrokenSink(Sink[int]):
    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    async def recover(self, name: str, committables: object) -> None:
        self._broken.reach("recover")

    async def writer(self, context: WriterContext) -> Writer[int]:
        self._broken.reach("writer")
        return BrokenWriter(self._broken)


class BrokenWriter(Writer[int]):
    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    async def write(self, batch: Batch[int]) -> None:
        self._broken.reach("write")

    async def prepare(self, checkpoint: int) -> Committable:
        self._broken.reach("prepare")
        return 1

    async def commit(self, committable: Committable) -> None:
        self._broken.reach("commit")

    async def flush(self) -> None:
        self._broken.reach("flush")

    async def close(self) -> None:
        self._broken.reach("close")


ERRORS = pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])


@ERRORS
@pytest.mark.parametrize("place", ["splits", "reader", "read", "close"])
@virtual_time
async def test_an_exception_of_a_source_is_a_source_error(
    place: str, error: type[BaseException]
) -> None:
    flow = af.Flow("broken")
    flow.source(BrokenSource(Broken(place, error)), name="numbers").to(af.CollectSink[int]())

    with pytest.raises(af.errors.SourceError, match=r"source 'numbers' .*disk gone"):
        await flow.run()


@ERRORS
@pytest.mark.parametrize(
    "place", ["recover", "writer", "write", "prepare", "commit", "flush", "close"]
)
@virtual_time
async def test_an_exception_of_a_sink_is_a_sink_error(
    tmp_path: Path, place: str, error: type[BaseException]
) -> None:
    flow = af.Flow("broken")
    flow.source([1], name="numbers").to(BrokenSink(Broken(place, error)), name="out")

    with pytest.raises(af.errors.SinkError, match=r"sink 'out' could not .*disk gone"):
        await flow.run(checkpointing=af.Checkpointing(storage=tmp_path))


@virtual_time
async def test_all_writers_are_closed_and_a_failure_of_one_is_a_note_of_the_first_error() -> None:
    flow = af.Flow("broken")
    source = flow.source([1], name="numbers")
    source.to(BrokenSink(Broken("write", ValueError)), name="first")
    source.to(BrokenSink(Broken("close", ValueError)), name="second")

    with pytest.raises(af.errors.SinkError, match="sink 'first' could not write") as caught:
        await flow.run()

    assert any("sink 'second' could not be closed" in one for one in caught.value.__notes__)
