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


def sliced_records(folder: Path) -> tuple[SlicedRecords, Scratch]:
    """Return slices of 100 ms, which keep nearly nothing in memory, and their database."""
    key_codec = KeyGroupCodec(operator="step", key_groups=KeyGroupRange(0, 4), key_group_count=4)
    scratch = Scratch(SqliteStore, folder, "step")
    return SlicedRecords(key_codec, scratch, 1, 100, KeyKinds()), scratch


def add(records: SlicedRecords, keys: list[str], at: int) -> None:
    for row, _ in records.touch(keys, [at] * len(keys), 0, 0):
        row.parts = Part((at,), (b"value",)), None
        row.changed = True


def test_expired_rows_are_deleted_in_pieces(tmp_path: Path) -> None:
    records, scratch = sliced_records(tmp_path)
    for at in (10, 110, 210):
        add(records, [f"key {number}" for number in range(3_000)], at)
    list(records.touch([], [], 0, 0))

    pieces = sum(1 for _ in records.drop(150))
    left = records.count()
    rest = sum(1 for _ in records.drop(MAX_TIMESTAMP))

    assert pieces == 3  # of the first slice
    assert left == (6_000, 0)
    assert rest >= 3
    assert scratch.store.first(b"", b"\xff", 1) == []
    scratch.clear()


def test_a_key_with_a_new_row_while_its_old_one_expires_is_found_by_a_scan(tmp_path: Path) -> None:
    records, scratch = sliced_records(tmp_path)
    add(records, [f"key {number}" for number in range(3_000)], 10)
    add(records, ["last"], 110)
    for _ in range(2):  # evicts all rows
        add(records, [f"other {number}" for number in range(3_000)], 10)
    scan = records.scan()
    found = set[object]()
    while "key 0" not in found:
        found.update(next(scan))
    assert "last" not in found

    add(records, ["last"], 510)
    list(records.drop(350))
    for some in scan:
        found.update(some)

    assert "last" in found
    scratch.clear()
