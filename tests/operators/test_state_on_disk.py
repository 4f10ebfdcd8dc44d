"""Steps give the same results whether their state is in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import aflow as af
from aflow.testing import CollectSink
from aflow.testing.virtual_time import virtual_time

#: Each key has another record after many other keys.
RECORDS = [(f"key {at * 37 % 50}", at) for at in range(400)]


class Gaps(af.KeyedProcess[str, tuple[str, int], tuple[str, int]]):
    """Emits the time since the previous record of a key; its timer emits the last record."""

    last = af.ValueState("last", of=int)
    seen = af.ListState("seen", of=int)

    def process(self, value: tuple[str, int], ctx: af.Context[str]) -> Iterable[tuple[str, int]]:
        last = ctx.state(self.last)
        before = last.get()
        last.set(value[1])
        ctx.state(self.seen).add(value[1])
        ctx.set_event_timer(10_000)
        return [] if before is None else [(value[0], value[1] - before)]

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[tuple[str, int]]:
        return [(ctx.key, sum(ctx.state(self.seen).get()))]


async def results(state: af.backends.InMemory | af.backends.OnDisk) -> list[list[object]]:
    flow = af.Flow("all kinds")
    sinks = [CollectSink[object]() for _ in range(4)]
    keyed = flow.source(RECORDS).event_time(lambda r: r[1]).key_by(lambda r: r[0])
    keyed.process(Gaps(), name="gaps").to(sinks[0])
    keyed.fold(int, lambda total, r: total + r[1], name="sums").to(sinks[1])
    keyed.deduplicate(name="first").to(sinks[2])
    keyed.top(2, by=lambda r: r[1] * 7 % 11, name="best").to(sinks[3])
    await flow.run(options=af.Options(state=state, batch_records=16))
    return [list(sink.values) for sink in sinks]


@virtual_time
@pytest.mark.parametrize("engine", af.backends.DiskEngine, ids=lambda engine: engine.value)
async def test_results_do_not_depend_on_where_state_is(
    engine: af.backends.DiskEngine, tmp_path: Path
) -> None:
    expected = await results(af.backends.InMemory())

    found = await results(af.backends.OnDisk(engine, tmp_path, resident=5))

    assert found == expected
    assert all(found)
    assert list(tmp_path.iterdir()) == []
