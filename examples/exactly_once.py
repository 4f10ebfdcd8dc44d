"""Exactly once, through a crash: rows in SQLite and lines in files, although the job is killed by an error half-way.

With checkpoints a job that is run again goes on where the last one was complete. The sinks show what a complete
checkpoint covers, and nothing else, so each payment is there once.

Prints:

    the payment service is down
    in the database: 30 payments, 435 in all
    in the files: 30 payments, 435 in all
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
    """Thirty payments in a second, and a failure after the twentieth."""
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
        except af.SourceError as error:
            print(error.__cause__)

    with closing(sqlite3.connect(database)) as connection:
        found = [amount for (amount,) in connection.execute("SELECT amount FROM payments")]
    print(f"in the database: {len(found)} payments, {sum(found)} in all")
    pieces = [path.read_text().splitlines() for path in lines.glob("part-*.jsonl")]
    found = [json.loads(line)["amount"] for piece in pieces for line in piece]
    print(f"in the files: {len(found)} payments, {sum(found)} in all")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


if __name__ == "__main__":
    main()
