"""A program that joins two streams and sets timers, with state on disk, until it is killed.

It prints a line for each checkpoint. It ends only if the file ``go`` exists in its folder.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import aflow as af
from aflow.testing import Pause, ScriptedSource
from aflow.testing.scripted_source import Line
from aflow_connectors.files import JsonLinesSink

RECORDS = 2_000
KEYS = 300


class Event(NamedTuple):
    """A record of either input."""

    key: str
    at: int
    number: int


def events(factor: int) -> list[Event]:
    """Return the records of one input, up to 100 ms out of order."""
    return [
        Event(f"key {number * factor % KEYS}", number + number * factor % 100, number)
        for number in range(RECORDS)
    ]


def row(kind: str, left: Event | None, right: Event | None) -> list[object]:
    """Return a result with the numbers of its records."""
    return [kind, left and left.number, right and right.number]


def session(one: af.Windowed[str, list[int]]) -> list[object]:
    """Return a result with the numbers of the records of both inputs."""
    return ["session", one.key, *one.value]


class Reminder(af.AsyncKeyedProcess[str, Event, list[object]]):
    """Sets a timer for each record."""

    async def process(self, value: Event, ctx: af.AsyncContext[str]) -> None:
        ctx.set_event_timer(value.at + 300)

    async def on_timer(self, at: int, ctx: af.AsyncContext[str]) -> list[list[object]]:
        return [["timer", ctx.key, at]]


def flow(folder: Path) -> af.Flow:
    """Return a flow that writes the results of three joins, and of timers of async handlers."""
    joins = af.Flow("joins on disk")

    async def wait_at_the_end(event: Event) -> Event:
        # Another process creates the file.
        while event.number == RECORDS - 1 and not (folder / "go").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return event

    def keyed(name: str, factor: int) -> af.KeyedStream[str, Event]:
        script: list[Line[Event]] = []
        for event in events(factor):
            script.append(event)
            if event.number % 50 == 49:
                script.append(Pause(timedelta(milliseconds=4)))
        read = joins.source(ScriptedSource[Event](*script), name=name)
        waiting = read.map_async(wait_at_the_end, ordered=True, name=f"{name}, waiting")
        delay = timedelta(milliseconds=150)
        return waiting.event_time(lambda event: event.at, max_delay=delay).key_by(
            lambda event: event.key
        )

    lefts, rights = keyed("lefts", 7), keyed("rights", 11)
    near = timedelta(milliseconds=250)
    pairs = lefts.interval_join(rights, between=(-near, near), of=Event, other_of=Event).full(
        lambda left, right: row("pair", left, right), name="pairs"
    )
    versions = lefts.as_of_join(rights, tolerance=near, of=Event, other_of=Event).left(
        lambda left, right: row("version", left, right), name="versions"
    )
    sessions = lefts.co_group(
        rights,
        af.Session(timedelta(milliseconds=100)),
        into=lambda some, others: sorted(event.number for event in (*some, *others)),
        of=Event,
        other_of=Event,
        name="sessions",
    ).map(session)
    reminders = lefts.process_async(Reminder(), name="reminders")
    pairs.union(versions, sessions, reminders).to(JsonLinesSink(folder / "out"), name="out")
    return joins


def main(folder: Path, backend: str, parallelism: int) -> None:
    """Run the flow with ``backend``: ``memory``, ``sqlite`` or ``rocksdb``."""
    state = (
        af.backends.InMemory()
        if backend == "memory"
        else af.backends.OnDisk(af.backends.DiskEngine(backend), folder / "scratch", resident=20)
    )

    def tell(event: af.JobEvent) -> None:
        print(type(event).__name__, flush=True)

    checkpointing = af.Checkpointing(
        storage=folder / "checkpoints", every=timedelta(milliseconds=25)
    )
    asyncio.run(
        flow(folder).run(
            parallelism=parallelism,
            options=af.Options(state=state, batch_records=16),
            checkpointing=checkpointing,
            on_event=tell,
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
