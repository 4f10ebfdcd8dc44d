"""A torn end of a log is cut, and any other damage is an error that names the file and the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from aflow.errors import SourceError
from aflow.runtime.record_log.log import RecordLog
from tests.runtime.record_log.logs import content, opened, record

BLOCKS = 4


def killed_log(folder: Path) -> Path:
    """Write four blocks in one segment, and end without closing the log."""
    log = opened(folder, segment_bytes=10_000)
    for number in range(BLOCKS):
        log.append([record(number)], 0)
    log.abandon()
    return log.segments[0].path


def closed_log(folder: Path) -> Path:
    log = opened(folder, segment_bytes=10_000)
    for number in range(BLOCKS):
        log.append([record(number)], 0)
    path = log.segments[0].path
    log.close()
    return path


def reopened(folder: Path) -> RecordLog:
    log = opened(folder)
    log.close()
    return opened(folder)


def test_an_end_that_is_cut_off_anywhere_is_cut(tmp_path: Path) -> None:
    path = killed_log(tmp_path)
    data = path.read_bytes()
    block = (len(data) - data.index(b"\xafBLK")) // BLOCKS
    for kept in range(len(data) - block, len(data)):
        path.write_bytes(data[:kept])

        log = reopened(tmp_path)

        assert content(log) == [record(number) for number in range(BLOCKS - 1)]
        log.close()


def test_zeros_in_place_of_the_last_block_are_cut(tmp_path: Path) -> None:
    path = killed_log(tmp_path)
    data = path.read_bytes()
    last = data.rindex(b"\xafBLK")
    path.write_bytes(data[:last] + bytes(len(data) - last))

    log = reopened(tmp_path)

    assert log.end == BLOCKS - 1
    log.close()


def test_a_segment_whose_header_was_never_synced_is_empty(tmp_path: Path) -> None:
    path = killed_log(tmp_path)
    for torn in (b"", b"aflow", bytes(100), path.read_bytes()[:20]):
        (tmp_path / f"{BLOCKS:020d}.log").write_bytes(torn)

        log = reopened(tmp_path)

        assert log.end == BLOCKS
        assert content(log) == [record(number) for number in range(BLOCKS)]
        log.close()


def test_new_records_follow_a_cut_end(tmp_path: Path) -> None:
    path = killed_log(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])

    log = opened(tmp_path)
    log.append([record(99)], 0)
    log.close()
    again = opened(tmp_path)

    assert content(again) == [record(0), record(1), record(2), record(99)]
    again.close()


@pytest.mark.parametrize("end", [killed_log, closed_log], ids=["killed", "closed"])
def test_a_changed_byte_before_the_last_block_is_an_error_with_its_place(
    tmp_path: Path, end: object
) -> None:
    path = killed_log(tmp_path) if end is killed_log else closed_log(tmp_path)
    data = path.read_bytes()
    first, last = data.index(b"\xafBLK"), data.rindex(b"\xafBLK")
    for place in range(first, last):
        changed = bytearray(data)
        changed[place] ^= 0x10
        path.write_bytes(changed)

        with pytest.raises(SourceError, match=r"the log is damaged: .*, the block at byte \d+"):
            _ = content(opened(tmp_path))


def test_a_changed_byte_in_an_older_segment_is_an_error_when_it_is_read(tmp_path: Path) -> None:
    path = killed_log(tmp_path)
    log = opened(tmp_path)
    log.append([record(BLOCKS)], 0)
    log.close()
    data = path.read_bytes()
    for place in range(data.index(b"\xafBLK"), len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        log = opened(tmp_path)

        with pytest.raises(SourceError, match="the log is damaged"):
            _ = content(log)
        log.close()


def test_a_missing_segment_is_an_error(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(30):
        log.append([record(number)], 0)
    log.close()
    log.segments[1].path.unlink()

    log = opened(tmp_path)
    with pytest.raises(SourceError, match="the log is damaged"):
        _ = content(log)
    log.close()
