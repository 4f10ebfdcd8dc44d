"""Watermarks and idleness that a source gives for each of its splits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.errors import FlowDefinitionError, SourceError
from aflow.testing import (
    At,
    CollectSink,
    Idle,
    Pause,
    ScriptedSource,
    VirtualClock,
    Watermark,
    run_flow,
    virtual_time,
)
from aflow.testing.scripted_source import Line

SECOND = timedelta(seconds=1)

Row = tuple[object, ...]
Script = Sequence[Line[int]]


def script(*lines: int | Watermark | Idle | timedelta) -> list[Line[int]]:
    """Records at event times (ms), marks, and pauses."""
    made: list[Line[int]] = []
    for line in lines:
        if isinstance(line, timedelta):
            made.append(Pause(line))
        else:
            made.append(At(line, line) if isinstance(line, int) else line)
    return made


class FiredAt(af.ProcessFunction[af.Windowed[str, int], Row]):
    """Add the second of the clock at which the window has fired."""

    def process(self, value: af.Windowed[str, int], ctx: af.ProcessContext) -> list[Row]:
        return [(value.window.start, value.value, ctx.processing_time // 1000)]


class Timed(af.KeyedProcess[int, int, Row]):
    """Emit the watermark that each record meets, and its timers."""

    def process(self, value: int, ctx: af.Context[int]) -> list[Row]:
        ctx.set_event_timer(value + 3)
        return [("record", value, ctx.watermark)]

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Row]:
        return [("timer", ctx.key, at)]


@dataclass
class Results:
    windows: CollectSink[Row] = field(default_factory=CollectSink[Row])
    late: CollectSink[int] = field(default_factory=CollectSink[int])
    timed: CollectSink[Row] = field(default_factory=CollectSink[Row])

    @property
    def all(self) -> tuple[list[Row], list[int], list[Row]]:
        return self.windows.values, self.late.values, self.timed.values


def flow_of(
    splits: Mapping[str, Script],
    results: Results,
    *,
    size: int = 10,
    idle_after: timedelta | None = None,
    advance_when_idle: bool = False,
    max_delay: timedelta | None = None,
) -> af.Flow:
    """Count in windows of ``size`` ms, on watermarks of the source, or generated ones with a ``max_delay``."""
    flow = af.Flow("given")
    timed = (
        flow.source(ScriptedSource.of_splits(splits), name="numbers")
        .map(lambda n: n)
        .event_time(
            source_watermarks=max_delay is None,
            max_delay=max_delay,
            idle_after=idle_after,
            advance_when_idle=advance_when_idle,
            name="time",
        )
    )
    windows = timed.key_by(lambda n: "all").window(af.Tumbling(size * timedelta(milliseconds=1)))
    counted = windows.fold(int, lambda n, _: n + 1, name="counts")
    counted.process(FiredAt(), name="fired").to(results.windows, name="windows")
    counted.late.to(results.late, name="late")
    timers = timed.key_by(lambda n: n % 3, parallelism=1, name="thirds").process(
        Timed(), name="timed"
    )
    timers.to(results.timed, name="rows")
    return flow


def run(splits: Mapping[str, Script], results: Results, **options: object) -> None:
    run_flow(flow_of(splits, results, **options))  # type: ignore[arg-type]  # as those of flow_of


def test_a_watermark_of_the_source_fires_windows_before_the_next_record() -> None:
    results = Results()

    run({"all": script(1, 12, Watermark(9), 5 * SECOND, 8, 15, Watermark(20), 60)}, results)

    # The first window fires at once, not with the record 5 s later, which is late.
    assert results.windows.values == [(0, 1, 0), (10, 2, 5), (60, 1, 5)]
    assert results.late.values == [8]


def test_a_watermark_needs_no_record() -> None:
    results = Results()

    run({"all": script(1, 2 * SECOND, Watermark(9), 2 * SECOND, Watermark(30), 40)}, results)

    assert results.windows.values == [(0, 1, 2), (40, 1, 4)]


def test_event_time_is_that_of_the_slowest_split() -> None:
    results = Results()
    slow = script(3, SECOND, Watermark(4), SECOND, 5, Watermark(11), 5 * SECOND, 33)
    fast = script(2, Watermark(100), 9 * SECOND)

    run({"slow": slow, "fast": fast}, results)

    assert results.windows.values == [(0, 3, 2), (30, 1, 7)]


def test_a_split_without_a_watermark_holds_event_time_back_until_it_ends() -> None:
    results = Results()

    run({"given": script(3, Watermark(50), 9 * SECOND), "none": script(4, 2 * SECOND)}, results)

    assert results.windows.values == [(0, 2, 2)]


def test_an_idle_split_does_not_hold_event_time_back_until_its_next_record() -> None:
    results = Results()
    quiet = script(1, Watermark(1), SECOND, Idle(), 4 * SECOND, 40, 3 * SECOND)
    busy = script(*(one for at in range(1, 8) for one in (at * 10, Watermark(at * 10), SECOND)))

    run({"quiet": quiet, "busy": busy}, results)

    # Idle from second 1 to 5, in which the watermark follows the busy split. Then it waits for the end of the other.
    assert results.windows.values == [
        *[(0, 1, 1), (10, 1, 1), (20, 1, 2), (30, 1, 3), (40, 1, 4)],
        *[(50, 1, 8), (60, 1, 8), (70, 1, 8)],
    ]
    assert results.late.values == [40]


def test_a_watermark_without_records_makes_an_idle_split_active() -> None:
    results = Results()
    quiet = script(1, Watermark(1), Idle(), SECOND, Watermark(15), 9 * SECOND)
    busy = script(2, Watermark(9), 2 * SECOND, 25, Watermark(30), 2 * SECOND)

    run({"quiet": quiet, "busy": busy}, results)

    # The watermark is 15 from second 2 on, so the window at 20 waits for the end of the quiet split.
    assert results.windows.values == [(0, 2, 0), (20, 1, 10)]


def test_idleness_of_a_split_counts_with_generated_watermarks_too() -> None:
    results = Results()
    quiet = script(1, Idle(), 9 * SECOND)
    busy = script(2, SECOND, 25, 2 * SECOND)

    run({"quiet": quiet, "busy": busy}, results, max_delay=timedelta(0))

    assert results.windows.values == [(0, 2, 1), (20, 1, 9)]


def test_a_watermark_counts_as_activity_for_idle_after() -> None:
    results = Results()
    slow = script(1, *(one for at in range(1, 6) for one in (2 * SECOND, Watermark(at))))

    run({"slow": slow, "busy": busy()}, results, idle_after=3 * SECOND)

    assert results.windows.values == [(0, 2, 10)]


def test_a_split_without_records_and_watermarks_is_idle_after_the_timeout() -> None:
    results = Results()

    run({"silent": script(1, 20 * SECOND), "busy": busy()}, results, idle_after=3 * SECOND)

    assert results.windows.values == [(0, 2, 3)]


def busy() -> list[Line[int]]:
    """Return a record, and the same watermark each second."""
    return script(2, *(one for _ in range(20) for one in (Watermark(30), SECOND)))


def test_the_clock_advances_event_time_while_the_source_calls_all_splits_idle() -> None:
    results = Results()
    lines = script(1_000, Watermark(1_000), Idle(), 60 * SECOND, 70_000, Watermark(70_000))

    run({"all": lines}, results, size=10_000, advance_when_idle=True)

    assert results.windows.values == [(0, 1, 9), (70_000, 1, 60)]


def test_aligned_sources_wait_for_the_watermarks_of_the_slowest() -> None:
    group = af.watermarks.Alignment("together", timedelta(milliseconds=20))
    flow, read, slow_sink = af.Flow("aligned"), CollectSink[Row](), CollectSink[Row]()
    fast = script(*(line for at in range(0, 100, 10) for line in (at, Watermark(at))))
    slow = script(*(line for at in range(0, 100, 10) for line in (SECOND, at, Watermark(at))))

    class Now(af.ProcessFunction[int, Row]):
        def process(self, value: int, ctx: af.ProcessContext) -> list[Row]:
            return [(value, ctx.processing_time // 1000)]

    for name, lines, sink in (("fast", fast, read), ("slow", slow, slow_sink)):
        source = ScriptedSource.of_splits({name: lines})
        timed = flow.source(source, name=name).event_time(
            source_watermarks=True, align=group, name=f"{name} time"
        )
        timed.process(Now(), name=f"{name} now").to(sink, name=f"{name} out")
    run_flow(flow)

    # In second s, the watermark of the slow one is 10 * (s - 1), and the fast one stops when it is above 20 ms more.
    assert read.values == [(10 * n, max(n - 2, min(n, 1))) for n in range(10)]


@given(
    lines=st.lists(
        st.one_of(st.integers(0, 60), st.integers(0, 60).map(Watermark), st.just(Idle())),
        max_size=40,
    ),
    limit=st.sampled_from([7, 1024]),
    parallelism=st.integers(1, 2),
)
@settings(max_examples=60)
def test_batches_do_not_change_results(
    lines: list[int | Watermark | Idle], limit: int, parallelism: int
) -> None:
    ascending = [Watermark(-1), *growing(lines)]

    def results_of(records: int, parallelism: int) -> tuple[list[Row], list[int], list[Row]]:
        results = Results()
        run_flow(
            flow_of({"all": script(*ascending)}, results),
            options=af.Options(batch_records=records),
            parallelism=parallelism,
        )
        return results.all

    assert results_of(limit, parallelism) == results_of(1, 1)


def growing(lines: Iterable[int | Watermark | Idle]) -> list[int | Watermark | Idle]:
    """Return the lines with watermarks that never go back; records are in any order, so some are late."""
    newest = 0
    grown: list[int | Watermark | Idle] = []
    for line in lines:
        if isinstance(line, Watermark):
            newest = max(newest, line.timestamp)
            grown.append(Watermark(newest))
        else:
            grown.append(line)
    return grown


def test_the_watermark_of_each_split_is_restored(tmp_path: Path) -> None:
    results = Results()
    lines = script(1, 12, Watermark(9), 20 * SECOND, 8, 30, Watermark(40))

    def begin(parallelism: int) -> af.Job:
        return flow_of({"all": lines, "idle": script(Idle(), 90 * SECOND)}, results).start(
            parallelism=parallelism,
            options=af.Options(clock=VirtualClock()),
            checkpointing=af.Checkpointing(every=SECOND, storage=tmp_path),
        )

    async def main() -> None:
        async with begin(2) as job:
            await asyncio.sleep(5)
            await job.cancel()
        async with begin(1) as job:
            await asyncio.sleep(60)  # the other split is idle from the start
            assert [(start, count) for start, count, _ in results.windows.values] == [
                (0, 1),
                (10, 1),
                (30, 1),
            ]
            await job.wait()

    virtual_time.run(main, start=0)

    assert results.late.values == [8]


def test_a_restored_reader_may_repeat_an_older_watermark(tmp_path: Path) -> None:
    source = Marked([Chunk([5], 1, [5], watermark=4), Chunk([30], 2, [30], watermark=20)])
    source.wait_after = 2
    sink = CollectSink[int]()

    def begin() -> af.Job:
        flow = af.Flow("again")
        flow.source(source, name="marked").event_time(source_watermarks=True, name="time").key_by(
            lambda n: 0
        ).window(af.Tumbling(timedelta(milliseconds=10))).fold(
            int, lambda n, _: n + 1, name="counts"
        ).map(lambda one: one.window.start).to(sink, name="out")
        return flow.start(
            options=af.Options(clock=VirtualClock()),
            checkpointing=af.Checkpointing(every=SECOND, storage=tmp_path),
        )

    async def main() -> None:
        async with begin() as job:
            await asyncio.sleep(5)
            await job.cancel()
        source.wait_after = None
        source.chunks.append(Chunk([25], 3, [25], watermark=7))
        async with begin() as job:
            await job.wait()

    virtual_time.run(main, start=0)

    # 20 was restored: 25 is in time, and 7 changes nothing.
    assert sink.values == [0, 20, 30]


class Marked(Source[int]):
    """Emits ``chunks``; the position is the number of chunks."""

    emits_watermarks = True

    def __init__(self, chunks: Sequence[Chunk[int]]) -> None:
        self.chunks = list(chunks)
        #: The number of chunks after which a reader waits for ever.
        self.wait_after: int | None = None

    async def splits(self) -> Sequence[Split]:
        return [Split("only")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return MarkedReader(self, position if isinstance(position, int) else 0)


class MarkedReader(Reader[int]):
    def __init__(self, source: Marked, start: int) -> None:
        self._source = source
        self._next = start

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._next == self._source.wait_after:
            await asyncio.Event().wait()
        if self._next == len(self._source.chunks):
            return None
        self._next += 1
        return replace(self._source.chunks[self._next - 1], position=self._next)


class Undeclared(Marked):
    emits_watermarks = False


BREACHES: dict[str, tuple[Source[int], str]] = {
    "backwards": (
        Marked([Chunk([1], 1, [1], watermark=9), Chunk([2], 2, [2], watermark=8)]),
        "source 'marked': split 'only': watermark 8 follows watermark 9; the watermarks of a split never go back",
    ),
    "undeclared": (
        Undeclared([Chunk([1], 1, [1], watermark=9)]),
        "does not declare that it emits any; set emits_watermarks = True",
    ),
    "naive": (
        Marked([Chunk([1], 1, [1], watermark=datetime(2026, 1, 1))]),  # noqa: DTZ001 - the error
        "the watermark of a chunk .* has no time zone",
    ),
    "end of time": (Marked([Chunk([1], 1, [1], watermark=2**63 - 1)]), "is not between"),
}


@pytest.mark.parametrize(("source", "message"), BREACHES.values(), ids=BREACHES)
@pytest.mark.parametrize("uses", [True, False])
def test_a_breach_of_the_contract_fails_the_job(
    source: Source[int], message: str, uses: bool
) -> None:
    flow = af.Flow("broken")
    numbers = flow.source(source, name="marked")
    if uses and source.emits_watermarks:
        numbers = numbers.event_time(source_watermarks=True)
    numbers.to(CollectSink[int](), name="out")

    with pytest.raises(SourceError, match=message):
        run_flow(flow)


def test_watermarks_may_be_datetimes() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    sink = CollectSink[Row]()
    flow = af.Flow("moments")
    source = Marked([Chunk([1], 1, watermark=moment), Chunk([2], 2)])

    class Seen(af.ProcessFunction[int, Row]):
        def process(self, value: int, ctx: af.ProcessContext) -> list[Row]:
            return [(value, ctx.watermark)]

    timed = flow.source(source).event_time(
        lambda n: moment + n * timedelta(days=1), source_watermarks=True
    )
    timed.process(Seen()).to(sink)
    run_flow(flow)

    assert sink.values[1] == (2, int(moment.timestamp() * 1000))


def test_watermarks_are_not_used_by_generated_event_time() -> None:
    results = Results()

    run({"all": script(1, Watermark(50), 12, 5, 30)}, results, max_delay=timedelta(0))

    assert results.late.values == [5]
    assert [row[:2] for row in results.windows.values] == [(0, 1), (10, 1), (30, 1)]


Made = Callable[[af.Stream[int]], af.Stream[int]]


async def _same(value: int) -> int:
    return value


REFUSED: dict[str, tuple[Made, str]] = {
    "exchange": (lambda s: s.rebalance(), "has no source in its task"),
    "call": (lambda s: s.map_async(_same, name="call"), "reads step 'call' .map_async."),
    "event time": (
        lambda s: s.event_time(lambda n: n, name="first"),
        "reads step 'first' .event_time.",
    ),
    "union": (lambda s: s.union(s.map(lambda n: n)), "has no source in its task|reads step"),
}


@pytest.mark.parametrize(("between", "message"), REFUSED.values(), ids=REFUSED)
def test_steps_that_records_may_overtake_or_wait_in_are_refused(
    between: Made, message: str
) -> None:
    flow = af.Flow("refused")
    numbers = flow.source(ScriptedSource[int](Watermark(1)), name="numbers")
    between(numbers).event_time(lambda n: n, source_watermarks=True, name="time").to(
        CollectSink[int](), name="out"
    )

    with pytest.raises(FlowDefinitionError, match=f"step 'time' .*({message})"):
        run_flow(flow, parallelism=2)


def test_it_is_refused_without_chaining() -> None:
    results = Results()

    with pytest.raises(FlowDefinitionError, match=r"Options\(chaining=True\)"):
        run_flow(
            flow_of({"all": script(1, Watermark(1))}, results),
            options=af.Options(chaining=False),
        )


def test_a_source_without_watermarks_is_refused() -> None:
    flow = af.Flow("refused")
    flow.source([1], name="list").event_time(lambda n: n, source_watermarks=True).to(
        CollectSink[int](), name="out"
    )

    with pytest.raises(FlowDefinitionError, match="source 'list', which emits none; omit"):
        run_flow(flow)


@pytest.mark.parametrize("seed", range(6))
def test_results_do_not_depend_on_ends_of_the_job(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    lines: list[int | Watermark | Idle | timedelta] = []
    newest = 0
    for n in range(120):
        lines.append(n + random.randint(0, 16))
        if random.random() < 0.3:
            newest = max(newest, n + random.randint(0, 12))
            lines.append(Watermark(newest))
        if random.random() < 0.05:
            lines.append(Idle())
        if random.random() < 0.1:
            lines.append(timedelta(milliseconds=3))
    expected, results = Results(), Results()
    run({"all": script(*lines)}, expected)

    async def main() -> None:
        for last in (False, False, True):
            job = flow_of({"all": script(*lines)}, results).start(
                parallelism=random.randint(1, 3),
                options=af.Options(clock=VirtualClock(), batch_records=random.choice([1, 5, 1024])),
                checkpointing=af.Checkpointing(
                    every=timedelta(milliseconds=5),
                    storage=tmp_path,
                    barriers=af.checkpoints.Aligned(),
                ),
            )
            async with job:
                if last:
                    await job.wait()
                else:
                    await virtual_time.advance(timedelta(milliseconds=random.randrange(4, 20)))
                    await job.cancel()

    virtual_time.run(main, seed=seed)

    assert expected.late.values
    assert [sorted(map(repr, some)) for some in results.all] == [
        sorted(map(repr, some)) for some in expected.all
    ]
