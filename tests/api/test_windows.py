"""Windows, triggers and evictors as users ask for them: in chains, in parallel, while the source is silent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.graph.plan_graph import to_text
from aflow.testing import At, FlowDriver, Pause, ScriptedSource, run_flow
from aflow.testing.virtual_time import run

SECOND = timedelta(seconds=1)


def numbers(*records: At[int] | Pause) -> tuple[af.Flow, af.Stream[int]]:
    """Numbers with event time and no delay."""
    flow = af.Flow("windows")
    return flow, flow.source(ScriptedSource[int](*records)).event_time()


def at(seconds: float, value: int = 1) -> At[int]:
    return At(value, int(seconds * 1000))


def collected(flow: af.Flow, stream: af.Stream[Any], parallelism: int = 1) -> list[Any]:
    sink = af.CollectSink[Any]()
    stream.to(sink)
    run_flow(flow, parallelism=parallelism)
    return sink.values


def as_rows(results: Iterable[af.Windowed[Any, Any]]) -> list[tuple[Any, int, int, Any]]:
    return [(one.key, one.window.start, one.firing, one.value) for one in results]


def staggered(
    source: af.Source[tuple[str, int]], offset: timedelta = timedelta(0)
) -> tuple[af.Flow, af.CollectSink[af.Windowed[str, int]]]:
    """Count names by event time in windows of 10 s with a random stagger."""
    flow, counts = af.Flow("staggered"), af.CollectSink[af.Windowed[str, int]]()
    (
        flow.source(source, name="names")
        .event_time(lambda named: named[1])
        .key_by(lambda named: named[0])
        .window(af.Tumbling(10 * SECOND, offset, stagger=af.windows.WindowStagger.RANDOM))
        .fold(int, lambda count, _: count + 1, name="counts")
        .to(counts)
    )
    return flow, counts


def test_the_drawn_graph_contains_the_stagger() -> None:
    flow, _ = staggered(af.PushSource[tuple[str, int]](), SECOND)

    assert "Tumbling(10s, offset 1s, random stagger)" in to_text(flow.plan())


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_staggered_windows_are_continued_after_a_restore_at_any_parallelism(
    parallelism: int, tmp_path: Path
) -> None:
    names = [f"name {number}" for number in range(20)]

    async def job() -> list[tuple[str, int, int]]:
        source = af.PushSource[tuple[str, int]]()
        flow, _ = staggered(source)
        first = FlowDriver(
            flow, parallelism=2, checkpointing=af.Checkpointing(every=None, storage=tmp_path / "a")
        )
        async with first:
            for name in names:
                await source.send((name, 20_000))
            await first.settle()
            await first.job.savepoint(tmp_path / "savepoint")
            await first.job.stop()
        source = af.PushSource[tuple[str, int]]()
        flow, counts = staggered(source)
        second = FlowDriver(
            flow,
            parallelism=parallelism,
            checkpointing=af.Checkpointing(every=None, storage=tmp_path / "b"),
            restore=tmp_path / "savepoint",
        )
        async with second:
            for name in names:
                await source.send((name, 20_000))
            await second.end()
        return [(one.key, one.window.end - one.window.start, one.value) for one in counts.values]

    assert sorted(run(job())) == sorted((name, 10_000, 2) for name in names)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_of_windows_run_in_a_chain_and_in_parallel(parallelism: int) -> None:
    flow, stream = numbers(*(at(second, second) for second in range(60)))
    per_ten = (
        stream.key_by(lambda n: n % 3)
        .window(af.Tumbling(10 * SECOND))
        .fold(int, lambda total, n: total + n, name="per ten seconds")
    )
    best = (
        per_ten.key_by(lambda _: "all")
        .window(af.Tumbling(30 * SECOND))
        .reduce(lambda a, b: max(a, b, key=lambda one: one.value), name="best")
    )

    rows = collected(flow, best, parallelism)

    assert [(one.window.start, one.value.key, one.value.value) for one in rows] == [
        (0, 2, 98),
        (30_000, 2, 218),
    ]


def test_windows_of_processing_time_fire_while_the_source_is_silent() -> None:
    fired: list[tuple[float, list[int]]] = []
    flow = af.Flow("silent")
    script = ScriptedSource[int](1, 2, Pause(25 * SECOND), 3, Pause(60 * SECOND))
    (
        flow.source(script)
        .window_all(af.Tumbling(10 * SECOND, domain=af.TimeDomain.PROCESSING))
        .apply(lambda values: values, name="ten seconds")
        .to(
            af.CallbackSink(
                lambda one: fired.append((asyncio.get_running_loop().time(), one.value))
            )
        )
    )

    run_flow(flow)

    assert [(round(time), values) for time, values in fired] == [(10, [1, 2]), (30, [3])]


def test_window_all_brings_everything_together_under_no_key() -> None:
    flow, stream = numbers(*(at(second, second) for second in range(6)))
    counted = stream.window_all(af.Tumbling(3 * SECOND)).fold(int, lambda n, _: n + 1, name="n")

    rows = collected(flow, counted, parallelism=2)

    assert as_rows(rows) == [(None, 0, 1, 3), (None, 3000, 1, 3)]


def test_count_windows_fire_when_they_are_full_and_slide_over_the_last_records() -> None:
    flow, stream = numbers(*(at(n, n) for n in range(7)))
    keyed = stream.key_by(lambda _: "all")
    by_three, sliding = af.CollectSink[Any](), af.CollectSink[Any]()
    keyed.window(af.Count(3)).apply(tuple, name="three").to(by_three)
    keyed.window(af.Count(4, slide=2)).apply(tuple, name="four").to(sliding)

    run_flow(flow)

    assert [one.value for one in by_three.values] == [(0, 1, 2), (3, 4, 5)]
    assert [one.value for one in sliding.values] == [(0, 1), (0, 1, 2, 3), (2, 3, 4, 5)]
    assert {one.window for one in by_three.values} == {af.windows.GLOBAL_WINDOW}
    assert [one.firing for one in by_three.values] == [1, 1]
    assert [one.firing for one in sliding.values] == [1, 2, 3]


def test_early_and_late_results_say_which_firing_they_are() -> None:
    script = (at(1), at(2), at(3), at(12), at(4), at(5), at(30))
    flow, stream = numbers(*script)
    trigger = af.triggers.EventTime[int](early=af.triggers.Count(2))
    counted = stream.window_all(
        af.Tumbling(10 * SECOND), trigger=trigger, lateness=10 * SECOND
    ).fold(int, lambda n, _: n + 1, name="n")

    rows = collected(flow, counted)

    assert [row for row in as_rows(rows) if row[1] == 0] == [
        (None, 0, 1, 2),
        (None, 0, 2, 3),
        (None, 0, 3, 4),
        (None, 0, 4, 5),
    ]


def test_sessions_with_a_gap_of_their_own_wait_as_long_as_each_record_says() -> None:
    flow, stream = numbers(at(0, 2), at(1, 9), at(8, 1), at(30, 1))
    patient = stream.window_all(af.windows.DynamicSession(lambda n: n * SECOND))

    rows = collected(flow, patient.apply(tuple, name="sessions"))

    assert [(one.window.start, one.window.end, one.value) for one in rows] == [
        (0, 10_000, (2, 9, 1)),
        (30_000, 31_000, (1,)),
    ]


class Report(af.WindowFunction[None, int, str]):
    """Count the windows of a key, and send small ones to a side output."""

    windows = af.ValueState("windows", of=int)
    small = af.Tag[int]("small")

    def process(self, value: int, ctx: af.WindowContext[None]) -> Iterable[str]:
        count = ctx.state(self.windows).get(0) + 1
        ctx.state(self.windows).set(count)
        if value < 2:
            ctx.side(self.small, value)
        yield f"window {count} at {ctx.window.start}: {value}"


def test_a_function_after_a_fold_has_its_window_and_state() -> None:
    flow, stream = numbers(at(1), at(2), at(11))
    reports = stream.window_all(af.Tumbling(10 * SECOND)).fold(
        int, lambda n, _: n + 1, name="n", then=Report()
    )
    small = af.CollectSink[int]()
    reports.side(Report.small).to(small)

    assert collected(flow, reports) == ["window 1 at 0: 2", "window 2 at 10000: 1"]
    assert small.values == [1]


class Halves(af.windows.WindowAssigner[int]):
    """A record is in the window of its sign."""

    def assign(self, value: int, timestamp: int) -> Sequence[af.TimeWindow]:
        return [af.TimeWindow(0, 100_000) if value < 0 else af.TimeWindow(100_000, 200_000)]


def test_an_assigner_of_ones_own_decides_by_the_value() -> None:
    flow, stream = numbers(at(1, -1), at(1, 5), at(2, -2))

    rows = collected(flow, stream.window_all(Halves()).apply(sum, name="halves"))

    assert as_rows(rows) == [(None, 0, 1, -3), (None, 100_000, 1, 5)]


# ------------------------------------------------------------------------------------------------------------ refusals


def keyed() -> af.KeyedStream[int, int]:
    return af.Flow("mistake").source([1]).key_by(lambda n: n)


class OnlyAssigns:
    def assign(self, value: object, timestamp: int) -> list[af.TimeWindow]:
        return []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: af.Session(timedelta(0)), "Session gap"),
        (lambda: af.windows.DynamicSession(5), "takes a function"),  # type: ignore[arg-type]
        (lambda: af.Count(0), "from 1 on"),
        (lambda: af.Count(3, slide=0), "slide of Count"),
        (lambda: af.Tumbling(SECOND, domain="processing"), "TimeDomain"),  # type: ignore[arg-type]
        (lambda: af.Tumbling(SECOND, stagger="random"), "WindowStagger.ALIGNED"),  # type: ignore[arg-type]
        (lambda: af.triggers.Count(0), "from 1 on"),
        (lambda: af.triggers.ContinuousEventTime(timedelta(0)), "ContinuousEventTime every"),
        (lambda: af.triggers.EventTime(early=3), "early= takes an aflow.triggers.Trigger"),  # type: ignore[arg-type]
        (lambda: af.evictors.Time(timedelta(0)), "evictors.Time size"),
        (lambda: keyed().window(af.Tumbling), "window\\(\\) takes windows"),  # type: ignore[arg-type]
        (lambda: keyed().window(SECOND), "window\\(\\) takes windows"),  # type: ignore[arg-type]
        (
            lambda: keyed().window(af.Tumbling(SECOND), trigger=af.triggers.Count),  # type: ignore[arg-type]
            r"trigger= takes an aflow.triggers.Trigger.*write Count\(…\)",
        ),
        (lambda: keyed().window(OnlyAssigns()), r"OnlyAssigns\.domain .* subclass WindowAssigner"),  # type: ignore[arg-type]
        (lambda: keyed().window(af.Global()), "needs a trigger"),
        (
            lambda: keyed().window(
                af.Tumbling(SECOND, domain=af.TimeDomain.PROCESSING),
                trigger=af.triggers.EventTime(),
            ),
            "these windows are in processing time",
        ),
        (
            lambda: keyed().window(
                af.Tumbling(SECOND, domain=af.TimeDomain.PROCESSING),
                trigger=af.triggers.Purging(af.triggers.EventTime()),
            ),
            "these windows are in processing time",
        ),
        (
            lambda: keyed().window(af.Count(3), trigger=af.triggers.Never()),
            "has a trigger of its own.*aflow.Global",
        ),
        (
            lambda: keyed().window(af.Global(), trigger=af.triggers.Never(), lateness=SECOND),
            "never ends",
        ),
        (
            lambda: keyed().window(
                af.Tumbling(SECOND, domain=af.TimeDomain.PROCESSING), lateness=SECOND
            ),
            "leave lateness out",
        ),
        (
            lambda: keyed().window(af.Session(SECOND)).fold(int, lambda a, b: a + b, name="sum"),
            r"step 'sum' \(window.fold\).*merge=",
        ),
        (
            lambda: (
                keyed()
                .window(af.Session(SECOND), trigger=af.triggers.Delta(1, lambda a, b: b - a))
                .apply(len, name="n")
            ),
            "on_merge",
        ),
        (
            lambda: keyed().window(af.Tumbling(SECOND)).process(Report, name="n"),  # type: ignore[arg-type]
            r"write Report\(\)",
        ),
    ],
    ids=itertools.count(),
)
def test_invalid_windows_are_refused_when_the_flow_is_defined(make: Any, message: str) -> None:
    with pytest.raises(af.FlowDefinitionError, match=message):
        make()
