"""A job that the tests kill: ``python -m tests.connectors.http.killed_job URL FOLDER``.

It reads the same numbers from a list with a cursor, from server-sent events and from a WebSocket, passes each through
an async call, adds them up by source and remainder, and posts each total. It is restored from its checkpoints in
FOLDER, if there are any, and never ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import aflow as af
from aflow_connectors.http import HttpEvents, HttpPage, HttpPoll, HttpSink, HttpWebSocket
from aflow_connectors.reconnect import Reconnect

#: Numbers of each source, from 0 on.
COUNT: Final = 300
#: Remainders of the numbers, which are keys together with the source.
KEYS: Final = 7

SOURCES: Final = ("list", "events", "socket")


def expected() -> list[dict[str, Any]]:
    """Return the totals that the job posts, each once, sorted by source and number."""
    rows: list[dict[str, Any]] = []
    for source in sorted(SOURCES):
        totals = [0] * KEYS
        for n in range(COUNT):
            totals[n % KEYS] += n
            rows.append({"source": source, "n": n, "total": totals[n % KEYS]})
    return rows


def _after(page: HttpPage[Any]) -> dict[str, int]:
    return {"after": page.records[-1]["n"]}


async def _called(record: tuple[str, int]) -> tuple[str, int]:
    await asyncio.sleep(0.002)
    return record


def _sources(flow: af.Flow, url: str) -> Iterator[af.Stream[tuple[str, int]]]:
    soon = Reconnect(delay=timedelta(milliseconds=5), most=timedelta(milliseconds=50))
    listed: HttpPoll[Any] = HttpPoll(
        f"{url}/list",
        records="data.items",
        cursor=_after,
        every=timedelta(milliseconds=10),
        reconnect=soon,
    )
    events: HttpEvents[Any] = HttpEvents(f"{url}/events", reconnect=soon)
    socket: HttpWebSocket[Any] = HttpWebSocket(
        f"{url}/socket",
        start=-1,
        position=lambda record: record["n"],
        resume=lambda n: {"after": n},
        reconnect=soon,
    )
    for name, source in zip(SOURCES, (listed, events, socket), strict=True):
        yield flow.source(source, name=name).map(_tagged(name), name=f"{name} tagged")


def _nothing() -> tuple[str, int, int]:
    return "", 0, 0


def _tagged(name: str) -> Callable[[dict[str, int]], tuple[str, int]]:
    def tag(record: dict[str, int]) -> tuple[str, int]:
        return name, record["n"]

    return tag


def flow_of(url: str) -> af.Flow:
    flow = af.Flow("killed")
    first, *others = _sources(flow, url)
    totals = (
        first.union(*others)
        .map_async(_called, name="called", capacity=8)
        .key_by(lambda record: (record[0], record[1] % KEYS))
        .fold(
            _nothing,
            lambda total, record: (record[0], record[1], total[2] + record[1]),
            name="totals",
        )
        .map(lambda total: {"source": total[0], "n": total[1], "total": total[2]}, name="row")
    )
    sink = HttpSink[dict[str, Any]](f"{url}/totals", exactly_once=True, max_records=20)
    totals.to(sink, name="totals sink")
    return flow


async def main(url: str, folder: str) -> None:
    checkpointing = af.Checkpointing(storage=folder, every=timedelta(milliseconds=100))
    await flow_of(url).run(checkpointing=checkpointing)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
