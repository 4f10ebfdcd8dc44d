"""Windows and timers of jobs whose sources fall silent: event time advances with the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.testing import At, Pause, ScriptedSource, VirtualClock, run_flow, virtual_time
from aflow.testing.scripted_source import Line

MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)

Count = tuple[int, int, int]
"""Start of the window, number of records, and the second of the clock in which it fired."""


def counts(
    flow: af.Flow,
    splits: dict[str, Sequence[Line[int]]],
    sink: af.Sink[Count],
    late: af.Sink[int],
    *,
    advance_when_idle: bool = True,
    parallelism: int | None = None,
) -> None:
    """Count in windows of 10 s."""
    timed = flow.source(ScriptedSource.of_splits(splits), name="numbers").event_time(
        lambda at: at, idle_after=5 * SECOND, advance_when_idle=advance_when_idle
    )
    windows = timed.key_by(lambda at: "all", parallelism=parallelism).window(
        af.Tumbling(10 * SECOND)
    )
    counted = windows.fold(int, lambda n, _: n + 1, name="counts")
    counted.process(FiredAt()).to(sink, name="out")
    counted.late.to(late, name="late")


class FiredAt(af.ProcessFunction[af.Windowed[str, int], Count]):
    def process(self, value: af.Windowed[str, int], ctx: af.ProcessContext) -> list[Count]:
        return [(value.window.start, value.value, ctx.processing_time // 1000)]


def script(*lines: int | timedelta) -> list[Line[int]]:
    """Records at event times (ms), and pauses."""
    return [Pause(line) if isinstance(line, timedelta) else At(line, line) for line in lines]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_last_window_of_a_silent_source_fires_and_later_records_are_late(
    parallelism: int,
) -> None:
    flow, sink, late = af.Flow("silent"), af.CollectSink[Count](), af.CollectSink[int]()
    lines = script(1_000, 2_000, 60 * SECOND, 3_000, 70_000)
    counts(flow, {"all": lines}, sink, late, parallelism=parallelism)

    run_flow(flow)

    # The source is idle 5 s after its last record, at second 5. Event time is 2 s then, and 10 s eight seconds later.
    assert sink.values == [(0, 2, 13), (70_000, 1, 60)]
    assert late.values == [3_000]


def test_without_it_a_silent_source_does_not_fire_its_last_window() -> None:
    flow, sink, late = af.Flow("silent"), af.CollectSink[Count](), af.CollectSink[int]()
    lines = script(1_000, 2_000, 60 * SECOND, 3_000, 70_000)
    counts(flow, {"all": lines}, sink, late, advance_when_idle=False)

    run_flow(flow)

    assert sink.values == [(0, 3, 60), (70_000, 1, 60)]
    assert late.values == []


def test_an_active_split_is_not_held_back_by_a_silent_one_and_does_not_wait_for_the_clock() -> None:
    flow, sink, late = af.Flow("beside"), af.CollectSink[Count](), af.CollectSink[int]()
    busy = script(*(one for at in range(1, 9) for one in (at * 10_000, SECOND)))
    counts(flow, {"busy": busy, "silent": script(1_000, 60 * SECOND)}, sink, late)

    run_flow(flow, parallelism=2)

    starts = [start for start, _, _ in sink.values]
    assert starts == sorted(starts)
    # The silent split is idle from second 5 on: from then on the busy one fires its windows at once.
    assert [second for start, _, second in sink.values if 50_000 <= start < 80_000] == [5, 6, 7]
    assert late.values == []


def test_a_restored_job_continues_behind_no_watermark_that_was_sent(tmp_path: Path) -> None:
    sink, late = af.CollectSink[Count](), af.CollectSink[int]()
    lines = script(1_000, 2_000, 40 * SECOND, 3_000, 11_000, 40 * SECOND, 90_000)
    times: list[int] = []

    def begin() -> af.Job:
        flow = af.Flow("silent")
        counts(flow, {"all": lines}, sink, late)
        return flow.start(
            options=af.Options(clock=VirtualClock()),
            checkpointing=af.Checkpointing(every=SECOND, storage=tmp_path),
        )

    async def main() -> None:
        async with begin() as job:
            await asyncio.sleep(30)  # event time is 27 s
            await job.cancel()
        times.append(len(sink.values))
        async with begin() as job:
            await job.wait()

    virtual_time.run(main, start=0)

    assert times == [1]
    assert [(start, count) for start, count, _ in sink.values] == [(0, 2), (90_000, 1)]
    assert late.values == [3_000, 11_000]


def test_a_timer_fires_while_the_source_is_silent() -> None:
    fired: list[tuple[int, int]] = []

    class Soon(af.KeyedProcess[str, int, int]):
        def process(self, value: int, ctx: af.Context[str]) -> None:
            ctx.set_event_timer(value + 20_000)

        def on_timer(self, at: int, ctx: af.Context[str]) -> None:
            fired.append((at, ctx.processing_time // 1000))

    flow = af.Flow("timer")
    source = ScriptedSource.of_splits({"all": script(1_000, 90 * SECOND)})
    timed = flow.source(source).event_time(
        lambda at: at, idle_after=5 * SECOND, advance_when_idle=True
    )
    timed.key_by(lambda at: "all").process(Soon(), name="soon").to(af.CollectSink[int]())

    run_flow(flow)

    assert fired == [(21_000, 25)]


def test_it_is_refused_without_a_time_after_which_a_split_is_idle() -> None:
    stream = af.Flow("refused").source([1])

    with pytest.raises(af.errors.FlowDefinitionError, match="add idle_after"):
        stream.event_time(lambda at: at, advance_when_idle=True)
