"""A pipeline from Kafka to Kafka for tests that kill it: ``python -m tests.connectors.kafka.pipeline`` (see main)."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Final

import aflow as af
from aflow_connectors.kafka import KafkaSink, KafkaSource

KEYS: Final = 5

#: Width of the windows in milliseconds. The number n of the input has the timestamp n.
WIDTH: Final = 100


async def priced(total: af.Windowed[int, int]) -> dict[str, int]:
    """A call that takes a moment, so that some are under way at each kill."""
    await asyncio.sleep(0.01)
    return {"key": total.key, "start": total.window.start, "sum": total.value}


def build(servers: str, source: str, sink: str) -> af.Flow:
    """Sum the numbers of each key in windows."""
    flow = af.Flow("kafka")
    numbers = flow.source(KafkaSource(servers, source, of=int, until="now"), name="in")
    sums = (
        numbers.event_time()
        .key_by(lambda n: n % KEYS)
        .window(af.Tumbling(timedelta(milliseconds=WIDTH)))
        .fold(int, lambda total, n: total + n, name="sum")
    )
    called = sums.map_async(priced, name="priced", capacity=2)
    called.to(KafkaSink(servers, sink, key=lambda one: str(one["key"])), name="out")
    return flow


def expected(count: int) -> list[tuple[int, int, int]]:
    """Return the key, the start and the sum of each window for the numbers below ``count``."""
    sums: dict[tuple[int, int], int] = {}
    for n in range(count):
        place = (n % KEYS, n // WIDTH * WIDTH)
        sums[place] = sums.get(place, 0) + n
    return sorted((*place, total) for place, total in sums.items())


async def main(servers: str, source: str, sink: str, folder: str) -> None:
    """Run it to the end of the input, and print a line for each complete checkpoint."""

    await build(servers, source, sink).run(
        parallelism=2,
        checkpointing=af.Checkpointing(storage=folder, every=timedelta(milliseconds=100)),
        on_event=lambda event: print(type(event).__name__, flush=True),
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
