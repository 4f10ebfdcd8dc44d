"""A table that random transactions change, and a replica of it from its changes.

``python -m tests.connectors.postgres.changing_table TRANSACTIONS SEED`` compares them over many transactions, by hand.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any, Final

from aflow.connect import Chunk, Position, Reader
from aflow.model.codecs import PLAIN
from aflow_connectors.postgres import Change, PostgresChanges
from aflow_connectors.postgres.changes.position import decoded
from tests.connectors.postgres.server import asyncpg, programs, running

Row = dict[str, Any]
Key = tuple[str, ...]

TABLE: Final = (
    'CREATE TABLE changing (a text COLLATE "C", b integer, c numeric, wide text, d jsonb, e integer[], f timestamptz, '
    "PRIMARY KEY (b, a))"
)
#: The wide values are stored apart, and not sent by updates of other columns.
STORED_APART: Final = "ALTER TABLE changing ALTER wide SET STORAGE EXTERNAL"

#: Characters per wide value, rows of a large transaction, and the bound of the number of rows.
_WIDE: Final = 3000
_LARGE: Final = 400
_MOST_ROWS: Final = 1500

#: Transactions after which the rows are remembered.
_REMEMBERED: Final = 2000


def key_of(row: Row) -> Key:
    return str(row["b"]), row["a"]


class ChangingTable:
    """Writes random transactions over two connections, and remembers the rows after each commit.

    Open transactions of the connections overlap, and change rows with different ``b``.
    """

    def __init__(self, random: Random, connections: list[Any]) -> None:
        self._random = random
        self._connections = connections
        self.rows: dict[Key, Row] = {}
        #: The rows after each transaction, by its id.
        self.after: dict[int, dict[Key, Row]] = {}
        self._open: dict[int, tuple[int, dict[Key, Row | None]]] = {}
        self._count = 0
        #: Called before the table is truncated, which waits for a snapshot to end.
        self.before_truncate = _nothing

    async def fill(self, count: int) -> None:
        """Insert rows in one transaction."""
        await self._begin(0)
        for _ in range(count):
            await self._insert(0)
        await self._commit(0)

    async def write(self, transactions: int) -> None:
        """Commit, or roll back, this number of transactions."""
        for _ in range(transactions):
            number = self._random.randrange(len(self._connections))
            if number not in self._open:
                await self._begin(number)
            truncates = self._random.random() < 0.01 and len(self._open) == 1
            if truncates:
                await self._truncate(number)
            large = self._random.random() < 0.01
            for _ in range(_LARGE if large else self._random.randrange(6)):
                await self._change(number)
            if (
                not truncates
                and self._random.random() < 0.3
                and number + 1 < len(self._connections)
            ):
                # Another transaction begins, and maybe commits, before the end of this one.
                other = number + 1
                if other not in self._open:
                    await self._begin(other)
                await self._change(other)
            await self._end(number)
        await self.finish()

    async def finish(self) -> None:
        for number in list(self._open):
            await self._end(number)

    async def _end(self, number: int) -> None:
        if self._random.random() < 0.1:
            await self._connections[number].execute("ROLLBACK")
            del self._open[number]
        else:
            await self._commit(number)

    async def _begin(self, number: int) -> None:
        connection = self._connections[number]
        await connection.execute("BEGIN")
        self._open[number] = await connection.fetchval("SELECT txid_current()"), {}

    async def _commit(self, number: int) -> None:
        await self._connections[number].execute("COMMIT")
        xid, changed = self._open.pop(number)
        self.rows = {**self.rows, **{k: v for k, v in changed.items() if v is not None}}
        for key, row in changed.items():
            if row is None:
                self.rows.pop(key, None)
        self.after[xid] = dict(self.rows)
        if len(self.after) > _REMEMBERED:
            del self.after[next(iter(self.after))]

    def _of(self, number: int) -> list[Key]:
        """The keys of rows that connection ``number`` may change now."""
        _, changed = self._open[number]
        count = len(self._connections)
        keys = [key for key in self.rows if key not in changed and int(key[0]) % count == number]
        return keys + [key for key, row in changed.items() if row is not None]

    def _row(self, number: int, key: Key) -> Row:
        return self._open[number][1].get(key) or self.rows[key]

    async def _change(self, number: int) -> None:
        keys = self._of(number)
        kind = self._random.random()
        if not keys or (kind < 0.4 and len(self.rows) < _MOST_ROWS):
            await self._insert(number)
            return
        key = self._random.choice(keys)
        if kind < 0.6:
            await self._execute(number, "DELETE FROM changing WHERE b = $1 AND a = $2", *_key(key))
            self._open[number][1][key] = None
        elif kind < 0.8:
            await self._move(number, key)
        else:
            await self._update(number, key)

    async def _insert(self, number: int) -> None:
        row = self._new_row(number)
        values = [*row.values()]
        values[4] = json.dumps(row["d"])
        await self._execute(
            number, "INSERT INTO changing VALUES ($1, $2, $3, $4, $5, $6, $7)", *values
        )
        self._open[number][1][key_of(row)] = row

    async def _move(self, number: int, key: Key) -> None:
        row = self._row(number, key)
        new = self._new_row(number)
        moved = {**row, "a": new["a"], "b": new["b"]}
        await self._execute(
            number,
            "UPDATE changing SET a = $3, b = $4 WHERE b = $1 AND a = $2",
            *_key(key),
            moved["a"],
            moved["b"],
        )
        self._open[number][1][key] = None
        self._open[number][1][key_of(moved)] = moved

    async def _update(self, number: int, key: Key) -> None:
        row = {**self._row(number, key), "c": self._decimal(), "d": self._json()}
        await self._execute(
            number,
            "UPDATE changing SET c = $3, d = $4 WHERE b = $1 AND a = $2",
            *_key(key),
            row["c"],
            json.dumps(row["d"]),
        )
        self._open[number][1][key] = row

    async def _truncate(self, number: int) -> None:
        await self.before_truncate()
        await self._connections[number].execute("TRUNCATE changing")
        changed = self._open[number][1]
        changed.clear()
        changed.update(dict.fromkeys(self.rows))

    async def _execute(self, number: int, sql: str, *values: object) -> None:
        assert (await self._connections[number].execute(sql, *values)).endswith(" 1")

    def _new_row(self, number: int) -> Row:
        random, count = self._random, len(self._connections)
        self._count += 1
        return {
            "a": random.choice("aBé\\'\"\n ") + str(self._count),
            "b": random.randrange(-50, 50) * count + number,
            "c": self._decimal(),
            "wide": random.choice([None, "", "short", "w" * _WIDE + str(self._count)]),
            "d": self._json(),
            "e": random.choice([None, [], [1, None, -3]]),
            "f": None,
        }

    def _decimal(self) -> Decimal | None:
        return self._random.choice([None, Decimal("1.50"), Decimal(self._random.randrange(10**9))])

    def _json(self) -> object:
        return self._random.choice([None, {"n": [1, "\\ \" '"]}, "text"])


async def _nothing() -> None:
    pass


def _key(key: Key) -> tuple[int, str]:
    return int(key[0]), key[1]


class Replica:
    """The rows that follow from changes. Each change must fit: no row is inserted twice, or changed before."""

    def __init__(self, rows: dict[Key, Row] | None = None) -> None:
        self.rows = dict(rows or {})

    def apply(self, change: Change[Row]) -> None:
        if change.kind == "truncate":
            self.rows.clear()
            return
        old: Row = {}
        if change.kind != "insert":
            old = self.rows.pop(change.key)
            assert change.before is None or change.before == old
        if change.after is not None:
            row = {**{name: old[name] for name in change.unchanged}, **change.after}
            assert key_of(row) not in self.rows
            self.rows[key_of(row)] = row


class ReplicaJob:
    """Reads changes into a replica, in the way of a job with checkpoints, and continues from them."""

    def __init__(
        self, source: Callable[[], PostgresChanges[Row]], random: Random, table: ChangingTable
    ) -> None:
        self._source = source
        self._random = random
        self._table = table
        self.replica = Replica()
        self._reader: Reader[Change[Row]] | None = None
        #: The position, and the rows, of the last completed checkpoint.
        self._checkpoint: tuple[bytes | None, dict[Key, Row]] = (None, {})
        #: Comparisons with the table, and restores.
        self.compared = 0
        self.restored = 0
        self._in_snapshot = False
        #: The position of the last chunk.
        self._position: Position = None
        #: The transaction of the last change; None for the snapshot, and after a crash.
        self._xid: int | None = None

    async def read_all(self) -> None:
        """Read until the replica has the rows of the table."""
        while self.replica.rows != self._table.rows:
            await self.step()

    async def read_partly(self, rows: int) -> None:
        """Read rows of the snapshot, and crash after a checkpoint."""
        while len(self.replica.rows) < rows:
            await self.step()
        await self._opened()
        await self.checkpoint(self._position)
        await self.crash()

    async def step(self) -> None:
        """Read a chunk; then complete a checkpoint, or crash, or neither."""
        reader = await self._opened()
        chunk: Chunk[Change[Row]] | None = await reader.read(self._random.choice([1, 3, 100]))
        assert chunk is not None
        for change in chunk.values:
            self.replica.apply(change)
        self._position = chunk.position
        self._compare(chunk)
        fate = self._random.random()
        if fate < 0.1:
            await self.checkpoint(chunk.position)
        elif fate < 0.12:
            await self.crash()

    async def checkpoint(self, position: Position) -> None:
        assert self._reader is not None
        self._checkpoint = PLAIN.encode(position), dict(self.replica.rows)
        await self._reader.on_checkpoint_completed(position)

    async def end_snapshot(self) -> None:
        """Crash if a snapshot is being read."""
        if self._in_snapshot:
            await self.crash()

    async def crash(self) -> None:
        """Forget all since the last completed checkpoint."""
        await self.close()
        self.replica = Replica(self._checkpoint[1])
        self.restored += 1
        self._xid = None

    async def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def _opened(self) -> Reader[Change[Row]]:
        if self._reader is None:
            source = self._source()
            (split,) = await source.splits()
            position = self._checkpoint[0]
            decoded = None if position is None else PLAIN.decode(position)
            self._reader = await source.reader(split, decoded)
        return self._reader

    def _compare(self, chunk: Chunk[Change[Row]]) -> None:
        position = decoded(PLAIN.decode(PLAIN.encode(chunk.position)), "the replica")
        self._in_snapshot = position.snapshot is not None
        if chunk.values:
            self._xid = chunk.values[-1].transaction
        if position.number == 0 and position.snapshot is None and self._xid is not None:
            assert self.replica.rows == self._table.after[self._xid]
            self.compared += 1


async def compare(address: str, transactions: int, seed: int, *, full: bool) -> ReplicaJob:
    """Read a table while it changes, and compare. Return the job."""
    random = Random(seed)
    connections = [await asyncpg.connect(address) for _ in range(2)]
    try:
        await connections[0].execute(TABLE)
        await connections[0].execute(STORED_APART)
        if full:
            await connections[0].execute("ALTER TABLE changing REPLICA IDENTITY FULL")
        table = ChangingTable(random, connections)
        await table.fill(100)
        job = ReplicaJob(
            lambda: PostgresChanges(
                address, "changing", slot=f"changing_{seed}", page=random.choice([1, 7, 100])
            ),
            random,
            table,
        )
        table.before_truncate = job.end_snapshot
        try:
            await job.read_partly(40)
            done = 0
            while done < transactions:
                count = min(random.choice([1, 10, 40]), transactions - done)
                done += count
                await table.write(count)
                steps = random.choice([0, count, 1000])
                while steps and job.replica.rows != table.rows:  # else a read would wait
                    await job.step()
                    steps -= 1
            await job.read_all()
        finally:
            await job.close()
        found = await connections[0].fetch("SELECT * FROM changing")
        rows = [{**row, "d": None if row["d"] is None else json.loads(row["d"])} for row in found]
        assert {key_of(row): row for row in rows} == job.replica.rows
    finally:
        for connection in connections:
            await connection.close()
    return job


async def _main(transactions: int, seed: int) -> None:
    found = programs()
    assert found is not None
    with running(found) as server:
        for full in (False, True):
            start = time.monotonic()
            job = await compare(server.address, transactions, seed + full, full=full)
            took = time.monotonic() - start
            print(
                f"full={full}: {transactions} transactions, {job.compared} comparisons, {job.restored} restores, "
                f"{took:.0f} s",
                flush=True,
            )
            connection = await asyncpg.connect(server.address)
            await connection.execute("DROP TABLE changing")
            await connection.close()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))
