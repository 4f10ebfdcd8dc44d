"""Records become rows, or errors that name sink, table and record."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from aflow.connect import SinkError
from aflow.errors import FlowDefinitionError
from aflow_connectors.sqlite import SqliteSink, SqliteUpsert
from tests.connectors.sqlite.database import made, opened, prepared, rows, written


@dataclass(frozen=True, slots=True)
class Payment:
    card: str
    amount: float


class PaymentStruct(msgspec.Struct):
    card: str
    amount: float


class PaymentTuple(NamedTuple):
    card: str
    amount: float


class Kind(Enum):
    DEBIT = "debit"


class Text(str):
    pass


def as_tuple(n: int) -> tuple[str, float]:
    return str(n), n / 2


def as_dict(n: int) -> dict[str, object]:
    return {"amount": n / 2, "card": str(n)}


def as_named_tuple(n: int) -> PaymentTuple:
    return PaymentTuple(amount=n / 2, card=str(n))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return made(tmp_path / "a.db", "CREATE TABLE t (card TEXT, amount REAL)")


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [Payment, PaymentStruct, PaymentTuple, dict])
async def test_a_record_may_be_of_any_kind_with_named_fields(database: Path, kind: Any) -> None:
    await written(SqliteSink(database, "t"), [kind(card="1", amount=0.5)])

    assert rows(database) == [("1", 0.5)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "row",
    [as_tuple, as_dict, as_named_tuple],
)
async def test_a_function_may_make_the_row(database: Path, row: Callable[[int], Any]) -> None:
    await written(SqliteSink[int](database, "t", row=row), [1])

    assert rows(database) == [("1", 0.5)]


@pytest.mark.asyncio
async def test_only_the_columns_that_are_named_are_written(database: Path) -> None:
    await written(SqliteSink(database, "t", columns=["amount"]), [Payment("1", 0.5)])

    assert rows(database) == [(None, 0.5)]


@pytest.mark.asyncio
@pytest.mark.parametrize("checkpoints", [False, True], ids=["at once", "staged"])
@pytest.mark.parametrize(
    ("value", "held"),
    [
        (True, 1),
        (date(2013, 1, 1), "2013-01-01"),
        (
            datetime(1937, 1, 1, tzinfo=timezone(timedelta(seconds=1172))),
            "1936-12-31T23:40:28+00:00",
        ),
        (datetime(2013, 1, 1, 5, 15, tzinfo=UTC), "2013-01-01T05:15:00+00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        (Kind.DEBIT, "debit"),
        (Text("a"), "a"),
        (b"\x00\xff", b"\x00\xff"),
        ([1, {"a": None}], '[1,{"a":null}]'),
        (2**63 - 1, 2**63 - 1),
        (None, None),
    ],
    ids=repr,
)
async def test_values_are_held_as_documented(
    tmp_path: Path, value: object, held: object, checkpoints: bool
) -> None:
    database = made(tmp_path / "a.db", "CREATE TABLE t (v)")
    sink = SqliteSink[object](database, "t")

    if checkpoints:
        await sink.recover("out", [])
        writer = await opened(sink)
        await writer.commit(await prepared(writer, 1, {"v": value}))
        await writer.close()
    else:
        await written(sink, [{"v": value}])

    assert rows(database) == [(held,)]


BAD: dict[str, tuple[dict[str, object], str]] = {
    "a field that is missing": ({"card": "1"}, "it has no field 'amount'"),
    "a field too many": (
        {"card": "1", "amount": 1, "x": 2},
        "the table has no column 'x'; columns=",
    ),
    "an int that is too large": ({"card": 2**63, "amount": 1}, "too large"),
    "a value of an unknown kind": ({"card": object(), "amount": 1}, "not JSON serializable"),
    "text that is none": ({"card": "\ud800", "amount": 1}, "surrogates not allowed"),
    "what a constraint forbids": ({"card": "1", "amount": -1}, "CHECK constraint failed"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("checkpoints", [False, True], ids=["at once", "staged"])
@pytest.mark.parametrize(("record", "reason"), BAD.values(), ids=BAD)
async def test_a_record_that_does_not_fit_is_an_error_that_shows_it(
    tmp_path: Path, record: dict[str, object], reason: str, checkpoints: bool
) -> None:
    database = made(
        tmp_path / "a.db", "CREATE TABLE t (card TEXT, amount REAL CHECK (amount >= 0))"
    )
    sink = SqliteSink[object](database, "t")
    await sink.recover("out", [])
    writer = await opened(sink, checkpoints=checkpoints)

    with pytest.raises(SinkError) as caught:
        await prepared(writer, 1, {"card": "0", "amount": 0}, record, {"card": "2", "amount": 0})
    await writer.close()

    message = str(caught.value)
    assert message.startswith(f"sink 'out': {database}: ")
    assert "'t'" in message
    assert reason in message
    assert repr(record["card"])[1:-1] in message
    assert rows(database) == []


@pytest.mark.asyncio
async def test_a_tuple_of_another_length_than_the_columns_is_an_error(database: Path) -> None:
    with pytest.raises(SinkError, match=r"record 7: row= gives 1 values for the columns \('card'"):
        await written(SqliteSink[int](database, "t", row=lambda n: (n,)), [7])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("table", "columns", "complaint"),
    [
        ("u", None, "there is no table 'u'; make it before the job starts"),
        ("t", ["x"], "table 't' has no column 'x'; it has ['card', 'amount']"),
    ],
    ids=["table", "column"],
)
async def test_a_missing_table_or_column_is_an_error_before_anything_is_written(
    database: Path, table: str, columns: list[str] | None, complaint: str
) -> None:
    with pytest.raises(SinkError) as caught:
        await opened(SqliteSink(database, table, columns=columns))

    assert str(caught.value) == f"sink 'out': {database}: {complaint}"


@pytest.mark.asyncio
async def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    with pytest.raises(SinkError, match=f"^sink 'out': {path}: .*must be there"):
        await opened(SqliteSink(path, "t"))
    with pytest.raises(SinkError, match=f"^sink 'out': {path}: .*must be there"):
        await SqliteSink[int](path, "t").recover("out", [])

    assert not path.exists()


@pytest.mark.asyncio
async def test_names_may_need_quotes(tmp_path: Path) -> None:
    name = 'or"der ?#%'
    database = made(
        tmp_path / "a ?#%.db", 'CREATE TABLE "or""der ?#%" ("the ""key""" PRIMARY KEY, v)'
    )

    await written(
        SqliteUpsert(database, name, key='the "key"'),
        [{'the "key"': 1, "v": 1}, {'the "key"': 1, "v": 2}],
    )

    assert rows(database, 'SELECT * FROM "or""der ?#%"') == [(1, 2)]


@pytest.mark.asyncio
async def test_a_database_that_is_locked_too_long_is_an_error_that_says_so(database: Path) -> None:
    sink = SqliteSink[Payment](database, "t", busy=timedelta(milliseconds=1))

    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkError, match=r"database is locked \(for 0\.001 s; another"):
            await written(sink, [Payment("1", 1)])


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: SqliteSink[int]("", "t"), "the path is empty"),
        (lambda: SqliteSink[int]("a.db", ""), "the table must be the name of one, not ''"),
        (lambda: SqliteSink[int]("a.db", "t", columns="ab"), "columns= must be several str"),
        (lambda: SqliteSink[int]("a.db", "t", columns=[]), "at least one"),
        (lambda: SqliteSink[int]("a.db", "t", columns=["a", "a"]), "different names"),
        (lambda: SqliteSink[int]("a.db", "t", busy=timedelta(-1)), "busy= must be a timedelta"),
        (lambda: SqliteUpsert[int]("a.db", "t", key=[]), "key= must be columns that are written"),
        (lambda: SqliteUpsert[int]("a.db", "t", key="a", columns=["b"]), "key= must be columns"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    make: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=complaint):
        make()
