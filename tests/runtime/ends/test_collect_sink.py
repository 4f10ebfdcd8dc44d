"""A sink that keeps everything."""

from __future__ import annotations

import pytest

from aflow.model.batch import Batch
from aflow.runtime.ends import CollectSink
from tests.runtime.ends.helpers import writer_of


@pytest.mark.asyncio
async def test_values_and_timestamps_are_kept_in_step() -> None:
    sink = CollectSink[str]()
    writer = await writer_of(sink)

    waits = [writer.write(Batch(["a", "b"], [1, 2])), writer.write(Batch(["c"]))]

    assert sink.values == ["a", "b", "c"]
    assert sink.timestamps == [1, 2, None]
    assert waits == [None, None]


@pytest.mark.asyncio
async def test_all_subtasks_and_later_jobs_write_to_the_same_lists() -> None:
    sink = CollectSink[int]()
    for subtask in (0, 1, 0):
        writer = await writer_of(sink, subtask=subtask, parallelism=2)
        writer.write(Batch([subtask]))
        await writer.flush()
        await writer.close()

    assert sink.values == [0, 1, 0]
