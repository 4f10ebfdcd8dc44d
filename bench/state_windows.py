"""``windows`` of ``state``: count and sum by key in one long window of many keys.

Each key has two records, and all keys are visited before the first one is visited again. So nearly every record reads
and writes the database, whatever the cache. At the end the window fires for all keys. The program by hand gets,
decodes, encodes and puts for each record, and reads the range of the window at its end. Both write without a log. Costs
are for each key: two records and a result.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

import aflow as af
from aflow.state.disk.rocksdb import rocksdict
from bench.harness import run_async
from bench.state_disk import ON_DISK, Digest

#: Records of a key.
VISITS: Final = 2
#: Size of the window (ms); all records are in the first one.
DAY: Final = 86_400_000
#: A prime: its multiples, modulo the number of keys, are in no order.
SCATTER: Final = 2_654_435_761

Totals = tuple[int, int]


def visits(keys: int) -> Iterator[tuple[int, int]]:
    """Yield the key and the value of each record."""
    assert SCATTER % keys
    for number in range(VISITS * keys):
        yield number * SCATTER % keys, number % 100


def in_aflow(records: int) -> Digest:
    """Sum the values of ``records`` keys in a flow with its state on disk."""
    digest = Digest()
    flow = af.Flow("windows")
    timed = flow.source(visits(records)).event_time(lambda visit: visit[1])
    windows = timed.key_by(lambda visit: visit[0], of=int).window(
        af.Tumbling(timedelta(milliseconds=DAY))
    )
    totals = windows.fold(_nothing, _added, of=tuple[int, int], name="totals")
    totals.filter(lambda result: digest.add(_digested(result.value))).to(af.CollectSink())
    run_async(flow.run(options=af.Options(state=ON_DISK)))
    return digest


def by_hand(records: int) -> Digest:
    """Sum with rocksdict alone."""
    digest = Digest()
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(Totals).decode
    module: Any = rocksdict()
    unlogged = module.WriteOptions()
    unlogged.disable_wal = True
    place_of = struct.Struct(">QQ").pack
    with tempfile.TemporaryDirectory() as folder:
        db = module.Rdict(str(Path(folder) / "db"), module.Options(raw_mode=True))
        get, put = db.get, db.put
        for key, value in visits(records):
            place = place_of(value // DAY, key)
            data = get(place)
            count, total = (0, 0) if data is None else decode(data)
            put(place, encode((count + 1, total + value)), unlogged)
        for data in db.values(from_key=place_of(0, 0)):
            digest.add(_digested(decode(data)))
        db.delete_range(place_of(0, 0), place_of(1, 0), unlogged)
        db.close()
    return digest


def _nothing() -> Totals:
    return 0, 0


def _added(so_far: Totals, visit: tuple[int, int]) -> Totals:
    return so_far[0] + 1, so_far[1] + visit[1]


def _digested(totals: Totals) -> int:
    return totals[0] * 1_000_000 + totals[1]
