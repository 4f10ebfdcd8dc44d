"""Exactly-once results after a crash: rows in SQLite and lines in files, from a job that fails half-way.

With checkpoints the next run of a job continues from the last completed checkpoint. The sinks commit only the records
that a completed checkpoint covers, so each payment is stored once.

Prints:

    the payment service is down
    in the database: 30 payments, sum 435
    in the files: 30 payments, sum 435
"""

import asyncio
import json
import sqlite3
import tempfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import aflow as af
from aflow.testing import Crash, Pause, ScriptedSource
from aflow_connectors.files import JsonLinesSink
from aflow_connectors.sqlite import SqliteSink


class Payment(NamedTuple):
    card: int
    amount: int


def payments() -> ScriptedSource[Payment]:
    """Return thirty payments within a second, with a failure after the twentieth."""
    script: list[Payment | Pause | Crash] = []
    for n in range(30):
        script += [Payment(n % 3, n), Pause(timedelta(milliseconds=30))]
        if n == 20:
            script.append(Crash(ConnectionError("the payment service is down")))
    return ScriptedSource[Payment](*script)


def build(source: af.Source[Payment], table: af.Sink[Payment], files: af.Sink[Payment]) -> af.Flow:
    flow = af.Flow("payments")
    paid = flow.source(source, name="payments")
    paid.to(table, name="table")
    paid.to(files, name="files")
    return flow


async def run(folder: Path) -> None:
    source = payments()
    database, lines = folder / "shop.db", folder / "payments"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE payments (card INTEGER, amount INTEGER)")
    every = timedelta(milliseconds=100)
    checkpointing = af.Checkpointing(storage=folder / "checkpoints", every=every)

    for _ in range(2):
        flow = build(source, SqliteSink(database, "payments"), JsonLinesSink(lines))
        try:
            await flow.run(checkpointing=checkpointing)
        except af.errors.SourceError as error:
            print(error.__cause__)

    with closing(sqlite3.connect(database)) as connection:
        found = [amount for (amount,) in connection.execute("SELECT amount FROM payments")]
    print(f"in the database: {len(found)} payments, sum {sum(found)}")
    parts = [path.read_text().splitlines() for path in lines.glob("part-*.jsonl")]
    found = [json.loads(line)["amount"] for part in parts for line in part]
    print(f"in the files: {len(found)} payments, sum {sum(found)}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


if __name__ == "__main__":
    main()
