"""State on disk: read, change and write a value of random keys, against a program that calls RocksDB.

The program by hand gets, decodes, encodes and puts for each record. aflow reads the keys of a batch at once and
writes them back when it evicts them from memory. Both use RocksDB without a log. A tenth of the keys fits into
aflow's memory.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.state.backend_choice import DiskEngine, OnDisk, make_backend
from aflow.state.disk.rocksdb import rocksdict
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.specs import ValueState
from bench.harness import Measurement, compare

BATCH = 1024
RATIO = 0.5
#: One key in ``RESIDENT`` fits into memory; one in ``SAMPLE`` is verified.
RESIDENT = 10
SAMPLE = 100

Count = dict[int, int]


class _StoppedClock:
    """A clock that always returns 0."""

    def now(self) -> int:
        return 0


def measure(records: int, rounds: int) -> Measurement:
    """Measure with as many keys as records, in batches of 1,024."""
    rng = random.Random(3)
    keys = [rng.randrange(records) for _ in range(records)]
    batches = [keys[start : start + BATCH] for start in range(0, records, BATCH)]
    sample = sorted(set(keys))[::SAMPLE]
    return compare(
        "disk",
        records,
        lambda: in_aflow(batches, sample, resident=max(1, records // RESIDENT)),
        lambda: by_hand(batches, sample),
        at_least=RATIO,
        rounds=rounds,
    )


def in_aflow(batches: list[list[int]], sample: list[int], *, resident: int) -> Count:
    """Count with the state backend, used as operators use it."""
    everything = KeyGroupRange(0, DEFAULT_KEY_GROUPS)
    key_codec = KeyGroupCodec(
        operator="disk", key_type=int, key_groups=everything, key_group_count=DEFAULT_KEY_GROUPS
    )
    backend = make_backend(
        OnDisk(DiskEngine.ROCKSDB, resident=resident), key_codec, _StoppedClock()
    )
    count = backend.cell(ValueState("count", of=int))
    for batch in batches:
        backend.touch(batch)
        for key in batch:
            backend.key = key
            count.set(count.get(0) + 1)
        backend.leave()
    found = {key: _number(backend.get("count", key)) for key in sample}
    backend.close()
    return found


def by_hand(batches: list[list[int]], sample: list[int]) -> Count:
    """Count with rocksdict alone."""
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(int).decode
    module: Any = rocksdict()
    unlogged = module.WriteOptions()
    unlogged.disable_wal = True
    with tempfile.TemporaryDirectory() as folder:
        db = module.Rdict(str(Path(folder) / "db"), module.Options(raw_mode=True))
        get, put = db.get, db.put
        for batch in batches:
            for key in batch:
                encoded_key = encode(key)
                data = get(encoded_key)
                put(encoded_key, encode(1 if data is None else decode(data) + 1), unlogged)
        found = {key: decode(get(encode(key))) for key in sample}
        db.close()
    return found


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
