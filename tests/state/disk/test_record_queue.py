"""Queues of records on disk have the order of a sorted list."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from aflow.model.time import MAX_TIMESTAMP
from aflow.state.disk.record_queue import RecordQueue
from aflow.state.disk.rocksdb import RocksdbStore, rocksdb_installed
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.disk.store import Engine

ENGINES: list[Engine] = [SqliteStore, *([RocksdbStore] if rocksdb_installed() else [])]


@pytest.mark.parametrize("engine", ENGINES, ids=["sqlite", "rocksdb"][: len(ENGINES)])
def test_records_are_taken_in_order_and_removed_ones_are_not(
    tmp_path: Path, engine: Engine
) -> None:
    random = Random(5)
    scratch = Scratch(engine, tmp_path, "step")
    queue, other = RecordQueue(scratch, b"w"), RecordQueue(scratch, b"x")
    records = {(random.randrange(-500, 500), number) for number in range(4_000)}
    for at, number in records:
        queue.add(at, number, b"%d" % number)
        other.add(at, number, b"other")
    removed = {record for record in records if record[1] % 3 == 0}
    for at, number in removed:
        queue.discard(at, number)
    expected = [(at, b"%d" % number) for at, number in sorted(records - removed)]

    captured = queue.captured()
    early = [one for some in queue.due(-100) for one in some]
    queue.add(-99, 9_999, b"later")
    rest = [one for some in queue.due(MAX_TIMESTAMP) for one in some]

    assert early == [one for one in expected if one[0] <= -100]
    assert sorted([*early, *rest]) == sorted([*expected, (-99, b"later")])
    assert [at for at, _ in rest] == sorted(at for at, _ in rest)
    assert list(captured) == expected
    assert queue.earliest is None
    assert len(list(other.captured())) == len(records)
    scratch.clear()
