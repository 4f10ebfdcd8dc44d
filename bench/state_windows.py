"""Windows on disk: count and sum by key in one long window of many keys, against a program that calls RocksDB.

Each key has two records, and all keys are visited before the first one is visited again. So nearly every record
reads and writes the database, whatever the cache. At the end the window fires for all keys. aflow holds one key in a
hundred in memory. The program by hand gets, decodes, encodes and puts for each record, and reads the range of the
window at its end. Both write without a log.

Each run is a process of its own, which measures its CPU time and its largest resident memory. The job also runs with
a hundredth of the keys: the growth of its cost per record is the price of the size.
"""

from __future__ import annotations

import multiprocessing
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

import aflow as af
from aflow.state.disk.rocksdb import rocksdict
from bench.harness import Budget, Measurement, run_async

#: Records of a key.
VISITS: Final = 2
#: One key in ``RESIDENT`` fits into memory.
RESIDENT: Final = 100
#: The job is also measured with a ``SMALL``-th of the keys.
SMALL: Final = 100
#: Size of the window (ms); all records are in the first one.
DAY: Final = 86_400_000
#: A prime: keys that are multiples of it, modulo another number, are in no order.
STRIDE: Final = 2_654_435_761

RATIO: Final = 0.5
GROWTH: Final = 2.0
#: Bytes of resident memory.
MEMORY: Final = 1 << 30

Totals = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Run:
    """The measured costs of a program: CPU time (s) and largest resident memory (bytes), and its sums."""

    seconds: float
    memory: int
    results: int
    counted: int
    total: int


@dataclass(slots=True)
class Sums:
    """Sums over the results of a program."""

    results: int = 0
    counted: int = 0
    total: int = 0

    def add(self, count: int, total: int) -> None:
        """Add the result of one key."""
        self.results += 1
        self.counted += count
        self.total += total


def measure(records: int, rounds: int) -> Measurement:
    """Measure with as many keys as ``records``, each of which has two records."""
    large, by_hand = _alternating(records, rounds, (_in_aflow, _by_hand))
    (small,) = _alternating(max(1, records // SMALL), rounds, (_in_aflow,))
    ours, theirs = (median(run.seconds for run in runs) for runs in (large, by_hand))
    at_small = median(run.seconds for run in small) / max(1, records // SMALL)
    return Measurement(
        "state_windows",
        {
            "keys": records,
            "records": VISITS * records,
            "cpu_seconds": round(ours, 2),
            "records_per_cpu_s": round(VISITS * records / ours),
            "baseline_records_per_cpu_s": round(VISITS * records / theirs),
            "ratio": round(theirs / ours, 3),
            "cost_of_100_times_the_keys": round(ours / records / at_small, 2),
            "memory": max(run.memory for run in large),
            "baseline_memory": max(run.memory for run in by_hand),
            "rounds": rounds,
            "verified": True,
        },
        [
            Budget("ratio", at_least=RATIO),
            Budget("cost_of_100_times_the_keys", at_most=GROWTH),
            Budget("memory", at_most=MEMORY),
        ],
    )


def _alternating(keys: int, rounds: int, programs: tuple[Any, ...]) -> list[list[Run]]:
    """Run each program ``rounds`` times in turn, and check that all have the expected sums."""
    records = VISITS * keys
    expected = keys, records, sum(number % 100 for number in range(records))
    runs: list[list[Run]] = [[] for _ in programs]
    for _ in range(rounds):
        for program, found in zip(programs, runs, strict=True):
            spawned = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=spawned) as process:
                run: Run = process.submit(program, keys).result()
            if (run.results, run.counted, run.total) != expected:
                raise SystemExit(f"{program.__name__}: other sums than expected; nothing measured")
            found.append(run)
    return runs


def _records(keys: int) -> Iterator[tuple[int, int]]:
    """Yield the key and the value of each record."""
    for number in range(VISITS * keys):
        yield number * STRIDE % keys, number % 100


def _in_aflow(keys: int) -> Run:
    """Run the job."""
    assert STRIDE % keys
    sums = Sums()

    def add(result: af.Windowed[int, Totals]) -> None:
        sums.add(*result.value)

    flow = af.Flow("state-windows")
    events = flow.source(_records(keys)).event_time(lambda record: record[1])
    totals = (
        events.key_by(lambda record: record[0], of=int)
        .window(af.Tumbling(timedelta(milliseconds=DAY)))
        .fold(_nothing, _added, of=tuple[int, int], name="totals")
    )
    totals.to(af.CallbackSink(add))
    state = af.backends.OnDisk(af.backends.DiskEngine.ROCKSDB, resident=max(1, keys // RESIDENT))
    begin = time.process_time()
    run_async(flow.run(options=af.Options(state=state)))
    return _run(begin, sums)


def _nothing() -> Totals:
    return 0, 0


def _added(so_far: Totals, record: tuple[int, int]) -> Totals:
    return so_far[0] + 1, so_far[1] + record[1]


def _by_hand(keys: int) -> Run:
    """Run the same with rocksdict alone."""
    sums = Sums()
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(Totals).decode
    module: Any = rocksdict()
    unlogged = module.WriteOptions()
    unlogged.disable_wal = True
    place_of = struct.Struct(">QQ").pack
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        db = module.Rdict(str(Path(folder) / "db"), module.Options(raw_mode=True))
        get, put = db.get, db.put
        for key, value in _records(keys):
            place = place_of(value // DAY, key)
            data = get(place)
            count, total = (0, 0) if data is None else decode(data)
            put(place, encode((count + 1, total + value)), unlogged)
        for data in db.values(from_key=place_of(0, 0)):
            sums.add(*decode(data))
        db.delete_range(place_of(0, 0), place_of(1, 0))
        db.close()
    return _run(begin, sums)


def _run(begin: float, sums: Sums) -> Run:
    unit = 1 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    seconds = time.process_time() - begin
    return Run(seconds, memory, sums.results, sums.counted, sums.total)
