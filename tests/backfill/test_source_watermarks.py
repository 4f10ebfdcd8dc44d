"""A flow on watermarks of its source over history: they have no effect there, and the live job continues with them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import aflow as af
from aflow.testing import At, ScriptedSource, VirtualClock, Watermark, virtual_time
from aflow.testing.scripted_source import Line
from tests.backfill.locally import backfill_locally

UNTIL = 500

Row = tuple[int, int, int]


def numbers() -> list[int]:
    """Timestamps of records that are out of order by less than 20 ms."""
    random = Random(4)
    return sorted(range(0, 1000, 3), key=lambda at: at + random.randrange(20))


def at_of(number: int) -> int:
    return number


def third(number: int) -> int:
    return number % 9 // 3


def plus(total: int, number: int) -> int:
    return total + number


def row_of(window: af.Windowed[int, int]) -> Row:
    return window.key, window.window.start, window.value


def flow_over(source: af.Source[int], sink: af.Sink[Row], late: af.Sink[int]) -> af.Flow:
    flow = af.Flow("marked")
    timed = flow.source(source, name="numbers").event_time(
        at_of, source_watermarks=True, name="time"
    )
    windows = timed.key_by(third, name="third").window(af.Tumbling(timedelta(milliseconds=70)))
    sums = windows.fold(int, plus, name="sums")
    sums.map(row_of, name="row").to(sink, name="out")
    sums.late.to(late, name="late")
    return flow


def source() -> ScriptedSource[int]:
    """The numbers, with a watermark after each tenth that is before all later ones."""
    left = numbers()
    lines: list[Line[int]] = []
    for index, at in enumerate(left):
        lines.append(At(at, at))
        if index % 10 == 9 and left[index + 1 :]:
            lines.append(Watermark(min(left[index + 1 :]) - 1))
    return ScriptedSource[int](*lines)


def test_history_and_the_live_job_have_the_results_of_one_live_job(tmp_path: Path) -> None:
    whole, live = af.CollectSink[Row](), af.CollectSink[Row]()
    late = af.CollectSink[int]()

    async def main() -> list[Row]:
        options = af.Options(clock=VirtualClock())
        await flow_over(source(), whole, late).run(options=options)
        done = await backfill_locally(
            flow_over(source(), af.CollectSink[Row](), af.CollectSink[int]()),
            {"numbers": numbers()},
            until=UNTIL,
            savepoint=tmp_path / "savepoint",
            options=options,
        )
        await flow_over(source(), live, late).run(
            parallelism=2,
            options=options,
            checkpointing=af.Checkpointing(
                every=timedelta(seconds=1), storage=tmp_path / "checkpoints"
            ),
            restore=tmp_path / "savepoint",
        )
        return list(done.results["out"])

    history = virtual_time.run(main)

    assert history
    assert live.values
    assert sorted([*history, *live.values]) == sorted(whole.values)
    assert late.values == []
