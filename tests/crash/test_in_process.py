"""Jobs that fail, or are cancelled, at any time and continue from their checkpoints emit each result exactly once.

As ``test_killed``, in one process and in virtual time: sources crash and are read again, jobs are cancelled between two
steps of the event loop, and the next attempt has another parallelism. Storage is a real folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

import aflow as af
from aflow.connect import Sink
from aflow.testing import At, Crash, Pause, ScriptedSource, VirtualClock, run_flow, virtual_time
from aflow.testing.scripted_source import Line
from tests.runtime.checkpoints.ledger_sink import LedgerSink

Row = tuple[object, ...]

MODES: dict[str, af.checkpoints.Aligned | af.checkpoints.Unaligned] = {
    "aligned": af.checkpoints.Aligned(),
    "timeout": af.checkpoints.Aligned(timeout=timedelta(milliseconds=3)),
    "unaligned": af.checkpoints.Unaligned(),
}
SEEDS = range(2)


class Halves(af.KeyedProcess[tuple[int, int], int, Row]):
    """Emits for each key and half second the number and the sum of its records, at its end."""

    values = af.ListState[int]("values", of=int)

    def process(self, value: int, ctx: af.Context[tuple[int, int]]) -> None:
        ctx.state(self.values).add(value)
        ctx.set_event_timer((ctx.key[1] + 1) * 500)

    def on_timer(self, at: int, ctx: af.Context[tuple[int, int]]) -> list[Row]:
        values = sorted(ctx.state(self.values).get())
        ctx.state(self.values).clear()
        return [("half", *ctx.key, at, values)]


def pipeline(numbers: ScriptedSource[int], marks: ScriptedSource[int], sink: Sink[Row]) -> af.Flow:
    """Windows, a running fold, an interval join, state with timers; all of it into one sink."""
    flow = af.Flow("crashing")
    delay = timedelta(milliseconds=200)
    left = flow.source(numbers, name="numbers").event_time(max_delay=delay)
    right = flow.source(marks, name="marks").event_time(max_delay=delay)
    keyed = left.key_by(lambda n: n % 5)
    sums = keyed.window(af.Tumbling(timedelta(milliseconds=300))).fold(int, _plus, name="windows")
    folded = right.key_by(lambda n: n % 4).fold(_nothing, _in_order, name="folded")
    joined = keyed.interval_join(
        right.key_by(lambda n: n % 5),
        between=(timedelta(milliseconds=-50), timedelta(milliseconds=100)),
    ).inner(_pair, name="joined")
    halves = left.map_batch(list).key_by(lambda n: (n % 3, n * 10 // 500))
    told = halves.process(Halves(), name="halves")
    sums.map(_window).union(folded, joined, told).rebalance().to(sink, name="out")
    return flow


def _window(sums: af.Windowed[int, int]) -> Row:
    return "window", sums.key, sums.window.start, sums.value


def _pair(one: int, other: int) -> Row:
    return "joined", one, other


def _nothing() -> Row:
    return "folded", 0, 0


def _plus(one: int, other: int) -> int:
    return one + other


def _in_order(so_far: Row, value: int) -> Row:
    """Emits marks in their order: all marks of a key are in one split."""
    before = so_far[2]
    assert isinstance(before, int)
    return "folded", value % 4, (before * 31 + value) % 9973


def numbers(crashes: Random | None = None) -> ScriptedSource[int]:
    """0 to 119 in three splits, number n at n * 10 ms; with ``crashes`` somewhere two among them."""
    splits = [_script(range(split, 120, 3), millis=10) for split in range(3)]
    if crashes is not None:
        for split in crashes.sample(splits, 2):
            split.insert(crashes.randrange(len(split) // 3, len(split)), Crash())
    return ScriptedSource.of_splits({f"n{number}": split for number, split in enumerate(splits)})


def marks() -> ScriptedSource[int]:
    """0 to 59 in two splits, one of the even and one of the odd ones, number n at n * 20 ms."""
    splits = {f"m{odd}": _script(range(odd, 60, 2), millis=20) for odd in range(2)}
    return ScriptedSource.of_splits(splits)


def _script(values: Iterable[int], *, millis: int) -> list[Line[int]]:
    """Return the values with some pauses, in which time advances and checkpoints are taken."""
    script: list[Line[int]] = []
    for count, value in enumerate(values):
        script.append(At(value, value * millis))
        if count % 4 == 3:
            script.append(Pause(timedelta(milliseconds=7)))
    return script


def options() -> af.Options:
    return af.Options(clock=VirtualClock(), channel_records=8)


def checkpointing(mode: str, storage: Path) -> af.Checkpointing:
    return af.Checkpointing(every=timedelta(milliseconds=20), storage=storage, barriers=MODES[mode])


@pytest.fixture(scope="module")
def expected() -> list[Row]:
    sink = af.CollectSink[Row]()
    run_flow(pipeline(numbers(), marks(), sink))
    return sorted(sink.values, key=repr)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_is_started_again_by_itself_gives_each_result_once(
    mode: str, parallelism: int, seed: int, expected: list[Row], tmp_path: Path
) -> None:
    ledger = LedgerSink[Row](delay=0.001)
    events: list[af.JobEvent] = []

    async def main() -> None:
        await pipeline(numbers(Random(seed)), marks(), ledger).run(
            parallelism=parallelism,
            options=options(),
            checkpointing=checkpointing(mode, tmp_path / "checkpoints"),
            restart=af.restart.FixedDelay(5, delay=timedelta(0)),
            on_event=events.append,
        )

    virtual_time.run(main, seed=seed)

    assert sorted(ledger.values, key=repr) == expected
    assert any(isinstance(event, af.restart.JobRestored) for event in events)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
def test_jobs_that_are_cancelled_and_started_with_another_parallelism_give_each_result_once(
    mode: str, seed: int, expected: list[Row], tmp_path: Path
) -> None:
    ledger = LedgerSink[Row](delay=0.001)
    random = Random(seed)
    events: list[af.JobEvent] = []

    async def start(*, cancelled: bool) -> None:
        job = pipeline(numbers(), marks(), ledger).start(
            parallelism=random.randint(1, 3),
            options=options(),
            checkpointing=checkpointing(mode, tmp_path / "checkpoints"),
            on_event=events.append,
        )
        async with job:
            if cancelled:
                await asyncio.sleep(random.randrange(20, 45) / 1000)
                await _steps(random.randrange(60))
                await job.cancel()
            else:
                await job.wait()

    async def main() -> None:
        for _ in range(4):
            await start(cancelled=True)
        await start(cancelled=False)

    virtual_time.run(main, seed=seed)

    assert sorted(ledger.values, key=repr) == expected
    assert any(isinstance(event, af.restart.JobRestored) for event in events)


async def _steps(count: int) -> None:
    """Run ``count`` passes of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)
