"""The time of the first checkpoint."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.testing.virtual_time import VirtualClock, advance, run

SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("random", "pause", "at"),
    [(0.0, 4 * SECOND, 4), (0.5, 4 * SECOND, 7), (0.5, 0 * SECOND, 5), (0.5, 12 * SECOND, 12)],
)
def test_the_first_checkpoint_is_taken_after_the_pause_and_within_the_interval(
    tmp_path: Path, random: float, pause: timedelta, at: int
) -> None:
    flow = af.Flow("first")
    flow.source(af.PushSource[int]()).to(af.CollectSink[int]())

    async def main() -> list[int]:
        job = flow.start(
            checkpointing=af.Checkpointing(every=10 * SECOND, min_pause=pause, storage=tmp_path),
            options=af.Options(clock=VirtualClock(), random=lambda: random),
        )
        async with job:
            await advance(at * SECOND - MILLISECOND)
            before = job.metrics().checkpoints.completed
            await advance(2 * MILLISECOND)
            return [before, job.metrics().checkpoints.completed]

    assert run(main()) == [0, 1]
