"""Async handlers of jobs that end at any time: the results of each key equal those of a synchronous process.

Both do the same, independently of the times of watermarks: records of a key are in one split, timers are set for
future times, and state of timers is separate from that of records. All state of a key is told at the end of
the input, by its last timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest

import aflow as af
from aflow.connect import Sink
from aflow.state.specs import StateSpec
from aflow.testing import At, Crash, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.scripted_source import Line
from tests.crash.async_branches import Row, Unavailable, millis, served
from tests.crash.job_ends import MODES, start_again
from tests.runtime.checkpoints.ledger_sink import LedgerSink

pytestmark = pytest.mark.usefixtures("inline_threads")

COUNT = 63
KEYS = 9
SPLITS = 3
LAST = 1_000_000

FAILED = af.Tag[af.calls.FailedCall[Any]]("failed")
THIRDS = af.Tag[Row]("thirds")


class Hopeless(Exception):
    """No attempt can succeed."""


@dataclass(frozen=True, slots=True)
class Record:
    """Number ``n``, at ``n * 10`` ms."""

    n: int

    @property
    def key(self) -> int:
        return self.n % KEYS

    @property
    def fails(self) -> bool:
        return self.n % 23 == 22

    @property
    def hangs(self) -> bool:
        return self.n % 61 == 60


class Seen(Protocol):
    """Methods of both contexts."""

    @property
    def key(self) -> int: ...
    def state(self, spec: StateSpec[Any]) -> Any: ...
    def side(self, tag: af.Tag[Any], value: Any) -> None: ...
    def set_event_timer(self, at: Any) -> None: ...
    def delete_event_timer(self, at: Any) -> None: ...


class Logic:
    """Actions for a record, and for a timer."""

    order = af.ValueState("order", of=int)
    numbers = af.ListState("numbers", of=int)
    counts = af.MapState("counts", key=int, of=int)
    most = af.ReducingState("most", max, of=int)
    rings = af.ListState("rings", of=int)
    ticks = af.ValueState("ticks", of=int)

    def record(self, one: Record, ctx: Seen) -> list[Row]:
        now = one.n * 10
        order = ctx.state(self.order)
        order.set((order.get(0) * 31 + one.n) % 1_000_003)
        ctx.state(self.numbers).add(one.n)
        counts = ctx.state(self.counts)
        counts.put(one.n % 5, counts.get(one.n % 5, 0) + 1)
        if one.n % 11 == 3:
            counts.remove(one.n % 5)
        ctx.state(self.most).add(one.n * 7919 % 1009)
        ctx.set_event_timer(now + 35)
        ctx.set_event_timer(now + 5 * one.key)
        if one.n % 2:
            ctx.set_event_timer(now + 600)
        else:
            # Set by another one, and not due before the records of this key are that far.
            ctx.delete_event_timer(now - KEYS * 10 + 600)
        ctx.set_event_timer(LAST)
        if one.n % 3 == 0:
            ctx.side(THIRDS, ("third", one.n, order.get()))
        return [("record", one.key, one.n, order.get())]

    def timer(self, at: int, ctx: Seen) -> list[Row]:
        if at == LAST:
            told = (self.order, self.most)
            kept = (ctx.state(self.numbers).get(), ctx.state(self.rings).get())
            counts = sorted(ctx.state(self.counts).items())
            return [("last", ctx.key, *(ctx.state(one).get() for one in told), *kept, counts)]
        rings = ctx.state(self.rings)
        rings.add(at)
        if at % 7 == 1:
            ctx.set_event_timer(at + 3)
        return [("timer", ctx.key, at, len(rings))]


class AtOnce(Logic, af.KeyedProcess[int, Record, Row]):
    def process(self, value: Record, ctx: af.Context[int]) -> list[Row]:
        if value.fails or value.hangs:
            ctx.side(THIRDS, ("failed", value.n))
            return []
        return self.record(value, ctx)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Row]:
        return self.timer(at, ctx)


class Waiting(Logic, af.AsyncKeyedProcess[int, Record, Row]):
    async def process(self, value: Record, ctx: af.AsyncContext[int]) -> list[Row]:
        if value.n % 4 == 0:
            await served(value.n)
        done = self.record(value, ctx)  # without effect if it fails now
        await served(value.n)
        if value.fails:
            raise Hopeless
        if value.hangs:
            await asyncio.sleep(3600)
        ctx.set_processing_timer(ctx.processing_time + value.n % 17)
        return done

    async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> list[Row]:
        if ctx.timer_domain is af.TimeDomain.PROCESSING:
            ctx.state(self.ticks).set(ctx.state(self.ticks).get(0) + 1)
            await served(at)
            return []
        done = self.timer(at, ctx)
        await served(at)
        return done


def pipeline(sink: Sink[Row], crashes: Random | None = None, *, at_once: bool = False) -> af.Flow:
    flow = af.Flow("handlers")
    records = flow.source(_source(crashes), name="records").event_time(max_delay=millis(40))
    keyed = records.key_by(lambda one: one.key)
    if at_once:
        done = keyed.process(AtOnce(), name="handle")
        failed = done.side(THIRDS)
    else:
        done = keyed.process_async(
            Waiting(),
            name="handle",
            capacity=5,
            retry=af.Retry(attempts=100, delay=millis(1), factor=1.3, jitter=0.5, on=Unavailable),
            timeout=millis(400),
            on_error=af.calls.DeadLetter(FAILED),
        )
        failed = done.side(THIRDS).union(done.side(FAILED).map(_number))
    windows = done.key_by(_kind).window(af.Tumbling(millis(100)))
    windows.fold(int, _one_more, name="windows").map(_window).union(done, failed).to(
        sink, name="out"
    )
    return flow


def _number(failed: af.calls.FailedCall[Any]) -> Row:
    return "failed", failed.value.n


def _kind(row: Row) -> str:
    return str(row[0])


def _one_more(so_far: int, _: Row) -> int:
    return so_far + 1


def _window(one: af.Windowed[str, int]) -> Row:
    return "window", one.key, one.window.start, one.value


def _source(crashes: Random | None) -> ScriptedSource[Record]:
    splits = [_script(range(split, COUNT, SPLITS)) for split in range(SPLITS)]
    if crashes is not None:
        split = crashes.choice(splits)
        split.insert(crashes.randrange(len(split) // 3, len(split)), Crash())
    return ScriptedSource.of_splits({f"split {n}": split for n, split in enumerate(splits)})


def _script(numbers: Iterable[int]) -> list[Line[Record]]:
    script: list[Line[Record]] = []
    for count, n in enumerate(numbers):
        script.append(At(Record(n), n * 10))
        if count % 4 == 3:
            script.append(Pause(millis(7)))
    return script


@pytest.fixture(scope="module")
def expected() -> list[Row]:
    sink = af.CollectSink[Row]()
    run_flow(pipeline(sink, at_once=True))
    return sorted(sink.values, key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("resident", [None, 2], ids=["in memory", "on disk"])
@pytest.mark.parametrize(("seed", "mode"), list(enumerate(MODES)))
def test_handlers_have_the_results_of_a_synchronous_process_whenever_jobs_end(
    seed: int, mode: str, resident: int | None, expected: list[Row], tmp_path: Path
) -> None:
    random = Random(f"{seed} {mode} {resident}")
    ledger = LedgerSink[Row](delay=random.choice([0.0, 0.001]))

    def begin() -> af.Job:
        # The crash is a line of the script, so it has to be the same one each time, or positions would shift.
        return pipeline(ledger, Random(seed)).start(
            parallelism=random.choice([1, 3, 2]),
            options=af.Options(
                clock=VirtualClock(),
                random=random.random,
                batch_records=random.choice([1, 7, 1024]),
                channel_records=random.choice([1, 8, 1024]),
                state=af.backends.InMemory()
                if resident is None
                else af.backends.OnDisk(resident=resident),
            ),
            checkpointing=af.Checkpointing(
                every=millis(random.choice([20, 50])), storage=tmp_path, barriers=MODES[mode]
            ),
            restart=af.restart.FixedDelay(5, delay=timedelta(0)),
        )

    start_again(begin, random, seed=seed, ends=random.randint(1, 3), within=150)

    assert sorted(ledger.values, key=repr) == expected
