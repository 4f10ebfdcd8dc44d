"""``timers`` of ``state``: an event timer for each key, all of them registered before the first one fires."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import aflow as af
from aflow.state.disk.rocksdb import rocksdict
from bench.harness import run_async
from bench.state_disk import RESIDENT, Digest

#: A prime greater than any number of records, which scatters times.
SCATTER = 4_000_000_007
#: Event time (ms) of the first timer, after that of all records.
FIRST = 1_000_000_000
#: Milliseconds of event time per timer.
SPREAD = 10


def times(records: int) -> Iterator[tuple[int, int]]:
    """Yield a key and the time of its timer, in an order that looks random."""
    for key in range(records):
        yield key, FIRST + key * SCATTER % records * SPREAD


class Remind(af.KeyedProcess[int, tuple[int, int], int]):
    """Register a timer for each record, and emit a number when it fires."""

    def process(self, value: tuple[int, int], ctx: af.Context[int]) -> None:
        ctx.set_event_timer(value[1])

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[int]:
        return (at * 31 + ctx.key,)


def in_aflow(records: int) -> Digest:
    """Register and fire timers of a process function with its state on disk."""
    digest = Digest()
    flow = af.Flow("timers")
    keyed = flow.source(times(records)).event_time(lambda record: record[0] // SPREAD)
    fired = keyed.key_by(lambda record: record[0]).process(Remind(), name="remind")
    fired.filter(digest.add).to(af.CollectSink())
    state = af.backends.OnDisk(af.backends.DiskEngine.ROCKSDB, resident=RESIDENT)
    run_async(flow.run(options=af.Options(state=state)))
    return digest


def by_hand(records: int) -> Digest:
    """Write time and key, read them in order, and delete them, with rocksdict alone."""
    digest = Digest()
    place = struct.Struct(">QQ")
    pack, unpack = place.pack, place.unpack
    module: Any = rocksdict()
    unlogged = module.WriteOptions()
    unlogged.disable_wal = True
    with tempfile.TemporaryDirectory() as folder:
        db = module.Rdict(str(Path(folder) / "db"), module.Options(raw_mode=True))
        put, delete = db.put, db.delete
        for key, at in times(records):
            put(pack(at, key), b"", unlogged)
        for data in db.keys():  # noqa: SIM118 - no dict
            at, key = unpack(data)
            digest.add(at * 31 + key)
            delete(data, unlogged)
        db.close()
    return digest
