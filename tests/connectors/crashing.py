"""Writes numbers into a sink and is killed, repeatedly: ``python -m tests.connectors.crashing`` (see main)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow_connectors.files import CsvSink, JsonLinesSink
from aflow_connectors.sqlite import SqliteSink, SqliteUpsert

#: Numbers that are written, from 0 on.
COUNT: Final = 1500

#: Checkpoints of an attempt until it is killed, at most, and the seconds after the last of these, at most.
_CHECKPOINTS: Final = 10
_LONGEST: Final = 0.01

#: Checkpoints after which an attempt waits for its kill. All attempts together cannot come to the end.
_MOST: Final = 15

SINKS: Final[dict[str, Callable[[Path], Sink[Any]]]] = {
    "jsonl": lambda folder: JsonLinesSink(folder / "out"),
    "csv.gz": lambda folder: CsvSink(folder / "out" / "numbers.csv.gz"),
    "sqlite": lambda folder: SqliteSink(folder / "out.db", "t"),
    "upsert": lambda folder: SqliteUpsert(folder / "out.db", "t", key="n"),
}


@dataclass(frozen=True)
class Complete:
    """The last complete checkpoint."""

    position: int = 0
    committables: tuple[Any, ...] = ()


class Journal:
    """Record of the last complete checkpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = path.with_suffix(".numbers")
        #: The number that this process does not get: it waits to be killed.
        self.end: int | None = None

    def read(self) -> Complete:
        if not self._path.exists():
            return Complete()
        return Complete(**json.loads(self._path.read_text()))

    def write(self, complete: Complete) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(complete.__dict__))
        os.replace(temporary, self._path)

    def next_number(self) -> int:
        """Return a new number, never the same twice."""
        if self.last_number() == self.end:
            signal.pause()
        with self._numbers.open("a+") as numbers:
            numbers.write("x")
            return numbers.tell()

    def last_number(self) -> int:
        """Return the last number, 0 if there is none."""
        return self._numbers.stat().st_size if self._numbers.exists() else 0


async def attempt(sink: Sink[Any], journal: Journal, random: Random) -> None:
    """Resume from the last complete checkpoint, and run to the end."""
    complete = journal.read()
    await sink.recover("out", complete.committables)
    parallelism = random.randint(1, 3)
    writers = [
        await sink.writer(
            WriterContext("out", subtask=number, parallelism=parallelism, checkpoints=True)
        )
        for number in range(parallelism)
    ]
    waiting: list[tuple[Writer[Any], Any]] = []
    position = complete.position
    while position < COUNT:
        stop = min(COUNT, position + random.randint(1, 20))
        for number in range(position, stop):
            writing = writers[number % parallelism].write(Batch([{"n": number}]))
            if writing is not None:
                await writing
        position = stop
        checkpoint = journal.next_number()
        for writer in writers:
            committable = await writer.prepare(checkpoint)
            if committable is not None:
                waiting.append((writer, committable))
        if position < COUNT and random.random() < 0.2:
            continue  # the checkpoint did not come about
        prepared = tuple(committable for _, committable in waiting)
        journal.write(Complete(position, prepared))
        for writer, committable in waiting:
            await writer.commit(committable)
        waiting.clear()
    for writer in writers:
        await writer.flush()
        await writer.close()


def killed(work: Callable[[], None], kill: Callable[[], None] | None) -> bool:
    """Run ``work`` in a process of its own, and kill it when ``kill`` returns. Return True if it had not ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    if kill is not None:
        kill()
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        sys.exit(f"an attempt failed with {os.WEXITSTATUS(status)}")
    return False


def main(kind: str, folder: Path, kills: int, seed: int) -> None:
    """Print how many attempts were killed."""
    journal = Journal(folder / "journal.json")
    random = Random(seed)

    def work() -> None:
        asyncio.run(attempt(SINKS[kind](folder), journal, Random(random.random())))

    def until_kill() -> None:
        assert journal.end is not None
        wanted = journal.end - _MOST + random.randint(0, _CHECKPOINTS)
        while journal.last_number() < wanted:
            time.sleep(0.001)
        time.sleep(random.uniform(0, _LONGEST))

    count = 0
    for _ in range(kills):
        journal.end = journal.last_number() + _MOST
        count += killed(work, until_kill)
    journal.end = None
    killed(work, None)
    print(count)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
