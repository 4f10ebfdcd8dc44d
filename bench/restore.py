"""``restore``: start of a job from as many keys as records: from a checkpoint, and from the savepoint of a backfill.

Each start runs in a new process, which measures its memory, and how long another coroutine waits. The delays have a
budget with ``SUBTASKS`` subtasks: a dict of one subtask with a million keys grows in pieces of 20 to 60 ms
(docs/decisions/047).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import statistics
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

import aflow as af
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.state.snapshot import STATES
from bench.checkpoint import Latest
from bench.harness import Budget, Measurement, percentile, run_async
from bench.visits import Visit, build, visits, write_backfill

#: Records that verify the restored state.
MORE = 1_000
#: Time of these records.
LATER = 1 << 40
#: Keys of a first start, which loads the modules: a service has loaded them before it restarts a job.
FIRST = 100
#: Subtasks of the starts whose delays have a budget.
SUBTASKS = 4
#: Seconds between two ticks of the host.
TICK = 0.001


@dataclass
class Start:
    """A start of a job."""

    seconds: float = 0.0
    """Until the job runs."""
    by_hand: float = 0.0
    """Seconds of decoding the same rows into dicts."""
    ticks: list[float] = field(default_factory=list[float])
    """Delay (ms) of each tick of a coroutine of the host."""
    rss: float = 0.0
    """Most memory of the process (MB), with the interpreter and the modules."""


def measure(records: int, rounds: int) -> Measurement:
    """Measure; ``ratio`` is the time of a restore divided by that of decoding the same rows by hand."""
    with TemporaryDirectory() as name:
        live, backfill = Path(name) / "live", Path(name) / "backfill"
        run_async(fill(live, records))
        run_async(write_backfill(backfill, records))
        starts = {
            "": (live, False, 1),
            "subtasks_": (live, False, SUBTASKS),
            "backfill_": (backfill, True, 1),
            "backfill_subtasks_": (backfill, True, SUBTASKS),
        }
        figures: dict[str, float] = {}
        for prefix, (folder, is_backfill, subtasks) in starts.items():
            made = [in_new_process(folder, records, is_backfill, subtasks) for _ in range(rounds)]
            figures |= _figures(made, prefix)
    seconds = figures["seconds"]
    return Measurement(
        "restore",
        {
            "records": records,
            "keys_per_s": round(records / seconds),
            **figures,
            "rounds": rounds,
            "verified": True,
        },
        [
            Budget("seconds", at_most=4),
            Budget("subtasks_tick_p99_ms", at_most=10),
            Budget("subtasks_tick_max_ms", at_most=20),
            Budget("backfill_seconds", at_most=4),
            Budget("backfill_subtasks_tick_p99_ms", at_most=10),
            Budget("backfill_subtasks_tick_max_ms", at_most=20),
            Budget("backfill_rss_mb", at_most=700),
        ],
    )


def _figures(starts: list[Start], prefix: str) -> dict[str, float]:
    seconds = statistics.median(one.seconds for one in starts)
    ratio = statistics.median(one.seconds / one.by_hand for one in starts)
    # On a busy machine a tick waits for other programs too: the best round has the least of that.
    best = min(starts, key=lambda one: max(one.ticks))
    return {
        f"{prefix}seconds": round(seconds, 3),
        f"{prefix}ratio": round(ratio, 2),
        f"{prefix}tick_p99_ms": round(percentile(best.ticks, 0.99), 2),
        f"{prefix}tick_max_ms": round(max(best.ticks), 2),
        f"{prefix}rss_mb": round(max(one.rss for one in starts)),
    }


def in_new_process(folder: Path, keys: int, backfill: bool, subtasks: int) -> Start:
    """Start a job in a process of its own. Raises ``SystemExit`` if its state is not restored."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(start_and_decode, folder, keys, backfill, subtasks).result()


def start_and_decode(folder: Path, keys: int, backfill: bool, subtasks: int) -> Start:
    """Start a job in this process, and decode its state by hand. Raises ``SystemExit`` if it is not restored."""
    with TemporaryDirectory() as first:
        run_async(fill(Path(first), FIRST))
        run_async(_restore_live(Path(first), FIRST, 1))
    restore = _restore_backfill if backfill else _restore_live
    start = run_async(restore(folder, keys, subtasks))
    start.rss = _most_memory()
    start.by_hand = run_async(_decode_by_hand(folder))
    return start


def _most_memory() -> float:
    """Return the most memory of this program so far (MB)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    # `ru_maxrss` may be that of the program that has started this one.
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


async def _decode_by_hand(folder: Path) -> float:
    """Return the seconds in which a program reads the files and decodes each row into a dict."""
    decode = msgspec.msgpack.decode
    started = time.perf_counter()
    restored = await read_checkpoint(folder)
    found: list[dict[Any, Any]] = []
    for snapshot in restored.states.values():
        for names in snapshot.keyed.values():
            for name, rows in names.items():
                if name != STATES:
                    found.append({decode(key): decode(data) for key, data in rows})
    return time.perf_counter() - started


@asynccontextmanager
async def _started(job: af.Job, start: Start) -> AsyncGenerator[None]:
    """Start ``job``, and measure the time, and the delays of a coroutine of the host; the block runs after it."""

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK)
            start.ticks.append((time.perf_counter() - before - TICK) * 1000)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.02)
    start.ticks.clear()
    began = time.perf_counter()
    async with job:
        start.seconds = time.perf_counter() - began
        ticking.cancel()
        yield


def _flow(keys: int, more: int, before: af.CollectSink[int]) -> af.Flow:
    """Return a flow with a record for each of ``keys``, which fills the state, and for ``more``, which read it."""
    flow = af.Flow("restore")
    numbers = flow.source(range(keys), name="numbers")
    if more:
        numbers = numbers.union(flow.source(range(more), name="more"))
    keyed = numbers.key_by(lambda n: n, name="key")
    keyed.process(Latest(), name="latest").to(before, name="before")
    return flow


async def fill(folder: Path, keys: int) -> None:
    """Write a checkpoint with the state of ``keys``."""
    settings = af.Checkpointing(every=None, storage=folder)
    await _flow(keys, 0, af.CollectSink()).run(checkpointing=settings)


async def _restore_live(folder: Path, keys: int, subtasks: int) -> Start:
    start, before = Start(), af.CollectSink[int]()
    more = min(MORE, keys)
    with TemporaryDirectory() as elsewhere:
        settings = af.Checkpointing(every=None, storage=elsewhere)
        flow = _flow(keys, more, before)
        job = flow.start(checkpointing=settings, restore=folder, parallelism=subtasks)
        async with _started(job, start):
            await job.wait()
    if sorted(before.values) != list(range(more)):
        raise SystemExit(f"restore: found {before.values[:3]} … in the state of the first keys")
    return start


async def _restore_backfill(folder: Path, keys: int, subtasks: int) -> Start:
    start, counts = Start(), af.CollectSink[tuple[str, int]]()
    more = min(MORE, keys)
    source = af.PushSource[Visit](capacity=more)
    with TemporaryDirectory() as elsewhere:
        settings = af.Checkpointing(every=None, storage=elsewhere)
        flow = build(source, counts)
        job = flow.start(checkpointing=settings, restore=folder, parallelism=subtasks)
        async with _started(job, start):
            await source.send_many(visits(range(more), at=LATER))
            source.close()
            await job.wait()
    if sorted(counts.values) != sorted((f"customer-{number}", 2) for number in range(more)):
        raise SystemExit(f"restore: found {counts.values[:3]} … in the state of the first keys")
    return start
