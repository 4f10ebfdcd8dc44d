"""``timers`` of ``state``: an event timer for each key, all of them registered before the first one fires."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import aflow as af
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.model.time import MAX_TIMESTAMP, TimeDomain
from aflow.runtime.clock import SystemClock
from aflow.state.backend_choice import make_backend
from aflow.state.disk.rocksdb import rocksdict
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec
from bench.harness import run_async
from bench.state_disk import ON_DISK, Digest

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
    """Register and fire timers with the queue of a backend, used as operators use it."""
    digest = Digest()
    everything = KeyGroupRange(0, DEFAULT_KEY_GROUPS)
    key_codec = KeyGroupCodec(
        operator="timers", key_type=int, key_groups=everything, key_group_count=DEFAULT_KEY_GROUPS
    )
    backend = make_backend(ON_DISK, key_codec, SystemClock())
    queue = backend.timers(TimeDomain.EVENT, KeyKinds())
    register = queue.register
    for key, at in times(records):
        register(at, key, None)
    for timer in queue.due_in_pieces(MAX_TIMESTAMP):
        if timer is not None:
            digest.add(timer.time * 31 + cast("int", timer.key))
    backend.close()
    return digest


def in_flow(records: int) -> Digest:
    """Register and fire timers of a process function in a flow: the queue, and two calls of user code for each."""
    digest = Digest()
    flow = af.Flow("timers")
    keyed = flow.source(times(records)).event_time(lambda record: record[0] // SPREAD)
    fired = keyed.key_by(lambda record: record[0]).process(Remind(), name="remind")
    fired.filter(digest.add).to(af.CollectSink())
    run_async(flow.run(options=af.Options(state=ON_DISK)))
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
