"""A source and a sink of your own: copy rows from one SQLite table to another; the test kit checks the source.

A reader returns chunks of records. The position after each chunk is plain data, from which another reader can
continue. Blocking calls run in a worker thread.

Prints:

    the source satisfies its contract
    [(1, 'ADA'), (2, 'GRACE'), (3, 'BARBARA')]
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread

import aflow as af
from aflow.connect import Batch, Chunk, Position, Reader, Split, Writer, WriterContext
from aflow.testing import check_source

Row = tuple[int, str]


def query(database: Path, sql: str, *parameters: int) -> list[Row]:
    with sqlite3.connect(database) as connection:
        rows = connection.execute(sql, parameters).fetchall()
    connection.close()
    return rows


class NamesSource(af.Source[Row]):
    """Rows of the table ``names`` in the order of their ids; the position is the last id that was read."""

    def __init__(self, database: Path) -> None:
        self.database = database

    async def splits(self) -> Sequence[Split]:
        return [Split("names")]

    async def reader(self, split: Split, position: Position | None) -> Reader[Row]:
        return NamesReader(self.database, position if isinstance(position, int) else 0)


class NamesReader(Reader[Row]):
    def __init__(self, database: Path, last: int) -> None:
        self.database = database
        self.last = last

    async def read(self, limit: int) -> Chunk[Row] | None:
        sql = "SELECT id, name FROM names WHERE id > ? ORDER BY id LIMIT ?"
        rows = await to_thread.run_sync(query, self.database, sql, self.last, limit)
        if not rows:
            return None
        self.last = rows[-1][0]
        return Chunk(rows, self.last)


class GreetingsSink(af.Sink[Row]):
    """Write to the table ``greetings``; a row that is written twice is replaced."""

    delivery = af.connect.Delivery.IDEMPOTENT

    def __init__(self, database: Path) -> None:
        self.database = database

    async def writer(self, context: WriterContext) -> Writer[Row]:
        return GreetingsWriter(self.database)


class GreetingsWriter(Writer[Row]):
    def __init__(self, database: Path) -> None:
        self.database = database

    async def write(self, batch: Batch[Row]) -> None:
        await to_thread.run_sync(self.insert, batch.values)

    def insert(self, rows: list[Row]) -> None:
        with sqlite3.connect(self.database) as connection:
            connection.executemany("INSERT OR REPLACE INTO greetings VALUES (?, ?)", rows)
        connection.close()


def build(names: af.Source[Row], greetings: af.Sink[Row]) -> af.Flow:
    flow = af.Flow("greetings")
    rows = flow.source(names, name="names")
    rows.map(lambda row: (row[0], row[1].upper()), name="shout").to(greetings, name="greetings")
    return flow


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder, "people.db")
        query(database, "CREATE TABLE greetings (id INTEGER PRIMARY KEY, name TEXT)")
        query(database, "CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT)")
        query(database, "INSERT INTO names (name) VALUES ('Ada'), ('Grace'), ('Barbara')")

        await check_source(lambda: NamesSource(database))
        print("the source satisfies its contract")

        await build(NamesSource(database), GreetingsSink(database)).run()
        print(query(database, "SELECT * FROM greetings"))


if __name__ == "__main__":
    asyncio.run(main())
