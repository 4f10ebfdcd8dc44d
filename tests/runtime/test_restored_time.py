"""Event time advances after a restore without waiting for idle splits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.testing import Pause, ScriptedSource, advance, settle, virtual_time
from aflow.testing.scripted_source import Line

SECOND = timedelta(seconds=1)
SILENCE = Pause(1000 * SECOND)


def windows(
    scripts: dict[str, Sequence[Line[int]]],
    *,
    align: af.watermarks.Alignment | None = None,
    mixed: bool,
) -> tuple[af.Flow, af.CollectSink[int]]:
    """The starts of windows of a second that have fired."""
    flow, fired = af.Flow("restored"), af.CollectSink[int]()
    numbers = flow.source(ScriptedSource.of_splits(scripts), name="numbers")
    if mixed:
        numbers = numbers.partition_by(_by_split, parallelism=2)
    timed = numbers.event_time(lambda at: at, align=align, name="time")
    (
        timed.key_by(lambda at: at % 2)
        .window(af.Tumbling(SECOND))
        .apply(list, name="windows")
        .map(lambda one: one.window.start, name="starts")
        .to(fired, name="out")
    )
    return flow, fired


def _by_split(at: int, subtasks: int) -> int:
    return at % 10 % subtasks


@pytest.mark.parametrize(
    ("align", "mixed"),
    [(None, False), (None, True), (af.watermarks.Alignment("all", max_drift=2 * SECOND), False)],
)
def test_a_split_that_is_silent_after_a_restore_keeps_its_watermark(
    align: af.watermarks.Alignment | None, mixed: bool, tmp_path: Path
) -> None:
    ahead: list[Line[int]] = [3000, SILENCE]
    behind: list[Line[int]] = [1001, Pause(10 * SECOND), 1501, 2501, SILENCE]
    checkpointing = af.Checkpointing(every=None, storage=tmp_path)

    async def main() -> list[Sequence[int]]:
        found: list[Sequence[int]] = []
        for wait in (5 * SECOND, 20 * SECOND):
            flow, fired = windows({"ahead": ahead, "behind": behind}, align=align, mixed=mixed)
            async with flow.start(parallelism=2, checkpointing=checkpointing) as job:
                await advance(wait)
                await settle()
                found.append(list(fired.values))
                await job.checkpoint()
                await job.cancel()
        return found

    assert virtual_time.run(main) == [[], [1000]]
