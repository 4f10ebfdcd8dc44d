"""Rows that replace each other by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from aflow.connect import SinkError
from aflow_connectors.sqlite import SqliteUpsert
from tests.connectors.sqlite.database import made, opened, put, rows, written


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return made(tmp_path / "a.db", "CREATE TABLE t (k TEXT PRIMARY KEY, v INTEGER, note TEXT)")


def row(k: str, v: int) -> dict[str, object]:
    return {"k": k, "v": v}


@pytest.mark.asyncio
async def test_the_last_record_of_a_key_counts(database: Path) -> None:
    sink = SqliteUpsert[object](database, "t", key="k", columns=["k", "v"])

    await written(sink, [row("a", 1), row("b", 1), row("a", 2)], [row("b", 3)])

    assert rows(database) == [("a", 2, None), ("b", 3, None)]


@pytest.mark.asyncio
async def test_columns_that_are_not_written_stay_as_they_are(database: Path) -> None:
    made(database, "INSERT INTO t VALUES ('a', 0, 'mine')")

    await written(SqliteUpsert[object](database, "t", key="k", columns=["k", "v"]), [row("a", 1)])

    assert rows(database) == [("a", 1, "mine")]


@pytest.mark.asyncio
async def test_a_table_of_keys_alone_is_a_set(tmp_path: Path) -> None:
    database = made(tmp_path / "a.db", "CREATE TABLE t (a, b, UNIQUE (a, b))")

    pairs = [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1}]
    await written(SqliteUpsert[object](database, "t", key=["a", "b"]), pairs)

    assert rows(database) == [(1, 1), (1, 2)]


@pytest.mark.asyncio
async def test_a_row_is_visible_once_it_is_taken(database: Path) -> None:
    writer = await opened(SqliteUpsert[object](database, "t", key="k", columns=["k", "v"]))

    await put(writer, row("a", 1))
    seen = rows(database)
    committable = await writer.prepare(1)
    await writer.close()

    assert (seen, committable) == ([("a", 1, None)], None)


@pytest.mark.asyncio
async def test_a_key_that_is_not_unique_is_an_error_before_anything_is_written(
    database: Path,
) -> None:
    with pytest.raises(SinkError, match=r"table 't': ON CONFLICT .* make a unique index over them"):
        await opened(SqliteUpsert[object](database, "t", key="v"))


@pytest.mark.asyncio
async def test_a_rejected_batch_writes_no_rows(tmp_path: Path) -> None:
    database = made(tmp_path / "a.db", "CREATE TABLE t (k PRIMARY KEY, v NOT NULL)")

    with pytest.raises(SinkError, match=r"cannot take record \{'k': 2, 'v': None\}: NOT NULL"):
        await written(
            SqliteUpsert[object](database, "t", key="k"), [{"k": 1, "v": 1}, {"k": 2, "v": None}]
        )

    assert rows(database) == []
