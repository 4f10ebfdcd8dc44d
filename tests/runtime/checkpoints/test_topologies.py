"""Pipelines of many shapes, cancelled at random moments and restored: each record counts once, in every mode."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest

import aflow as af
from aflow.runtime.checkpoints.settings import Barriers
from aflow.testing import At, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.virtual_time import virtual_time
from tests.runtime.checkpoints.ledger_sink import LedgerSink

pytestmark = pytest.mark.usefixtures("inline_threads")

Seen: TypeAlias = tuple[str, int, int]
"""The input of a record, the record, and the number of records of its key so far."""

MODES: dict[str, Barriers] = {
    "aligned": af.checkpoints.Aligned(),
    "alternating": af.checkpoints.Aligned(timeout=timedelta(milliseconds=100)),
    "unaligned": af.checkpoints.Unaligned(),
}

ODD = af.Tag[int]("odd")
RECORDS = 40
KEYS = 4


def source(first: int, seed: int) -> ScriptedSource[int]:
    """Numbers from ``first`` on, now many at once, now few; each is its own second of event time."""
    random = Random(seed)
    lines: list[At[int] | Pause] = []
    for number in range(first, first + RECORDS):
        lines.append(At(number, number * 1000))
        if random.random() < 0.3:
            lines.append(Pause(timedelta(milliseconds=random.randint(1, 900))))
    return ScriptedSource[int](*lines)


class Counting(af.KeyedProcess[int, int, Seen]):
    """Counts the records of each key."""

    count = af.ValueState("count", of=int)

    def __init__(self, side: str) -> None:
        self.side = side

    def process(self, value: int, ctx: af.Context[int]) -> Iterable[Seen]:
        count = (ctx.state(self.count).get() or 0) + 1
        ctx.state(self.count).set(count)
        yield self.side, value, count


class CountingBoth(af.CoProcess[int, int, int, Seen]):
    """Counts the records of each key of both inputs."""

    count = af.ValueState("count", of=int)

    def process_left(self, value: int, ctx: af.Context[int]) -> Iterable[Seen]:
        yield self._seen("left", value, ctx)

    def process_right(self, value: int, ctx: af.Context[int]) -> Iterable[Seen]:
        yield self._seen("right", value, ctx)

    def _seen(self, side: str, value: int, ctx: af.Context[int]) -> Seen:
        count = (ctx.state(self.count).get() or 0) + 1
        ctx.state(self.count).set(count)
        return side, value, count


class Split(af.ProcessFunction[int, int]):
    """Sends odd numbers to the side."""

    def process(self, value: int, ctx: af.ProcessContext) -> Iterable[int]:
        if value % 2:
            ctx.side(ODD, value)
        else:
            yield value


class Rules(af.BroadcastProcess[int, int, int, Seen]):
    """Emits each record, and each rule in each subtask with the number of rules."""

    rules = af.BroadcastState("rules", key=int, of=int)

    def process(self, value: int, ctx: af.BroadcastContext[int]) -> Iterable[Seen]:
        yield "record", value, 0

    def process_broadcast(self, value: int, ctx: af.ControlContext) -> Iterable[Seen]:
        rules = ctx.state(self.rules)
        rules.put(value, value)
        yield "rule", value, len(rules)


def by_key(value: int) -> int:
    return value % KEYS


def straight(flow: af.Flow, sink: LedgerSink[Seen], seed: int) -> None:
    numbers = flow.source(source(0, seed), name="a").rebalance().map(int, name="int")
    numbers.key_by(by_key).process(Counting("all"), name="count").to(sink, name="out")


def diamond(flow: af.Flow, sink: LedgerSink[Seen], seed: int) -> None:
    """Connect one source with a step by two paths."""
    numbers = flow.source(source(0, seed), name="a")
    left = numbers.rebalance().map(int, name="left").key_by(by_key)
    right = numbers.map(int, name="right").key_by(by_key)
    left.connect(right).process(CountingBoth(), name="count").to(sink, name="out")


def twice_the_same(flow: af.Flow, sink: LedgerSink[Seen], seed: int) -> None:
    """Connect one source with both inputs of a step directly."""
    numbers = flow.source(source(0, seed), name="a")
    both = numbers.key_by(by_key).connect(numbers.key_by(by_key))
    both.process(CountingBoth(), name="count").to(sink, name="out")


def two_inputs(flow: af.Flow, sink: LedgerSink[Seen], seed: int) -> None:
    left = flow.source(source(0, seed), name="a").key_by(by_key)
    right = flow.source(source(1000, seed + 1), name="b").rebalance().key_by(by_key)
    left.connect(right).process(CountingBoth(), name="count").to(sink, name="out")


def union(flow: af.Flow, sink: LedgerSink[Seen], seed: int) -> None:
    some = [flow.source(source(1000 * n, seed + n), name=f"source {n}") for n in range(3)]
    mixed = some[0].union(*some[1:]).key_by(by_key)
    mixed.process(Counting("all"), name="count").to(sink, name="out")


def sides(flow: af.Flow, sink: LedgerSink[Seen], seed: int) -> None:
    split = flow.source(source(0, seed), name="a").rebalance().process(Split(), name="split")
    even, odd = split.key_by(by_key), split.side(ODD).rebalance().key_by(by_key)
    even.connect(odd).process(CountingBoth(), name="count").to(sink, name="out")


def broadcast(flow: af.Flow, sink: LedgerSink[Seen], seed: int) -> None:
    """Send everything to each subtask, which keeps its own records."""
    numbers = flow.source(source(0, seed), name="a").broadcast().map(int, name="copies")
    # As many copies as subtasks; the first of each is counted.
    keyed = numbers.key_by(lambda n: n)
    firsts = keyed.process(Counting("copy"), name="copy").filter(lambda one: one[2] == 1)
    numbered = firsts.map(lambda one: one[1], name="number").key_by(by_key)
    numbered.process(Counting("all"), name="count").to(sink, name="out")


def rules(flow: af.Flow, sink: LedgerSink[Seen], seed: int) -> None:
    numbers = flow.source(source(0, seed), name="a").rebalance().key_by(by_key)
    control = flow.source(source(1000, seed + 1), name="b")
    numbers.connect_broadcast(control).process(Rules(), name="rules").to(sink, name="out")


SHAPES: dict[str, Callable[[af.Flow, LedgerSink[Seen], int], None]] = {
    one.__name__: one
    for one in (straight, diamond, twice_the_same, two_inputs, union, sides, broadcast, rules)
}


def built(shape: str, sink: LedgerSink[Seen], seed: int) -> af.Flow:
    flow = af.Flow(shape)
    SHAPES[shape](flow, sink, seed)
    return flow


def facts(sink: LedgerSink[Seen]) -> tuple[Counter[tuple[str, int]], Counter[tuple[int, int]]]:
    """Return the outputs, and the counts of each key: the order of keys may differ from run to run."""
    records = Counter((side, value) for side, value, _ in sink.values)
    counts = Counter((value % KEYS, count) for _, value, count in sink.values)
    assert records
    return records, counts


@cache
def uninterrupted(
    shape: str, seed: int, parallelism: int
) -> tuple[Counter[tuple[str, int]], Counter[tuple[int, int]]]:
    """Return the facts of a run that ends by itself."""
    sink = LedgerSink[Seen]()
    with TemporaryDirectory() as folder:
        checkpointing = af.Checkpointing(storage=folder)
        run_flow(built(shape, sink, seed), parallelism=parallelism, checkpointing=checkpointing)
    return facts(sink)


# The pipelines of all seeds take a quarter of a minute. `make unit` runs one seed.
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_does_not_show_that_a_pipeline_was_broken_off(
    tmp_path: Path, shape: str, mode: str, seed: int
) -> None:
    random, parallelism = Random(f"{shape} {mode} {seed}"), 1 + seed
    # Each mode and each parallelism has one and two concurrent checkpoints, and so has each shape.
    concurrent = 1 + (list(SHAPES).index(shape) + list(MODES).index(mode) + seed) % 2
    pieces = LedgerSink[Seen](delay=0.05)

    @virtual_time(seed=seed)
    async def run_in_pieces() -> int:
        runs = 0
        while True:
            runs += 1  # each run is a little longer, or a slow sink would never get a checkpoint
            async with built(shape, pieces, seed).start(
                parallelism=parallelism,
                options=af.Options(clock=VirtualClock(), batch_records=4, channel_records=6),
                checkpointing=af.Checkpointing(
                    every=timedelta(milliseconds=300 + 200 * seed),
                    storage=tmp_path,
                    barriers=MODES[mode],
                    max_concurrent=concurrent,
                ),
            ) as job:
                waiting = asyncio.ensure_future(job.wait())
                await asyncio.wait([waiting], timeout=random.uniform(0.3, 1.5) + 0.3 * runs)
                if waiting.done():
                    waiting.result()
                    return runs
                waiting.cancel()
                await job.cancel()

    runs = run_in_pieces()

    assert runs > 1
    assert facts(pieces) == uninterrupted(shape, seed, parallelism)
