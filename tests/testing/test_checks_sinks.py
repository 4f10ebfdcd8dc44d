"""The sinks of aflow keep the contract of sinks."""

from __future__ import annotations

import asyncio
import csv
import gzip
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import orjson
import pytest

import aflow as af
from aflow.testing import check_sink
from aflow.testing.virtual_time import virtual_time
from aflow_connectors.files import CsvSink, JsonLinesSink, ParquetSink
from aflow_connectors.sqlite import SqliteSink, SqliteUpsert
from tests.connectors.files import arrow
from tests.connectors.sqlite.database import made, rows

RECORDS = [{"n": n, "text": f"a\n{n}"} for n in range(12)]


@virtual_time
async def test_collect_sink() -> None:
    await check_sink(af.CollectSink[object], lambda sink: sink.values, RECORDS)


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])
@virtual_time
async def test_callback_sink(waits: bool) -> None:
    seen: dict[int, list[object]] = {}

    def make() -> af.CallbackSink[object]:
        called: list[object] = []

        async def wait_and_call(value: object) -> None:
            await asyncio.sleep(1)
            called.append(value)

        sink = af.CallbackSink[object](wait_and_call if waits else called.append)
        seen[id(sink)] = called
        kept.append(sink)
        return sink

    kept: list[object] = []  # so that no two have one id

    await check_sink(make, lambda sink: seen[id(sink)], RECORDS)


@virtual_time
async def test_result_sink() -> None:
    async def results(sink: af.ResultSink[object]) -> list[object]:
        found: list[object] = []
        with suppress(af.JobStopped):  # the job has failed; earlier records count
            async for one in sink:
                found.append(one)  # noqa: PERF401 - all at once, none would be left by an error
        return found

    await check_sink(af.ResultSink[object], results, RECORDS)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """Return a factory of paths that do not exist."""
    numbers = count()
    return lambda: tmp_path / f"run{next(numbers)}"


@virtual_time
async def test_json_lines_sink(fresh: Callable[[], Path]) -> None:
    def visible(sink: JsonLinesSink[object]) -> list[object]:
        files = sorted(sink.path.glob("*.jsonl"))
        return [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]

    await check_sink(lambda: JsonLinesSink[object](fresh()), visible, RECORDS)


@virtual_time
async def test_json_lines_sink_of_compressed_files(fresh: Callable[[], Path]) -> None:
    def visible(sink: JsonLinesSink[object]) -> list[object]:
        files = sorted(sink.path.parent.glob("*.gz"))
        lines = [line for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
        return [orjson.loads(line) for line in lines]

    await check_sink(lambda: JsonLinesSink[object](fresh() / "out.jsonl.gz"), visible, RECORDS)


@virtual_time
async def test_csv_sink(fresh: Callable[[], Path]) -> None:
    def visible(sink: CsvSink[object]) -> list[object]:
        found: list[object] = []
        for file in sorted(sink.path.glob("*.csv")):
            with file.open(encoding="utf-8", newline="") as text:
                found += [{**row, "n": int(row["n"])} for row in csv.DictReader(text)]
        return found

    await check_sink(lambda: CsvSink[object](fresh()), visible, RECORDS)


@virtual_time
async def test_parquet_sink(fresh: Callable[[], Path]) -> None:
    def visible(sink: ParquetSink[object]) -> list[object]:
        found: list[object] = []
        for file in sorted(sink.path.glob("*.parquet")):
            found += arrow.pq.read_table(file).to_pylist()
        return found

    await check_sink(lambda: ParquetSink[object](fresh()), visible, RECORDS)


@virtual_time
async def test_json_lines_sink_beside_a_path_with_a_suffix(fresh: Callable[[], Path]) -> None:
    def visible(sink: JsonLinesSink[object]) -> list[object]:
        files = sorted(sink.path.parent.glob("*.jsonl"))
        return [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]

    await check_sink(lambda: JsonLinesSink[object](fresh() / "out.jsonl"), visible, RECORDS)


@virtual_time
async def test_sqlite_sink(fresh: Callable[[], Path]) -> None:
    def make() -> SqliteSink[object]:
        return SqliteSink(made(fresh(), "CREATE TABLE t (n INTEGER, text TEXT)"), "t")

    def visible(sink: SqliteSink[object]) -> list[object]:
        return [{"n": n, "text": text} for n, text in rows(sink.path)]

    await check_sink(make, visible, RECORDS)


@virtual_time
async def test_sqlite_upsert(fresh: Callable[[], Path]) -> None:
    def make() -> SqliteUpsert[object]:
        database = made(fresh(), "CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        return SqliteUpsert(database, "t", key="n")

    def visible(sink: SqliteUpsert[object]) -> list[object]:
        return [{"n": n, "text": text} for n, text in rows(sink.path)]

    await check_sink(make, visible, RECORDS)
