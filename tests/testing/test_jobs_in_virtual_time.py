"""Jobs that are started without the test kit's help use the virtual time of their loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import aflow as af
from aflow.model.time import Timestamp
from aflow.runtime.options import Options
from aflow.testing.virtual_time import VirtualClock, advance, virtual_time

START = 1_700_000_000_000


@dataclass
class Fixed:
    """A clock of the user's."""

    asked: list[Timestamp] = field(default_factory=list[Timestamp])

    def now(self) -> Timestamp:
        self.asked.append(1)
        return 1

    def steady(self) -> float:
        return 1.0


@virtual_time(start=START)
async def test_a_started_flow_uses_virtual_time_for_windows_of_processing_time() -> None:
    flow, source = af.Flow("windows"), af.PushSource[str]()
    out = af.CollectSink[tuple[int, int]]()
    windows = flow.source(source, name="source").key_by(lambda one: one, name="key")
    counts = windows.window(af.Tumbling(timedelta(minutes=1), domain=af.TimeDomain.PROCESSING))
    counts.apply(len, name="count").map(lambda one: (one.window.start, one.value)).to(out)

    async with flow.start() as job:
        await source.send("a")
        await advance(timedelta(minutes=2))
        found = list(out.values)
        await job.cancel()

    assert found == [(START - START % 60_000, 1)]


@virtual_time
async def test_a_started_flow_asks_its_generators_in_virtual_time() -> None:
    clock = VirtualClock()

    class FiveSecondsBehind:
        def on_event(self, value: int, timestamp: Timestamp) -> None:
            pass

        def on_periodic(self) -> Timestamp:
            return clock.now() - 5000

    flow, source = af.Flow("periodic"), af.PushSource[int]()
    flow.source(source, name="source").event_time(
        lambda at: at, generator=FiveSecondsBehind, name="time"
    ).to(af.CollectSink[int](), name="out")

    async with flow.start() as job:
        await source.send(0)
        await advance(timedelta(seconds=200))
        watermark = job.metrics().steps["time"].watermark
        await job.cancel()

    assert watermark is not None
    assert 194_000 < watermark <= 195_000


@virtual_time
async def test_a_clock_of_the_users_is_kept() -> None:
    clock, out = Fixed(), af.CollectSink[int]()
    flow = af.Flow("own clock")
    flow.source([1], name="source").ingestion_time(name="time").to(out, name="out")

    await flow.run(options=Options(clock=clock))

    assert clock.asked
