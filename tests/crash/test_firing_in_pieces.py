"""Jobs that are cancelled, or take checkpoints, while steps fire in pieces emit each result exactly once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import aflow as af
from aflow.connect import Sink
from aflow.runtime.pieces import ChainPieces
from aflow.testing import At, Pause, ScriptedSource, VirtualClock, virtual_time
from aflow.testing.scripted_source import Line
from tests.crash.test_in_process import checkpointing
from tests.crash.test_random_pipelines import Case, attempt, expected, found
from tests.operators.piece_steps import millis
from tests.runtime.checkpoints.ledger_sink import LedgerSink
from tests.runtime.impatient import ImpatientClock

pytestmark = pytest.mark.usefixtures("inline_threads")

RECORDS = 240


class Once(af.KeyedProcess[int, int, object]):
    """Emits the number of records of each key by a timer, many at the same time."""

    count = af.ValueState[int]("count", of=int)

    def process(self, value: int, ctx: af.Context[int]) -> None:
        ctx.state(self.count).set(ctx.state(self.count).get(0) + 1)
        ctx.set_event_timer((value // 60 + 1) * 600)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[object]:
        return [("timer", at, ctx.key, ctx.state(self.count).get(0))]


def pipeline(sink: Sink[str]) -> af.Flow:
    """Windows of every kind, timers and an outer join, which fire for sixty keys at a watermark."""
    script: list[Line[int]] = []
    for n in range(RECORDS):
        script.append(At(n, n * 10))
        if n % 20 == 19:
            script.append(Pause(millis(7)))
    flow = af.Flow("firing")
    timed = flow.source(ScriptedSource.of_splits({"only": script}), name="numbers").event_time(
        max_delay=millis(1)
    )
    keyed = timed.key_by(lambda n: n % 60)
    tumbling, sliding = af.Tumbling(millis(600)), af.Sliding(millis(1200), millis(600))
    streams: list[af.Stream[Any]] = [
        keyed.window(tumbling, lateness=millis(100)).fold(int, _plus, merge=_plus, name="tumbling"),
        keyed.window(sliding).fold(int, _plus, merge=_plus, name="sliding"),
        keyed.window(af.Session(millis(300))).fold(int, _plus, merge=_plus, name="session"),
        keyed.window(tumbling).apply(lambda ns: list(ns), name="lists"),
        keyed.window(
            tumbling, trigger=af.triggers.Purging(af.triggers.ContinuousEventTime(millis(300)))
        ).apply(lambda ns: list(ns), name="early"),
        keyed.process(Once(), name="timers"),
        keyed.interval_join(
            timed.filter(lambda n: n % 2 == 0, name="even").key_by(lambda n: n % 60),
            between=(millis(-10), millis(400)),
        ).left(lambda one, two: ("pair", one, two), name="joined"),
    ]
    rows = [
        stream.map(str, name=f"row {number}").map(f"{number} {{}}".format, name=f"text {number}")
        for number, stream in enumerate(streams)
    ]
    rows[0].union(*rows[1:]).rebalance().to(sink, name="out")
    return flow


def _plus(one: int, other: int) -> int:
    return one + other


@pytest.fixture(scope="module")
def rows() -> list[str]:
    sink = af.CollectSink[str]()

    async def main() -> None:
        await pipeline(sink).run(options=af.Options(clock=VirtualClock()))

    virtual_time.run(main)
    return sorted(sink.values)


@dataclass
class Postponed:
    """Counts what checkpoints had to postpone."""

    count: int = 0


@pytest.fixture
def postponed(monkeypatch: pytest.MonkeyPatch) -> Postponed:
    counted = Postponed()
    original = ChainPieces.when_finished

    def when_finished(chain: ChainPieces, work: Any, *, urgent: bool = False) -> None:
        counted.count += bool(chain.unfinished)
        original(chain, work, urgent=urgent)

    monkeypatch.setattr(ChainPieces, "when_finished", when_finished)
    return counted


@pytest.fixture(autouse=True)
def cheap_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Omit what takes long for the state of each step that is restored in more than two pieces."""
    monkeypatch.setattr("aflow.runtime.checkpoints.restoration.can_keep_objects", lambda: False)


@pytest.mark.slow
# Checkpoints postpone barriers in the last mode only.
@pytest.mark.parametrize(
    ("mode", "seed"), [("aligned", 0), ("timeout", 1), ("unaligned", 0), ("unaligned", 1)]
)
def test_jobs_that_are_cancelled_while_they_fire_give_each_result_once(
    mode: str, seed: int, rows: list[str], postponed: Postponed, tmp_path: Path
) -> None:
    ledger = LedgerSink[str](delay=0.001)
    random = Random(seed)
    events: list[af.JobEvent] = []

    async def start(*, cancelled: bool) -> None:
        job = pipeline(ledger).start(
            parallelism=random.choice([1, 1, 2, 3]),
            options=af.Options(clock=ImpatientClock(), channel_records=8, batch_records=1),
            checkpointing=replace(checkpointing(mode, tmp_path / "checkpoints"), every=millis(5)),
            on_event=events.append,
        )
        async with job:
            if cancelled:
                await asyncio.sleep(random.randrange(10, 90) / 1000)
                for _ in range(random.randrange(200)):
                    await asyncio.sleep(0)
                await job.cancel()
            else:
                await job.wait()

    async def main() -> None:
        for _ in range(4):
            await start(cancelled=True)
        await start(cancelled=False)

    virtual_time.run(main, seed=seed)

    assert sorted(ledger.values) == rows
    assert any(isinstance(event, af.restart.JobRestored) for event in events)
    # Other barriers are postponed only where a task that reads a source fires.
    assert postponed.count or mode != "unaligned"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
def test_random_pipelines_that_fire_in_pieces_give_each_result_once(
    seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    case = Case.drawn(random)
    sinks = [LedgerSink[Any](delay=delay) for delay in case.delays]

    async def main() -> None:
        for number in range(4):
            await attempt(
                case, random, sinks, tmp_path, last=number == 3, fixed=2, clock=ImpatientClock
            )

    virtual_time.run(main, seed=seed)

    assert found(sinks) == expected(case)
