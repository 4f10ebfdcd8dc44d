"""The sources of aflow keep the contract of sources."""

from __future__ import annotations

import gzip
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import aflow as af
from aflow.connect import Source
from aflow.testing import check_source
from aflow.testing.virtual_time import virtual_time
from aflow_connectors.files import CsvSource, JsonLinesSource, ParquetSource, TextSource
from tests.connectors.files import arrow

NUMBERS = list(range(30))


def numbers() -> Iterator[int]:
    yield from NUMBERS


async def numbers_from(start: int) -> AsyncIterator[int]:
    for number in NUMBERS[start:]:
        yield number


class Numbers:
    """Can be iterated over again and again, slowly enough that a reader waits."""

    def __iter__(self) -> Iterator[int]:
        for number in NUMBERS:
            if number == 20:
                time.sleep(0.0001)
            yield number


def pushed() -> Source[int]:
    source = af.PushSource[int]()
    for number in NUMBERS:
        source.send_nowait(number)
    source.close()
    return source


IN_MEMORY: dict[str, Callable[[], Source[int]]] = {
    "a list": lambda: af.IterableSource(NUMBERS),
    "an iterable": lambda: af.IterableSource(Numbers()),
    "a generator": lambda: af.IterableSource(numbers()),
    "an async iterable from a position": lambda: af.AsyncIterableSource(numbers_from),
    "an async generator": lambda: af.AsyncIterableSource(numbers_from(0)),
    "an iterable in a thread": lambda: af.ThreadSource(Numbers()),
    "a generator in a thread": lambda: af.ThreadSource(numbers()),
    "a push source": pushed,
}


@pytest.mark.parametrize("make_source", IN_MEMORY.values(), ids=IN_MEMORY)
@virtual_time
async def test_a_source_in_memory(make_source: Callable[[], Source[int]]) -> None:
    await check_source(make_source, expected=NUMBERS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of each text format: plain, compressed, and empty."""
    formats = {"txt": ("", "{n} ä\n"), "jsonl": ("", '{{"n": {n}}}\n\n')}
    formats["csv"] = ("n,text\n", '{n},"a\n{n}"\n')
    for suffix, (head, line) in formats.items():
        first, second = ([line.format(n=n) for n in part] for part in (NUMBERS[:9], NUMBERS[9:]))
        (tmp_path / f"a.{suffix}").write_text("".join([head, *first]), "utf-8")
        (tmp_path / f"b.{suffix}.gz").write_bytes(gzip.compress("".join([head, *second]).encode()))
        (tmp_path / f"c.{suffix}").write_text(head, "utf-8")
    return tmp_path


@virtual_time
async def test_text_files(folder: Path) -> None:
    await check_source(lambda: TextSource(folder), expected=[f"{n} ä" for n in NUMBERS])


@virtual_time
async def test_json_lines_files(folder: Path) -> None:
    await check_source(lambda: JsonLinesSource(folder), expected=[{"n": n} for n in NUMBERS])


@virtual_time
async def test_csv_files(folder: Path) -> None:
    rows = [{"n": str(n), "text": f"a\n{n}"} for n in NUMBERS]

    await check_source(lambda: CsvSource(folder), expected=rows)


@virtual_time
async def test_files_with_bad_lines_and_dead_letters(tmp_path: Path) -> None:
    lines = [f'{{"n": {n}}}' if n % 3 else "{" for n in NUMBERS]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8")
    dead = af.Tag[af.connect.BadRecord]("dead")

    await check_source(
        lambda: JsonLinesSource(tmp_path, dead_letters=dead),
        expected=[{"n": n} for n in NUMBERS if n % 3],
    )


@virtual_time
async def test_parquet_files(tmp_path: Path) -> None:
    table = arrow.pa.table({"n": NUMBERS})
    arrow.pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)

    await check_source(lambda: ParquetSource(tmp_path), expected=[{"n": n} for n in NUMBERS])
