"""A log returns what was appended, by position, until it is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from aflow.errors import SourceError
from aflow.runtime.record_log.log import LogReader, SeenId
from tests.runtime.record_log.logs import content, new_log, opened, record


def test_records_are_read_after_the_log_is_opened_again(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    log.append([record(0), record(1)], 10)
    log.append([record(2)], 20)
    log.close()

    again = opened(tmp_path / "log")

    assert (again.start, again.end) == (0, 3)
    assert content(again) == [record(0), record(1), record(2)]
    assert content(again, 1) == [record(1), record(2)]
    again.close()


def test_each_process_continues_with_a_segment_of_its_own(tmp_path: Path) -> None:
    for number in range(4):
        log = opened(tmp_path)
        log.append([record(number)], 0)
        log.close()

    log = opened(tmp_path)

    assert content(log) == [record(number) for number in range(4)]
    assert len(log.segments) == 4
    log.close()


def test_opening_without_appending_leaves_the_log_as_it_is(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([record(0)], 0)
    log.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    opened(tmp_path).close()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_reader_follows_what_is_appended_later(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([record(0)], 0)
    reader = LogReader(log, 0)
    assert reader.read() == [record(0)]

    for number in range(1, 30):
        log.append([record(number)], 0)

        assert reader.read() == [record(number)]
    assert len(log.segments) > 3
    log.close()


def test_a_block_larger_than_a_read_is_read(tmp_path: Path) -> None:
    log = opened(tmp_path)
    large = (bytes(3_000_000), None, None)
    log.append([record(0)], 0)
    log.append([large], 0)
    log.append([record(1)], 0)

    assert content(log) == [record(0), large, record(1)]
    log.close()


def test_released_segments_are_removed_and_positions_stay(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(30):
        log.append([record(number)], 0)
    size = log.size

    log.release(17, since=0)

    assert 0 < log.start <= 17
    assert log.size < size
    assert content(log, 17) == [record(number) for number in range(17, 30)]
    log.close()
    again = opened(tmp_path)
    assert (again.start, again.end) == (log.start, 30)
    again.close()


def test_a_released_log_keeps_its_end(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(30):
        log.append([record(number)], 0)
    log.release(30, since=0)
    log.close()

    again = opened(tmp_path)
    again.append([record(30)], 0)

    assert again.end == 31
    assert content(again, 30) == [record(30)]
    again.close()


def test_a_single_large_segment_can_be_released(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([(bytes(1000), None, None)], 0)

    log.release(1, since=0)

    assert log.size < 200
    assert (log.start, log.end) == (1, 1)
    log.close()
    again = opened(tmp_path)
    assert again.end == 1
    again.close()


def test_a_position_that_was_released_cannot_be_read(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(30):
        log.append([record(number)], 0)
    log.release(20, since=0)

    with pytest.raises(SourceError, match="has no record 0 any more: it begins at"):
        LogReader(log, 0).read()
    log.close()


def test_a_segment_is_kept_as_long_as_an_id_in_it_is_known(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(30):
        log.append([record(number, f"id {number}" if number % 2 else None)], 100 + number)
    log.release(30, since=110)
    first = log.start
    log.close()

    again = opened(tmp_path)
    found = again.ids(since=110)

    assert 0 < first <= 11
    assert found == [SeenId(f"id {number}", number, 100 + number) for number in range(11, 30, 2)]
    again.release(30, since=110)
    assert again.start == first
    again.release(30, since=1000)
    assert again.start > 20
    again.close()


def test_the_end_of_the_input_is_stored(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([record(0)], 0)
    log.end_input()
    log.close()

    again = opened(tmp_path)

    assert again.ended
    assert content(again) == [record(0)]
    again.close()


def test_a_second_process_is_refused_and_told_how_to_shard(tmp_path: Path) -> None:
    log = opened(tmp_path)

    with pytest.raises(SourceError, match=r"in use by process 1; give each process a folder"):
        new_log(tmp_path).open()
    log.close()
    opened(tmp_path).close()


def test_descriptions_of_all_segments_are_known(tmp_path: Path) -> None:
    for description in (b"one", b"two", b"three"):
        log = new_log(tmp_path, description=description)
        log.open()
        log.append([record(0)], 0)
        log.close()

    log = opened(tmp_path)

    assert log.descriptions == {b"one", b"two", b"three"}
    log.close()


def test_a_file_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"GET / HTTP/1.1\r\n" * 10)

    with pytest.raises(SourceError, match="is no segment of a log of aflow"):
        opened(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([record(0)], 0)
    log.close()
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[8] = 9
    path.write_bytes(data)

    with pytest.raises(SourceError, match="has version 9 of the format of logs"):
        opened(tmp_path)
