"""``unaligned``: duration of a checkpoint if the sink is slow and all channels upstream of it are full."""

from __future__ import annotations

import asyncio
import statistics
from tempfile import TemporaryDirectory

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow.runtime.checkpoints.settings import Barriers
from bench.harness import Budget, Measurement, run_async

#: Seconds that the sink sleeps for a batch.
SLOW = 0.02
#: More than the sink writes during the measurement.
ENOUGH = 10**12


class SlowSink(Sink[int]):
    """A sink that sleeps for each batch, and stores nothing."""

    async def writer(self, context: WriterContext) -> Writer[int]:
        """Return the slow writer."""
        return _SlowWriter()


class _SlowWriter(Writer[int]):
    async def write(self, batch: Batch[int]) -> None:
        await asyncio.sleep(SLOW)


def measure(records: int, rounds: int) -> Measurement:
    """Measure; ``ratio`` is the time of an unaligned checkpoint divided by that of an aligned one.

    ``records`` is the capacity of each channel.
    """
    aligned, _ = run_async(_durations(records, rounds, af.checkpoints.Aligned()))
    unaligned, in_flight = run_async(_durations(records, rounds, af.checkpoints.Unaligned()))
    if not in_flight:
        raise SystemExit("unaligned: nothing was in flight, so the sink did not hold anything up")
    ours, theirs = statistics.median(unaligned), statistics.median(aligned)
    return Measurement(
        "unaligned",
        {
            "records": records,
            "aligned_ms": round(theirs, 1),
            "unaligned_ms": round(ours, 1),
            "ratio": round(ours / theirs, 3),
            "records_in_flight": in_flight,
            "rounds": rounds,
            "verified": True,
        },
        [Budget("ratio", at_most=0.1)],
    )


async def _durations(records: int, rounds: int, barriers: Barriers) -> tuple[list[float], int]:
    """Return the milliseconds of each checkpoint, and the records in flight of the last one."""
    flow = af.Flow("slow")
    numbers = flow.source(range(ENOUGH), name="numbers").key_by(lambda n: n % 100)
    sums = numbers.fold(int, lambda total, n: total + n, name="sums")
    sums.rebalance().map(abs, name="downstream").rebalance().to(SlowSink(), name="slow")
    times: list[float] = []
    in_flight = 0
    with TemporaryDirectory() as folder:
        settings = af.Checkpointing(every=None, storage=folder, barriers=barriers)
        options = af.Options(channel_records=records)
        async with flow.start(parallelism=2, options=options, checkpointing=settings) as job:
            for _ in range(rounds):
                await asyncio.sleep(20 * SLOW)  # until all channels are full
                began = asyncio.get_running_loop().time()
                info = await job.checkpoint()
                times.append((asyncio.get_running_loop().time() - began) * 1000)
                in_flight = sum(one.in_flight_records for one in info.subtasks)
            await job.cancel()
    return times, in_flight
