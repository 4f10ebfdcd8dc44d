"""A pipeline for tests that kill it: ``python -m tests.connectors.rabbitmq.pipeline`` (see main).

It sums the numbers of a queue in windows, and writes the sums to files and to another queue.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aflow as af
from aflow_connectors.files import JsonLinesSink
from aflow_connectors.rabbitmq import RabbitmqSink, RabbitmqSource
from tests.connectors.rabbitmq.reading import QUICK

KEYS: Final = 5

#: Width of the windows in milliseconds. The number n of the input has the timestamp n.
WIDTH: Final = 100


async def priced(total: af.Windowed[int, int]) -> dict[str, int]:
    """A call that takes a moment, so that some are under way at each kill."""
    await asyncio.sleep(0.01)
    return {"key": total.key, "start": total.window.start, "sum": total.value}


def build(url: str, source: str, sink: str, files: Path) -> af.Flow:
    """Sum the numbers of each key in windows."""
    flow = af.Flow("rabbitmq")
    numbers = flow.source(
        RabbitmqSource(url, source, of=int, until="now", reconnect=QUICK), name="in"
    )
    sums = (
        numbers.event_time()
        .key_by(lambda n: n % KEYS)
        .window(af.Tumbling(timedelta(milliseconds=WIDTH)))
        .fold(int, lambda total, n: total + n, name="sum")
    )
    called = sums.map_async(priced, name="priced", capacity=2)
    called.to(JsonLinesSink(files), name="files")
    queue = RabbitmqSink[dict[str, Any]](
        url, key=sink, message_id=lambda one: f"{one['key']}-{one['start']}", reconnect=QUICK
    )
    called.to(queue, name="out")
    return flow


def expected(count: int) -> list[tuple[int, int, int]]:
    """Return the key, the start and the sum of each window for the numbers below ``count``."""
    sums: dict[tuple[int, int], int] = {}
    for n in range(count):
        place = (n % KEYS, n // WIDTH * WIDTH)
        sums[place] = sums.get(place, 0) + n
    return sorted((*place, total) for place, total in sums.items())


async def main(url: str, source: str, sink: str, folder: str) -> None:
    """Run it to the end of the input, and print a line for each complete checkpoint."""
    path = Path(folder)
    await build(url, source, sink, path / "files").run(
        parallelism=2,
        checkpointing=af.Checkpointing(
            storage=path / "checkpoints", every=timedelta(milliseconds=100)
        ),
        on_event=lambda event: print(type(event).__name__, flush=True),
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
