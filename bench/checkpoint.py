"""``checkpoint``: cost of checkpoints: throughput, pause of a task with much state, start delay of a trigger."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import aflow as af
from bench.events import Event, make_events
from bench.harness import Budget, Measurement, percentile, run_async, timed
from bench.keyed_window import Totals, as_rows, windowed

#: Interval of checkpoints in the measurement of throughput.
EVERY = timedelta(seconds=1)
#: Maximum number of keys with state; one in ``ONE_IN`` changes between two checkpoints.
KEYS, ONE_IN = 1_000_000, 100
#: Number of measured pauses.
PAUSES = 50


class Latest(af.KeyedProcess[int, int, int]):
    """Keep the latest number of each key, and emit the preceding one."""

    latest = af.ValueState("latest", of=int)

    def process(self, value: int, ctx: af.Context[int]) -> Iterable[int] | None:
        """Emit nothing for the first number of a key."""
        state = ctx.state(self.latest)
        before = state.get()
        state.set(value)
        return None if before is None else (before,)


def measure(records: int, rounds: int) -> Measurement:
    """Measure; ``ratio`` is the throughput with a checkpoint every second divided by that without checkpoints."""
    # Measured first: with millions of live events the garbage collector dominates the pauses.
    pauses = run_async(_pauses(min(KEYS, records)))
    events = make_events(records)
    gc.freeze()  # garbage collection of the events is not part of a checkpoint
    try:
        without, with_checkpoints, per_run = _throughput(events, rounds)
        delays = run_async(_start_delays(events))
    finally:
        gc.unfreeze()
    return Measurement(
        "checkpoint",
        {
            "records": records,
            "seconds": round(with_checkpoints, 4),
            "records_per_s": round(records / with_checkpoints),
            "ratio": round(without / with_checkpoints, 3),
            "checkpoints_per_run": round(per_run, 1),
            "pause_p50_ms": round(percentile(pauses, 0.50), 2),
            "pause_p99_ms": round(percentile(pauses, 0.99), 2),
            "trigger_p50_ms": round(percentile(delays, 0.50), 3),
            "trigger_p99_ms": round(percentile(delays, 0.99), 3),
            "rounds": rounds,
            "verified": True,
        },
        [Budget("ratio", at_least=0.96), Budget("pause_p99_ms", at_most=15)],
    )


def _throughput(events: list[Event], rounds: int) -> tuple[float, float, float]:
    """Return the median seconds without and with checkpoints, and the mean number of checkpoints."""
    times: dict[bool, list[float]] = {False: [], True: []}
    counts: list[int] = []
    expected = as_rows(_windows(events, None, counts))
    for _ in range(rounds):
        for checkpoints in (False, True):
            with TemporaryDirectory() as folder:
                where = Path(folder) if checkpoints else None
                seconds, rows = timed(partial(_windows, events, where, counts))
            if as_rows(rows) != expected:
                raise SystemExit("checkpoint: a run returned a different result")
            times[checkpoints].append(seconds)
    return statistics.median(times[False]), statistics.median(times[True]), statistics.mean(counts)


def _windows(
    events: list[Event], folder: Path | None, counts: list[int]
) -> list[af.Windowed[str, Totals]]:
    flow, rows = af.Flow("keyed-window"), af.CollectSink[af.Windowed[str, Totals]]()
    flow.source(events).pipe(windowed).to(rows)
    settings = None if folder is None else af.Checkpointing(every=EVERY, storage=folder)

    async def main() -> None:
        async with flow.start(checkpointing=settings) as job:
            await job.wait()
            if settings is not None:
                counts.append(len(job.checkpoints))

    run_async(main())
    return rows.values


async def _pauses(keys: int) -> list[float]:
    """Return the pause (ms) of a task with ``keys`` keys in each checkpoint."""
    rng = random.Random(3)
    pushed = af.PushSource[int](capacity=keys)
    flow = af.Flow("pauses")
    keyed = flow.source(pushed, name="pushed").key_by(lambda n: n)
    keyed.process(Latest(), name="latest").to(af.CollectSink(), name="out")
    pauses: list[float] = []
    with TemporaryDirectory() as folder:
        settings = af.Checkpointing(every=None, storage=folder)
        async with flow.start(checkpointing=settings) as job:
            await pushed.send_many(range(keys))
            await _processed(job, keys)
            await job.checkpoint()
            for number in range(1, PAUSES + 1):
                await pushed.send_many(rng.sample(range(keys), keys // ONE_IN))
                await _processed(job, keys + number * (keys // ONE_IN))
                info = await job.checkpoint()
                pauses.append(max(one.sync_ms for one in info.subtasks))
            await job.cancel()
    return pauses


async def _processed(job: af.Job, records: int) -> None:
    while job.metrics().steps["latest"].records_in < records:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)


async def _start_delays(events: list[Event]) -> list[float]:
    """Return the delay (ms) from each trigger to its handling by the source, in a busy pipeline."""
    flow, rows = af.Flow("keyed-window"), af.CollectSink[af.Windowed[str, Totals]]()
    flow.source(events).pipe(windowed).to(rows)
    with TemporaryDirectory() as folder:
        settings = af.Checkpointing(every=timedelta(milliseconds=20), storage=folder)
        async with flow.start(checkpointing=settings) as job:
            await job.wait()
            # The last checkpoint follows the end of the load.
            completed = job.checkpoints[:-1] or job.checkpoints
            return [one.start_delay_ms for info in completed for one in info.subtasks]
