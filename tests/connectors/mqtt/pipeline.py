"""A pipeline for tests that kill it: ``python -m tests.connectors.mqtt.pipeline`` (see main).

It writes the numbers of a topic to files, and to another topic. It ends when it has counted each number below COUNT,
and the file ``go`` exists in its folder.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

import aflow as af
from aflow_connectors.files import JsonLinesSink
from aflow_connectors.mqtt import MqttSink, MqttSource
from aflow_connectors.reconnect import Reconnect

#: Numbers of the input.
COUNT: Final = 600

QUICK: Final = Reconnect(
    delay=timedelta(milliseconds=1), most=timedelta(milliseconds=20), give_up_after=None
)


async def called(n: int) -> int:
    """A call that takes a moment, so that some are under way at each kill."""
    await asyncio.sleep(0.005)
    return n


def build(url: str, topic: str, files: Path, done: asyncio.Event) -> af.Flow:
    """Set ``done`` when each number was counted."""
    flow = af.Flow("mqtt")
    source = MqttSource(url, topic, client_id=topic, of=int, prefetch=100, reconnect=QUICK)
    numbers = flow.source(source, name="in").map_async(called, name="called", capacity=4)
    numbers.map(lambda n: {"n": n}, name="line").to(JsonLinesSink(files), name="files")
    numbers.to(MqttSink(url, f"{topic}/out", reconnect=QUICK), name="out")

    def counted(seen: int) -> int:
        if seen == (1 << COUNT) - 1:
            done.set()
        return seen

    seen = numbers.key_by(lambda n: 0).fold(int, lambda seen, n: seen | 1 << n, name="seen")
    seen.map(counted, name="counted").to(af.CollectSink(), name="none")
    return flow


async def main(url: str, topic: str, folder: str) -> None:
    """Run it, and print a line for each complete checkpoint."""
    path, done = Path(folder), asyncio.Event()
    flow = build(url, topic, path / "files", done)
    checkpointing = af.Checkpointing(
        storage=path / "checkpoints", every=timedelta(milliseconds=100)
    )
    async with flow.start(
        checkpointing=checkpointing,
        on_event=lambda event: print(type(event).__name__, flush=True),
    ) as job:
        await done.wait()
        while not (path / "go").exists():  # noqa: ASYNC110 - another process creates it
            await asyncio.sleep(0.01)
        await job.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
