"""Slices of records on disk expire in pieces."""

from __future__ import annotations

from pathlib import Path

from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import MAX_TIMESTAMP
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sliced_records import Part, SlicedRecords
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec


def test_expired_rows_are_deleted_in_pieces(tmp_path: Path) -> None:
    key_codec = KeyGroupCodec(operator="step", key_groups=KeyGroupRange(0, 4), key_group_count=4)
    scratch = Scratch(SqliteStore, tmp_path, "step")
    records = SlicedRecords(key_codec, scratch, 1, 100, KeyKinds())

    def add(at: int) -> None:
        touched = records.touch([f"key {number}" for number in range(3_000)], [at] * 3_000, 0, 0)
        for row, _ in touched:
            row.parts = Part((at,), (b"value",)), None
            row.changed = True

    for at in (10, 110, 210):
        add(at)
    list(records.touch([], [], 0, 0))

    pieces = sum(1 for _ in records.drop(150))
    left = records.count()
    rest = sum(1 for _ in records.drop(MAX_TIMESTAMP))

    assert pieces == 3  # of the first slice
    assert left == (6_000, 0)
    assert rest >= 3
    assert scratch.store.first(b"", b"\xff", 1) == []
    scratch.clear()
