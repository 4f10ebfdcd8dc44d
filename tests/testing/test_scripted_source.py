"""A scripted source follows its script, and continues at a position."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import assert_type

import pytest

import aflow as af
from aflow.connect import Chunk, Position, Reader, Split
from aflow.testing import At, Crash, End, Idle, Pause, ScriptedSource, Watermark, check_source
from aflow.testing.virtual_time import virtual_time


async def opened(
    source: ScriptedSource[str], position: Position | None = None, split: str = "script"
) -> Reader[str]:
    return await source.reader(Split(split), position)


async def rest(reader: Reader[str]) -> list[str]:
    values: list[str] = []
    while (chunk := await reader.read(1024)) is not None:
        values += chunk.values
    return values


@virtual_time
async def test_consecutive_records_are_one_chunk_and_a_pause_delays_the_next() -> None:
    loop = asyncio.get_running_loop()
    reader = await opened(ScriptedSource[str]("a", "b", Pause(timedelta(minutes=5)), "c"))

    first = await reader.read(10)
    before = loop.time()
    second = await reader.read(10)

    assert (first, second) == (Chunk(["a", "b"], 2), Chunk(["c"], 4))
    assert (before, loop.time()) == (0.0, 300.0)
    assert await reader.read(10) is None


@virtual_time
async def test_records_may_bring_their_time() -> None:
    source = ScriptedSource[str](At("a", 5), At("b", datetime(1970, 1, 1, 0, 1, tzinfo=UTC)))

    chunk = await (await opened(source)).read(10)

    assert chunk == Chunk(["a", "b"], 2, [5, 60_000])


@virtual_time
async def test_a_crash_is_raised_once_after_the_lines_before_it() -> None:
    source = ScriptedSource[str]("a", Crash(OSError("gone")), "b")
    reader = await opened(source)

    chunk = await reader.read(10)
    with pytest.raises(OSError, match="gone"):
        await reader.read(10)

    assert chunk == Chunk(["a"], 1)
    assert await rest(await opened(source, 0)) == ["a", "b"]


@virtual_time
async def test_an_end_ends_the_run_and_the_next_one_continues_after_it() -> None:
    source = ScriptedSource[str]("a", End(), "b", End(), "c")

    runs = [await rest(await opened(source, position)) for position in (None, 1, 3)]

    assert runs == [["a"], ["b"], ["c"]]


@virtual_time
async def test_a_script_that_begins_with_its_end_is_empty() -> None:
    assert await rest(await opened(ScriptedSource[str](End(), "a"))) == []


@virtual_time
async def test_a_read_that_was_cancelled_in_a_pause_pauses_again() -> None:
    loop = asyncio.get_running_loop()
    reader = await opened(ScriptedSource[str](Pause(timedelta(seconds=10)), "a"))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4):
            await reader.read(10)
    await reader.read(10)

    assert loop.time() == 14.0


@virtual_time
async def test_it_keeps_the_contract_of_sources() -> None:
    def make() -> ScriptedSource[str]:
        west: list[At[str] | Pause] = [At("b", 1), Pause(timedelta(seconds=9)), At("c", 2)]
        return ScriptedSource.of_splits({"east": ["a", "e"], "none": [], "west": west})

    await check_source(make, expected=["a", "e", "b", "c"])


@pytest.mark.parametrize("position", [-1, 3, "1", True], ids=repr)
@virtual_time
async def test_a_position_outside_of_the_script_is_refused(position: object) -> None:
    with pytest.raises(af.RestoreError, match="has 2 lines, so it cannot continue at"):
        await opened(ScriptedSource[str]("a", "b"), position)


def test_timestamps_for_some_records_are_refused() -> None:
    with pytest.raises(af.FlowDefinitionError, match="'b' has none; write At"):
        ScriptedSource[str](At("a", 1), "b")


def test_no_splits_are_refused() -> None:
    with pytest.raises(af.FlowDefinitionError, match="at least one split"):
        ScriptedSource[str].of_splits({})


@pytest.mark.parametrize("duration", [timedelta(0), timedelta(seconds=-1)], ids=repr)
def test_a_pause_takes_time(duration: timedelta) -> None:
    with pytest.raises(af.FlowDefinitionError, match="Pause must be longer than zero"):
        Pause(duration)


def test_a_moment_without_time_zone_is_refused() -> None:
    with pytest.raises(af.FlowDefinitionError, match="has no time zone"):
        At("a", datetime(2020, 1, 1))  # noqa: DTZ001


def test_its_type_is_that_of_the_records() -> None:
    assert_type(ScriptedSource(1, 2, End()), ScriptedSource[int])
    assert_type(ScriptedSource[int](At(1, 2), Pause(timedelta(1))), ScriptedSource[int])
    assert_type(ScriptedSource.of_splits({"a": ["b"]}), ScriptedSource[str])


@virtual_time
async def test_a_watermark_and_idleness_belong_to_the_records_before_them() -> None:
    source = ScriptedSource[str]("a", "b", Watermark(5), Idle(), Watermark(7), "c", Idle())
    reader = await opened(source)

    chunks = [await reader.read(2) for _ in range(4)]

    assert source.emits_watermarks
    assert not ScriptedSource[str]("a", Idle()).emits_watermarks
    assert chunks == [
        Chunk(["a", "b"], 4, watermark=5, idle=True),
        Chunk([], 5, watermark=7),
        Chunk(["c"], 7, idle=True),
        None,
    ]


@virtual_time
async def test_it_keeps_the_contract_of_sources_with_watermarks() -> None:
    await check_source(
        lambda: ScriptedSource.of_splits(
            {
                "one": [At("a", 1), Watermark(1), At("b", 5), Idle(), At("c", 3), Watermark(4)],
                "two": [Idle(), Watermark(9), At("d", 10)],
            }
        ),
        expected=["a", "b", "c", "d"],
    )
