"""``restore``: start of a job from a checkpoint of as many keys as records, against reading the same bytes."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import aflow as af
from bench.checkpoint import Latest
from bench.harness import Budget, Measurement, run_async, timed

#: Records that verify the restored state.
MORE = 1_000


def measure(records: int, rounds: int) -> Measurement:
    """Measure; ``ratio`` is the time of a restore divided by that of reading its files."""
    restored: list[float] = []
    read: list[float] = []
    size = 0
    with TemporaryDirectory() as folder:
        run_async(_fill(Path(folder), records))
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        for _ in range(rounds):
            seconds, size = timed(lambda: sum(len(path.read_bytes()) for path in files))
            read.append(seconds)
            restored.append(run_async(_restore(Path(folder), records)))
    ours, plainly = statistics.median(restored), statistics.median(read)
    return Measurement(
        "restore",
        {
            "records": records,
            "bytes": size,
            "seconds": round(ours, 3),
            "keys_per_s": round(records / ours),
            "plain_read_seconds": round(plainly, 4),
            "ratio": round(ours / plainly, 1),
            "rounds": rounds,
            "verified": True,
        },
        [Budget("seconds", at_most=10)],
    )


def _flow(keys: int, more: int, before: af.CollectSink[int]) -> af.Flow:
    """Return a flow with a record for each of ``keys``, which fills the state, and for ``more``, which read it."""
    flow = af.Flow("restore")
    numbers = flow.source(range(keys), name="numbers")
    if more:
        numbers = numbers.union(flow.source(range(more), name="more"))
    keyed = numbers.key_by(lambda n: n, name="key")
    keyed.process(Latest(), name="latest").to(before, name="before")
    return flow


async def _fill(folder: Path, keys: int) -> None:
    settings = af.Checkpointing(every=None, storage=folder)
    await _flow(keys, 0, af.CollectSink()).run(checkpointing=settings)


async def _restore(folder: Path, keys: int) -> float:
    """Return the seconds until the job runs. Raises ``SystemExit`` if its state is not restored."""
    before = af.CollectSink[int]()
    with TemporaryDirectory() as elsewhere:
        started = time.perf_counter()
        settings = af.Checkpointing(every=None, storage=elsewhere)
        async with _flow(keys, MORE, before).start(checkpointing=settings, restore=folder) as job:
            seconds = time.perf_counter() - started
            await job.wait()
    if before.values != list(range(MORE)):
        raise SystemExit(f"restore: found {before.values[:3]} … in the state of the first keys")
    return seconds
