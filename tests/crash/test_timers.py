"""Event timers of jobs that end at any time: results equal those of a run without an end, and with batches of one.

Each result depends on the position of timers among the records. One split is read, and each subtask has one channel, so
the order of the records is the same in each run. Restored jobs have other batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

import aflow as af
from aflow.connect import Sink
from aflow.testing import At, Crash, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.scripted_source import Line
from tests.crash.async_branches import Row, millis
from tests.crash.job_ends import MODES, start_again
from tests.runtime.checkpoints.ledger_sink import LedgerSink

pytestmark = pytest.mark.usefixtures("inline_threads")

COUNT = 120
KEYS = 5
DELAY = 25

Seen = tuple[int, int]
"""Key and time of a record."""

ODD = af.Tag[Row]("odd")


class _Counts(af.KeyedProcess[int, Any, Row]):
    """Emit the number of records before each timer; some timers are set for the past."""

    count = af.ValueState("count", of=int)

    def counted(self, value: Any, at: int, ctx: af.Context[int]) -> Row:
        count = ctx.state(self.count)
        count.set(count.get(0) + 1)
        ctx.set_event_timer(at + (at * 7) % 43)
        if at % 4 == 0:
            ctx.delete_event_timer(at + 11)
        if at % 3 == 0:
            ctx.side(ODD, ("odd", ctx.key, at, ctx.watermark))
        return ("record", ctx.key, value, count.get(), ctx.watermark)

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[Row]:
        if at % 5 == 0:
            ctx.set_event_timer(at + 2)
        return [("timer", ctx.key, at, ctx.state(self.count).get())]


class Counting(_Counts):
    def process(self, value: Seen, ctx: af.Context[int]) -> Iterable[Row]:
        return [self.counted(value[1], value[1], ctx)]


class Counted(_Counts):
    """The same for results of other steps."""

    def process(self, value: Any, ctx: af.Context[int]) -> Iterable[Row]:
        assert ctx.timestamp is not None
        return [self.counted(value, ctx.timestamp, ctx)]


class Awaiting(af.AsyncKeyedProcess[int, Row, Row]):
    """Emit the number of results before each timer."""

    count = af.ValueState("count", of=int)

    async def process(self, value: Row, ctx: af.AsyncContext[int]) -> Iterable[Row]:
        await asyncio.sleep(ctx.processing_time * 7 % 11 / 1000)
        count = ctx.state(self.count)
        count.set(count.get(0) + 1)
        assert ctx.timestamp is not None
        ctx.set_event_timer(ctx.timestamp + 9)
        return [("awaited", ctx.key, *value, count.get())]

    async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> Iterable[Row]:
        await asyncio.sleep(at % 7 / 1000)
        return [("awaited timer", ctx.key, at, ctx.state(self.count).get())]


def pipeline(sink: Sink[Row], crashes: Random | None = None) -> af.Flow:
    flow = af.Flow("timers")
    source = ScriptedSource.of_splits({"all": script(crashes)})
    records = flow.source(source, name="records").event_time(
        lambda seen: seen[1], max_delay=millis(DELAY)
    )
    apart = records.key_by(lambda seen: seen[0], parallelism=2).process(Counting(), name="apart")

    single = records.key_by(lambda seen: seen[0], parallelism=1, name="single")
    first = single.process(Counting(), name="first")
    awaited = first.key_by(_key, parallelism=1, name="by key").process_async(
        Awaiting(), name="awaited", capacity=4
    )
    # The order of timers of several keys at one time is not stored.
    again = first.key_by(_key, parallelism=1, name="by key again")
    last = again.process(Counted(), name="last")
    odd = first.side(ODD).key_by(lambda row: 0, parallelism=1, name="odd")
    windows = single.window(af.Session(millis(4))).apply(len, name="sessions")
    counted = windows.key_by(lambda one: one.key, parallelism=1, name="by key of window")
    last.union(
        apart,
        awaited,
        odd.process(Counted(), name="odd rows"),
        counted.process(Counted(), name="counted"),
    ).map(_plain).to(sink, name="out")
    return flow


def _key(row: Row) -> int:
    return cast("int", row[1])  # of all rows


def _plain(row: Row) -> Row:
    return tuple(map(str, row))


def script(crashes: Random | None) -> list[Line[Seen]]:
    random = Random(3)
    moments = sorted(
        (random.randrange(COUNT * 2) for _ in range(COUNT)),
        key=lambda at: at + random.randint(0, DELAY + 8),  # some are late
    )
    lines: list[Line[Seen]] = []
    for number, at in enumerate(moments):
        lines.append(At((random.randrange(KEYS), at), at))
        if number % 9 == 8:
            lines.append(Pause(millis(5)))
    if crashes is not None:
        lines.insert(crashes.randrange(len(lines) // 3, len(lines)), Crash())
    return lines


@pytest.fixture(scope="module")
def expected() -> list[Row]:
    sink = af.CollectSink[Row]()
    run_flow(pipeline(sink), options=af.Options(batch_records=1))
    return sorted(sink.values, key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(2))
def test_timers_fire_between_the_same_records_whenever_jobs_end(
    seed: int, mode: str, expected: list[Row], tmp_path: Path
) -> None:
    random = Random(f"{seed} {mode}")
    ledger = LedgerSink[Row](delay=random.choice([0.0, 0.001]))
    # Records that were in flight between two tasks lose the watermarks between them if the tasks are one now.
    chainings = [True, False] if mode == "aligned" else [random.choice([True, False])]

    def begin() -> af.Job:
        # The crash is a line of the script, so it has to be the same one each time, or positions would shift.
        return pipeline(ledger, Random(seed)).start(
            options=af.Options(
                clock=VirtualClock(),
                random=random.random,
                batch_records=random.choice([1, 7, 1024]),
                channel_records=random.choice([1, 8, 1024]),
                chaining=random.choice(chainings),
            ),
            checkpointing=af.Checkpointing(
                every=millis(random.choice([3, 20])), storage=tmp_path, barriers=MODES[mode]
            ),
            restart=af.restart.FixedDelay(5, delay=timedelta(0)),
        )

    start_again(begin, random, seed=seed, ends=random.randint(1, 4), within=80)

    assert sorted(ledger.values, key=repr) == expected
