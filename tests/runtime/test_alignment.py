"""Aligned sources: none is ahead of the slowest by more than allowed, and none waits for ever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import aflow as af
from aflow.errors import FlowDefinitionError
from aflow.model.time import Timestamp, to_timestamp
from aflow.testing import CollectSink, Crash, FlowDriver, Pause, ScriptedSource, run_flow
from aflow.testing.virtual_time import settle, virtual_time

DAY = 86_400_000
WEEK = af.watermarks.Alignment("flights", timedelta(days=7))
ONE_BY_ONE = af.Options(batch_records=1)
SECOND = Pause(timedelta(seconds=1))


def new_year() -> Timestamp:
    return to_timestamp(datetime(2013, 1, 1, tzinfo=UTC))


def aligned(
    flow: af.Flow,
    source: af.Source[int],
    name: str,
    *,
    align: af.watermarks.Alignment | None = WEEK,
    idle_after: timedelta | None = None,
) -> af.Stream[int]:
    """The records of ``source``, which are days of the year."""
    return flow.source(source, name=name).event_time(
        lambda day: new_year() + day * DAY,
        align=align,
        idle_after=idle_after,
        name=f"{name}'s time",
    )


def daily(first: int, last: int, *, every: Pause | None = None) -> ScriptedSource[int]:
    """Days ``first`` to ``last``, all at once, or one whenever ``every`` is over."""
    days = range(first, last + 1)
    if every is None:
        return ScriptedSource[int](*days)
    return ScriptedSource[int](*(line for day in days for line in (every, day)))


@dataclass
class Race:
    """The progress of sources, and the largest lead of one over the slowest that has not ended."""

    at: dict[str, int] = field(default_factory=dict[str, int])
    lead: int = 0

    def seen(self, who: str) -> Callable[[int], int]:
        """Return a function to be mapped over the days of ``who``."""

        def note(day: int) -> int:
            self.at[who] = day
            self.lead = max(self.lead, day - min(self.at.values()))
            return day

        return note


def race(
    sources: dict[str, af.Source[int]], *, align: af.watermarks.Alignment | None = WEEK, **more: Any
) -> tuple[af.Flow, Race, CollectSink[int]]:
    flow, watch, sink = af.Flow("race"), Race(), CollectSink[int]()
    first, *others = (
        aligned(flow, source, name, align=align, **more).map(watch.seen(name))
        for name, source in sources.items()
    )
    first.union(*others).to(sink)
    return flow, watch, sink


# ---------------------------------------------------------------------------- sources that are ahead


@pytest.mark.parametrize(("align", "lead"), [(WEEK, 8), (None, 364)])
def test_a_year_that_is_available_at_once_waits_for_one_that_arrives_day_by_day(
    align: af.watermarks.Alignment | None, lead: int
) -> None:
    flow, watch, sink = race(
        {"slow": daily(1, 365, every=SECOND), "fast": daily(1, 365)}, align=align
    )

    outcome = run_flow(flow, options=ONE_BY_ONE)

    assert sorted(sink.values) == sorted([*range(1, 366)] * 2)
    assert watch.lead <= lead
    assert outcome.took == timedelta(seconds=365)


def test_a_flight_in_december_waits_until_one_that_began_in_january_has_come_so_far() -> None:
    flow, watch, _ = race({"january": daily(1, 365, every=SECOND), "december": daily(335, 365)})
    order: list[str] = []

    class Noted(dict[str, int]):
        def __setitem__(self, who: str, day: int) -> None:
            super().__setitem__(who, day)
            order.append(f"{who} {day}")

    watch.at = Noted()
    run_flow(flow, options=ONE_BY_ONE)

    # One batch causes the watermark that shows its lead.
    assert order[0] == "december 335"
    assert order.index("december 336") > order.index("january 327")


def test_before_a_source_has_spoken_the_others_wait_for_it() -> None:
    flow, watch, _ = race({"late": daily(1, 100, every=SECOND), "early": daily(1, 100)})
    watch.at["late"] = 0

    run_flow(flow, options=ONE_BY_ONE)

    assert watch.lead <= 8


def test_a_batch_may_lead_beyond_the_drift_and_no_second_one() -> None:
    flow, watch, _ = race({"slow": daily(1, 200, every=SECOND), "fast": daily(1, 200)})

    run_flow(flow, options=af.Options(batch_records=30))

    assert 7 < watch.lead <= 8 + 30


class Waiting(af.KeyedProcess[str, int, int]):
    """Buffers each day until the watermark reaches it, as a join does."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.most = [0]

    def process(self, value: int, ctx: af.Context[str]) -> None:
        ctx.set_event_timer(new_year() + value * DAY)
        self.held.add(value)
        self.most[0] = max(self.most[0], len(self.held))

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[int]:
        day = (at - new_year()) // DAY
        self.held.remove(day)
        return [day]


@pytest.mark.parametrize(("align", "most"), [(WEEK, 9), (None, 365)])
def test_the_records_that_a_step_buffers_for_the_slow_source_are_bounded_by_the_drift(
    align: af.watermarks.Alignment | None, most: int
) -> None:
    flow, waiting, sink = af.Flow("year"), Waiting(), CollectSink[int]()
    fast = aligned(flow, daily(1, 365), "fast", align=align)
    slow = aligned(flow, daily(1, 365, every=SECOND), "slow", align=align)
    fast.union(slow).key_by(str).process(waiting, name="wait").to(sink)

    run_flow(flow, options=ONE_BY_ONE)

    assert sorted(sink.values) == sorted(range(1, 366))
    assert waiting.most[0] == most


def test_reading_ahead_stays_bounded_while_a_source_waits() -> None:
    queued: list[int] = []
    flow, watch, _ = race({"slow": daily(1, 300, every=SECOND), "fast": daily(1, 3_000)})
    job: list[af.Job] = []

    async def look() -> None:
        async with FlowDriver(flow, options=ONE_BY_ONE) as driver:
            job.append(driver.job)
            for _ in range(50):
                await driver.advance(timedelta(seconds=1))
                queued.extend(task.queued_records for task in driver.metrics.tasks)
            await driver.job.cancel()

    virtual_time(look)()

    assert watch.at["slow"] == 50
    assert 0 < max(queued) <= 4


def test_the_time_spent_waiting_for_others_is_neither_busy_nor_idle_nor_backpressured() -> None:
    flow, _, _ = race({"slow": daily(1, 20, every=SECOND), "fast": daily(1, 9)})

    tasks = run_flow(flow, options=ONE_BY_ONE).metrics.tasks
    spent = {
        task.name.split(" ")[0]: (task.aligning_s, task.idle_s, task.backpressured_s)
        for task in tasks
    }

    # Day 8 is within the drift once day 1 has come, day 9 with it, and the end needs no more than that day 9 is.
    assert spent["fast"] == (2.0, 0.0, 0.0)
    assert spent["slow"] == (0.0, 20.0, 0.0)


# -------------------------------------------------------------------- sources that are not waited for


def test_an_idle_source_is_not_waited_for() -> None:
    flow, watch, _ = race(
        {
            "silent": ScriptedSource[int](1, Pause(timedelta(hours=2)), 90),
            "fast": daily(1, 100),
        },
        idle_after=timedelta(minutes=1),
    )
    seen: list[float] = []

    class Noted(dict[str, int]):
        def __setitem__(self, who: str, day: int) -> None:
            super().__setitem__(who, day)
            if day == 100:
                seen.append(asyncio.get_running_loop().time())

    watch.at = Noted()
    run_flow(flow, options=ONE_BY_ONE)

    assert seen == [60.001]


@virtual_time
async def test_waiting_for_others_does_not_make_a_source_idle() -> None:
    """Otherwise a stream that is not aligned would advance time beyond the remaining records of the source."""
    flow, sums = af.Flow("late"), CollectSink[int]()
    slow, fast, free = (af.PushSource[int]() for _ in range(3))
    aligned(flow, slow, "slow").to(CollectSink[int]())
    waiting = aligned(flow, fast, "fast", idle_after=timedelta(minutes=1))
    counted = (
        waiting.union(aligned(flow, free, "free", align=None))
        .key_by(lambda _: "all")
        .window(af.Tumbling(timedelta(days=1)))
        .fold(int, lambda count, _: count + 1, name="count")
    )
    counted.map(lambda window: (window.window.start - new_year()) // DAY).to(sums)

    async with FlowDriver(flow) as driver:
        await driver.send(1, to="slow")
        await driver.send(100, to="fast")
        await driver.send(300, to="free")
        await driver.advance(timedelta(minutes=10))
        await driver.send(101, to="fast")
        await driver.send(101, to="slow")
        await driver.end()

    assert sums.values == [100, 101, 300]


def test_a_source_that_has_ended_is_not_waited_for() -> None:
    flow, watch, sink = race({"short": daily(1, 3), "long": daily(1, 300)})

    outcome = run_flow(flow, options=ONE_BY_ONE)

    assert outcome.took == timedelta(0)
    assert watch.at == {"short": 3, "long": 300}
    assert len(sink.values) == 303


def test_a_subtask_without_a_split_is_not_waited_for() -> None:
    splits = ScriptedSource.of_splits({"only": [*range(1, 100)]})
    flow, _, sink = race({"one": splits, "two": daily(1, 100)})

    outcome = run_flow(flow, parallelism=2, options=ONE_BY_ONE)

    assert outcome.took == timedelta(0)
    assert len(sink.values) == 199


def test_subtasks_of_one_source_wait_for_each_other() -> None:
    lines = {
        "slow": [line for day in range(1, 101) for line in (SECOND, day)],
        "fast": [*range(1, 101)],
    }
    flow, watch, sink = af.Flow("splits"), Race(), CollectSink[int]()
    aligned(flow, ScriptedSource.of_splits(lines), "both").map(
        lambda day: watch.seen(asyncio.current_task().get_name()[-3:])(day)  # type: ignore[union-attr]
    ).to(sink)

    run_flow(flow, parallelism=2, options=ONE_BY_ONE)

    assert set(watch.at) == {"[0]", "[1]"}
    assert watch.lead <= 8
    assert len(sink.values) == 200


def test_a_source_in_another_group_is_not_waited_for() -> None:
    flow, sink = af.Flow("groups"), CollectSink[int]()
    slow = aligned(
        flow, daily(1, 100, every=SECOND), "slow", align=af.watermarks.Alignment("a", timedelta(1))
    )
    fast = aligned(flow, daily(1, 100), "fast", align=af.watermarks.Alignment("b", timedelta(1)))
    seen: list[float] = []
    done = fast.filter(lambda day: day == 100).map(
        lambda _: seen.append(asyncio.get_running_loop().time())
    )
    slow.to(sink)
    done.to(CollectSink[None]())

    run_flow(flow, options=ONE_BY_ONE)

    assert seen == [0.0]


def test_three_sources_wait_for_the_slowest_of_them() -> None:
    flow, watch, sink = race(
        {
            "middle": daily(1, 60, every=SECOND),
            "slow": daily(1, 60, every=Pause(timedelta(seconds=3))),
            "fast": daily(1, 60),
        }
    )

    run_flow(flow, options=ONE_BY_ONE)

    assert watch.lead <= 8
    assert len(sink.values) == 180


@pytest.mark.parametrize("seed", range(25))
def test_with_any_sources_none_waits_for_ever_and_no_record_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    idle_after = chance.choice([None, timedelta(milliseconds=700)])
    align = af.watermarks.Alignment("all", timedelta(milliseconds=chance.choice([0, 5, 50])))
    scripts = [
        {name: any_script(chance) for name in "abc"[: chance.randint(1, 3)]}
        for _ in range(chance.randint(2, 3))
    ]
    flow, sink = af.Flow("any"), CollectSink[int]()
    for number, script in enumerate(scripts):
        source = flow.source(ScriptedSource.of_splits(script), name=f"source {number}")
        source.event_time(lambda n: n, align=align, idle_after=idle_after).to(sink)

    options = af.Options(batch_records=chance.choice([1, 3, 1024]))
    run_flow(flow, parallelism=chance.randint(1, 2), options=options, seed=seed)

    lines = [line for script in scripts for split in script.values() for line in split]
    assert sorted(sink.values) == sorted(line for line in lines if isinstance(line, int))


def any_script(chance: random.Random) -> list[int | Pause]:
    """Up to thirty records, each its own timestamp in ms and in order, and pauses between them."""
    lines: list[int | Pause] = []
    at = chance.randrange(100)
    for _ in range(chance.randrange(30)):
        at += chance.randrange(20)
        pause = chance.choice([10, 500, 1_000])
        lines.append(Pause(timedelta(milliseconds=pause)) if chance.random() < 0.2 else at)
    return lines


# -------------------------------------------------------------------------------- ends while waiting


@pytest.mark.parametrize("drain", [False, True])
@virtual_time
async def test_a_job_can_be_stopped_while_a_source_waits_and_read_records_are_processed(
    drain: bool,
) -> None:
    slow = af.PushSource[int]()
    flow, watch, _ = race({"slow": slow, "fast": daily(1, 1_000)})

    async with FlowDriver(flow, options=ONE_BY_ONE) as driver:
        await driver.send(1)
        await driver.settle()
        before = watch.at["fast"]
        await driver.job.stop(drain=drain)

    assert before == 9
    # Four batches were read ahead; while they are processed the reader, too, comes to its end.
    assert 9 + 4 <= watch.at["fast"] <= 9 + 8


@virtual_time
async def test_a_job_can_be_cancelled_while_a_source_waits() -> None:
    flow, watch, _ = race({"slow": af.PushSource[int](), "fast": daily(1, 1_000)})

    async with FlowDriver(flow, options=ONE_BY_ONE) as driver:
        await driver.settle()
        await driver.job.cancel()

    assert watch.at == {"fast": 1}


def test_the_failure_of_the_slow_source_ends_the_job_while_the_other_waits() -> None:
    flow, watch, _ = race(
        {"slow": ScriptedSource[int](1, SECOND, Crash()), "fast": daily(1, 1_000)}
    )

    with pytest.raises(af.errors.SourceError, match="a crash of the script"):
        run_flow(flow, options=ONE_BY_ONE)

    assert watch.at == {"slow": 1, "fast": 9}


class Ring(af.KeyedProcess[str, int, float]):
    """Sets a timer ten seconds after each record."""

    def process(self, value: int, ctx: af.Context[str]) -> None:
        ctx.set_processing_timer(ctx.processing_time + 10_000)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[float]:
        return [asyncio.get_running_loop().time()]


@virtual_time
async def test_timers_ring_in_the_chain_of_a_source_that_waits() -> None:
    flow, rang = af.Flow("ring"), CollectSink[float]()
    aligned(flow, af.PushSource[int](), "slow").to(CollectSink[int]())
    aligned(flow, daily(1, 9), "fast").key_by(str).process(Ring(), name="ring").to(rang)

    async with FlowDriver(flow) as driver:
        await driver.send(1)
        await driver.advance(timedelta(seconds=30))
        await settle()
        await driver.job.cancel()

    assert rang.values
    assert set(rang.values) == {10.0}


# -------------------------------------------------------------------------------------- refusals


def test_after_an_exchange_no_source_can_wait() -> None:
    flow = af.Flow("behind")
    days = flow.source(daily(1, 3), name="days").rebalance(2)
    days.event_time(lambda n: n, align=WEEK, name="time").to(CollectSink[int]())

    with pytest.raises(FlowDefinitionError, match=r"step 'time' is aligned .* directly after the"):
        run_flow(flow)


def test_two_drifts_of_one_group_are_refused() -> None:
    flow = af.Flow("drifts")
    aligned(flow, daily(1, 3), "one").to(CollectSink[int]())
    other = af.watermarks.Alignment("flights", timedelta(hours=36))
    aligned(flow, daily(1, 3), "two", align=other).to(CollectSink[int]())

    with pytest.raises(FlowDefinitionError, match=r"\"two's time\" .*'flights' .* 36h, .* 7d"):
        run_flow(flow)


def test_a_source_that_is_aligned_twice_might_wait_for_itself() -> None:
    flow = af.Flow("twice")
    days = aligned(flow, daily(1, 3), "days")
    days.event_time(lambda n: n, align=WEEK, name="again").to(CollectSink[int]())

    with pytest.raises(FlowDefinitionError, match=r"'days' .* \"days's time\" and 'again'"):
        run_flow(flow)


def test_without_chaining_no_source_can_wait_and_the_error_names_the_remedy() -> None:
    flow, _, _ = race({"one": daily(1, 3), "two": daily(1, 3)})

    with pytest.raises(FlowDefinitionError, match=r"Options\(chaining=True\)"):
        run_flow(flow, options=af.Options(chaining=False))


@pytest.mark.parametrize(
    ("group", "drift", "message"),
    [
        ("", timedelta(1), "name of a group, not ''"),
        (7, timedelta(1), "name of a group, not 7"),
        ("g", timedelta(-1), "max_drift must not be negative"),
        ("g", 5, "max_drift must be a timedelta"),
        ("g", timedelta(microseconds=3), "whole milliseconds"),
    ],
)
def test_an_alignment_that_makes_no_sense_is_refused(group: Any, drift: Any, message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=message):
        af.watermarks.Alignment(group, drift)


def test_a_value_that_is_no_alignment_is_refused() -> None:
    with pytest.raises(
        FlowDefinitionError, match=r"align takes an aflow\.watermarks\.Alignment, not 'flights'"
    ):
        aligned(af.Flow("wrong"), daily(1, 3), "days", align="flights")  # type: ignore[arg-type]
