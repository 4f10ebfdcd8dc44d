"""Splits continue in the subtask that has read them, which has their records in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.runtime.checkpoints.sections import read_progress, source_progress
from aflow.runtime.splits import Progress, SplitPosition, SplitQueue
from aflow.testing import CollectSink, Crash, Pause, ScriptedSource, run_flow
from aflow.testing.scripted_source import Line

Row = tuple[str, int]


def dealt(
    readers: Mapping[str, int], *, before: int, now: int, in_flight: bool = False
) -> list[list[str]]:
    """Return the splits that each subtask continues."""
    places = {split: SplitPosition(1) for split in "bcd"}
    progress = Progress(places, ["a"], readers, before, in_flight=in_flight)
    queue = SplitQueue("numbers", ScriptedSource[int](1), now, progress)
    return [[one.split.id for one in queue.begun(subtask)] for subtask in range(now)]


def test_with_the_same_parallelism_each_subtask_continues_its_splits() -> None:
    assert dealt({"b": 1, "c": 0, "d": 1}, before=2, now=2) == [["c"], ["b", "d"]]


@pytest.mark.parametrize(("now", "expected"), [(1, [["b", "c", "d"]]), (3, [["b"], ["c"], ["d"]])])
def test_with_another_parallelism_splits_are_dealt_in_turn(
    now: int, expected: list[list[str]]
) -> None:
    assert dealt({"b": 1, "c": 1, "d": 1}, before=2, now=now) == expected


@pytest.mark.parametrize(
    ("now", "expected"), [(2, [["b", "d"], ["c"]]), (4, [[], ["c"], ["b", "d"], []])]
)
def test_with_another_parallelism_splits_follow_their_records_in_flight(
    now: int, expected: list[list[str]]
) -> None:
    assert dealt({"b": 2, "c": 1, "d": 2}, before=3, now=now, in_flight=True) == expected


def test_splits_of_checkpoints_without_their_readers_are_dealt_in_turn() -> None:
    assert dealt({}, before=2, now=2) == [["b", "d"], ["c"]]


def test_a_checkpoint_tells_which_subtask_has_read_a_split() -> None:
    stored = source_progress("numbers", Progress({"b": SplitPosition(7, 2)}, ["a"]), subtask=3)

    read = read_progress("numbers", stored, parallelism=4)

    assert read == Progress({"b": SplitPosition(7, 2)}, frozenset({"a"}), {"b": 3}, 4)


def test_records_of_a_split_keep_their_order_over_a_restart_although_another_split_has_ended(
    tmp_path: Path,
) -> None:
    """Calls under way are repeated in their subtask, and so are the queued ones."""
    scripts: dict[str, list[Line[Row]]] = {
        "a": [("a", 0)],
        "b": [*_rows(0, 3), Pause(timedelta(seconds=0.1)), Crash(), *_rows(3, 6)],
    }
    source = ScriptedSource.of_splits(scripts)
    sink, flow = CollectSink[list[int]](), af.Flow("asking")
    asked = flow.source(source, name="rows").map_async(_slow_at_first, name="ask")
    asked.key_by(_split).fold(_empty, _with_number, name="numbers").to(sink, name="out")

    run_flow(
        flow,
        parallelism=2,
        checkpointing=af.Checkpointing(every=timedelta(milliseconds=20), storage=tmp_path),
        restart=af.restart.FixedDelay(1, delay=timedelta(0)),
    )

    assert sink.values[-1] == [0, 1, 2, 3, 4, 5]


def _rows(start: int, end: int) -> list[Row]:
    return [("b", number) for number in range(start, end)]


async def _slow_at_first(row: Row) -> Row:
    await asyncio.sleep(1.0 if row[1] < 3 else 0.01)
    return row


def _split(row: Row) -> str:
    return row[0]


def _empty() -> list[int]:
    return []


def _with_number(so_far: list[int], row: Row) -> list[int]:
    return [*so_far, row[1]]
