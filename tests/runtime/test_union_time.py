"""Event time of a union is that of the slowest of its streams, and of a source that of its slowest split."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

import aflow as af
from aflow.testing import At, FlowDriver, Pause, ScriptedSource, run_flow
from aflow.testing.virtual_time import virtual_time

Fired = tuple[int, float]
"""Start of a window (ms), and the time of its firing (s)."""


def windows(stream: af.Stream[int]) -> list[Fired]:
    """Return the firing times of one-second windows of records that are their own timestamps in ms."""
    fired: list[Fired] = []
    (
        stream.key_by(lambda _: "all")
        .window(af.Tumbling(timedelta(seconds=1)))
        .fold(int, lambda count, _: count + 1, name="count")
        .to(
            af.CallbackSink(
                lambda window: fired.append(
                    (window.window.start, asyncio.get_running_loop().time())
                )
            )
        )
    )
    return fired


def after(seconds: float) -> Pause:
    return Pause(timedelta(seconds=seconds))


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_slowest_stream_of_a_union_says_when_a_window_fires(parallelism: int) -> None:
    flow = af.Flow("union")
    fast = flow.source(ScriptedSource[int](100, 1_500, 2_500, after(60)), name="fast")
    slow = flow.source(
        ScriptedSource[int](200, after(10), 1_200, after(10), 2_200, after(40)), name="slow"
    )
    fired = windows(fast.event_time(lambda n: n).union(slow.event_time(lambda n: n)))

    run_flow(flow, parallelism=parallelism)

    assert fired == [(0, 10.0), (1_000, 20.0), (2_000, 60.0)]


def test_a_stream_of_a_union_that_is_idle_is_not_waited_for() -> None:
    flow = af.Flow("idle")
    fast = flow.source(ScriptedSource[int](100, 1_500, after(600)), name="fast")
    silent = flow.source(ScriptedSource[int](200, after(600)), name="silent")
    fired = windows(
        fast.event_time(lambda n: n).union(
            silent.event_time(lambda n: n, idle_after=timedelta(seconds=30))
        )
    )

    run_flow(flow)

    assert fired == [(0, 30.001), (1_000, 600.0)]


def test_a_stream_of_a_union_that_has_ended_is_not_waited_for() -> None:
    flow = af.Flow("ended")
    long = flow.source(ScriptedSource[int](100, 1_500, after(600)), name="long")
    short = flow.source(ScriptedSource[int](200, after(5)), name="short")
    fired = windows(long.event_time(lambda n: n).union(short.event_time(lambda n: n)))

    run_flow(flow)

    assert fired == [(0, 5.0), (1_000, 600.0)]


def test_a_stream_without_event_time_holds_that_of_a_union_until_it_ends() -> None:
    flow = af.Flow("timeless")
    timed = flow.source(ScriptedSource[int](At(1, 100), At(1, 1_500), after(600)), name="timed")
    stamped = flow.source(ScriptedSource[int](after(300), At(1, 200)), name="stamped")
    fired = windows(timed.event_time().union(stamped))

    run_flow(flow)

    assert fired == [(0, 300.0), (1_000, 600.0)], "and none of its records is late"


class Beats:
    """A watermark generator that advances beyond the last record: by a second at each call."""

    def __init__(self) -> None:
        self.at = 0

    def on_event(self, value: int, timestamp: int) -> int | None:
        self.at = max(self.at, value)
        return None

    def on_periodic(self) -> int:
        self.at += 1_000
        return self.at


GENERATORS: list[tuple[Callable[[], af.watermarks.WatermarkGenerator[int]], list[Fired]]] = [
    (lambda: af.watermarks.Punctuated[int](lambda n, at: at - 1), [(0, 20.1)]),
    (lambda: af.watermarks.Periodic(lambda newest: newest - 1), [(0, 20.2)]),
    (Beats, [(0, 0.2)]),
]


@pytest.mark.parametrize(
    ("generator", "expected"), GENERATORS, ids=["punctuated", "periodic", "custom"]
)
@virtual_time
async def test_a_generator_of_the_user_follows_each_split_and_the_slowest_counts(
    generator: Callable[[], af.watermarks.WatermarkGenerator[int]], expected: list[Fired]
) -> None:
    flow = af.Flow("generators")
    script: dict[str, list[int | Pause]] = {
        "fast": [100, 1_500, after(100)],
        "slow": [200, after(20.1), 1_200, after(100)],
    }
    source: af.Source[int] = ScriptedSource.of_splits(script)
    fired = windows(flow.source(source).event_time(lambda n: n, generator=generator))

    async with FlowDriver(flow) as driver:
        await driver.advance(timedelta(seconds=30))
        await driver.job.cancel()

    assert fired[:1] == expected
