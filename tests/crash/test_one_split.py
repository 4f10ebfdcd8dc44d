"""Late records of a source with one split are the same for any parallelism, scheduling and restart.

The records arrive out of order by more than the delay, so that some of them are late in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeAlias

import pytest

import aflow as af
from aflow.testing import At, Pause, ScriptedSource, VirtualClock, virtual_time
from tests.crash.branches import Event, Row, millis, numbers, windowed
from tests.crash.test_random_pipelines import barriers, checkpointing, options
from tests.runtime.checkpoints.ledger_sink import LedgerSink

pytestmark = pytest.mark.usefixtures("inline_threads")

COUNT = 150
DELAY = millis(40)

Step: TypeAlias = Callable[[af.KeyedStream[int, Event]], tuple[af.Stream[Row], af.Stream[Event]]]


def tumbling(keyed: af.KeyedStream[int, Event]) -> tuple[af.Stream[Row], af.Stream[Event]]:
    windows = keyed.window(af.Tumbling(millis(200)))
    summed = windows.fold(int, lambda total, one: total + one.n, name="tumbling")
    return summed.map(lambda one: windowed("tumbling", one)), summed.late


def with_lateness(keyed: af.KeyedStream[int, Event]) -> tuple[af.Stream[Row], af.Stream[Event]]:
    windows = keyed.window(af.Tumbling(millis(100)), lateness=millis(50))
    applied = windows.apply(numbers, name="with lateness", of=Event)
    return applied.map(lambda one: windowed("with lateness", one)), applied.late


def sliding(keyed: af.KeyedStream[int, Event]) -> tuple[af.Stream[Row], af.Stream[Event]]:
    windows = keyed.window(af.Sliding(millis(60), millis(30)))
    applied = windows.apply(numbers, name="sliding", of=Event)
    return applied.map(lambda one: windowed("sliding", one)), applied.late


def sessions(keyed: af.KeyedStream[int, Event]) -> tuple[af.Stream[Row], af.Stream[Event]]:
    found = keyed.sessions(millis(40), name="sessions", of=Event)
    rows = found.map(lambda one: (*windowed("sessions", one)[:-1], *numbers(one.value)))
    return rows, found.late


STEPS: Sequence[Step] = [tumbling, with_lateness, sliding, sessions]


def arrivals(random: Random) -> list[int]:
    """Numbers of events, out of order by up to 20 of them, which is 200 ms."""
    return sorted(range(COUNT), key=lambda n: n + random.uniform(0, 20))


def flow(step: Step, arrived: Iterable[int], sinks: Sequence[af.Sink[Row]]) -> af.Flow:
    script: list[At[Event] | Pause] = []
    for place, n in enumerate(arrived):
        script.append(At(Event(n), n * 10))
        if place % 10 == 9:
            script.append(Pause(millis(5)))
    flow = af.Flow("one split")
    events = flow.source(ScriptedSource[Event](*script), name="events").event_time(
        max_delay=DELAY, name="time"
    )
    results, late = step(events.key_by(lambda one: one.key, name="key"))
    results.to(sinks[0], name="results")
    late.map(lambda one: ("late", one.n), name="late row").to(sinks[1], name="late")
    return flow


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("seed", range(10))
def test_late_records_and_results_do_not_depend_on_parallelism_and_restarts(
    seed: int, step: Step, tmp_path: Path
) -> None:
    random = Random(seed)
    arrived = arrivals(random)
    sinks = [LedgerSink[Row](), LedgerSink[Row]()]
    starts = random.randint(1, 4)
    fixed = random.choice([None, random.randint(1, 4)])

    async def main() -> None:
        for number in range(starts):
            job = started(flow(step, arrived, sinks), random, tmp_path, fixed)
            await attempt(job, random, last=number == starts - 1)

    virtual_time.run(main, seed=seed)

    assert [sorted(sink.values, key=repr) for sink in sinks] == expected(step, arrived)


def started(flow: af.Flow, random: Random, folder: Path, fixed: int | None) -> af.Job:
    """A job with any options; with a parallelism from 1 to 4 unless that is ``fixed``.

    Only with a fixed one are there unaligned barriers: records in flight that are redistributed to another number of
    subtasks lose the watermarks between them.
    """
    chosen = options(random, folder)
    return flow.start(
        parallelism=fixed or random.randint(1, 4),
        options=replace(chosen, chaining=True) if fixed else chosen,
        checkpointing=checkpointing(
            random, folder / "checkpoints", barriers(random) if fixed else af.checkpoints.Aligned()
        ),
    )


async def attempt(job: af.Job, random: Random, *, last: bool) -> None:
    async with job:
        if last:
            await job.wait()
        else:
            await virtual_time.advance(millis(random.randrange(5, 70)))
            await job.cancel()


def expected(step: Step, arrived: Iterable[int]) -> list[list[Row]]:
    """The results and the late records of an undisturbed run with one subtask."""

    async def main() -> list[list[Row]]:
        sinks = [af.CollectSink[Row](), af.CollectSink[Row]()]
        await flow(step, arrived, sinks).run(options=af.Options(clock=VirtualClock()))
        assert sinks[1].values, "no record is late, so the test shows nothing"
        return [sorted(sink.values, key=repr) for sink in sinks]

    return virtual_time.run(main)
