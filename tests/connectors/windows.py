"""A pipeline with windows and calls between two systems, in a process that tests kill."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import aflow as af
from aflow.connect import Sink, Source

PROJECT: Final = Path(__file__).parents[2]

KEYS: Final = 5

#: Width of the windows in milliseconds. The number n of the input has the timestamp n.
WIDTH: Final = 100

Disturb = Callable[[asyncio.subprocess.Process], Awaitable[None]]


def _number(record: Any) -> int:
    return record if isinstance(record, int) else int(record["n"])


async def _priced(total: af.Windowed[int, int]) -> dict[str, int]:
    """A call that takes a moment, so that some are under way at each kill."""
    await asyncio.sleep(0.01)
    return {"key": total.key, "start": total.window.start, "sum": total.value}


async def run_windows(
    source: Source[Any],
    sink: Sink[dict[str, int]],
    folder: str,
    *,
    times: Literal["of messages", "of numbers"] = "of messages",
) -> None:
    """Sum the numbers of each key in windows. Print a line for each event, as for complete checkpoints.

    A record is a number, or has one in its field ``n``. ``times``: messages have their numbers as timestamps, or not.
    """
    flow = af.Flow("windows")
    records = flow.source(source, name="in")
    timed = records.event_time() if times == "of messages" else records.event_time(_number)
    sums = (
        timed.map(_number, name="number")
        .key_by(lambda n: n % KEYS)
        .window(af.Tumbling(timedelta(milliseconds=WIDTH)))
        .fold(int, lambda total, n: total + n, name="sum")
    )
    sums.map_async(_priced, name="priced", capacity=2).to(sink, name="out")
    await flow.run(
        parallelism=2,
        checkpointing=af.Checkpointing(storage=folder, every=timedelta(milliseconds=100)),
        on_event=lambda event: print(type(event).__name__, flush=True),
    )


def expected(count: int) -> list[tuple[int, int, int]]:
    """Return the key, the start and the sum of each window for the numbers below ``count``."""
    sums: dict[tuple[int, int], int] = {}
    for n in range(count):
        place = (n % KEYS, n // WIDTH * WIDTH)
        sums[place] = sums.get(place, 0) + n
    return sorted((*place, total) for place, total in sums.items())


async def run_process(
    module: str, arguments: Sequence[str], checkpoints: int, disturb: Disturb | None = None
) -> bool:
    """Run ``module``, with ``disturb`` after so many checkpoints. Return True if it ended by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", module, *arguments),
        cwd=PROJECT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(120):
        while line := await process.stdout.readline():
            checkpoints -= line == b"CheckpointInfo\n"
            if checkpoints <= 0 and disturb is not None:
                await disturb(process)
                disturb = None
        _, errors = await process.communicate()
    assert process.returncode in (0, -9), errors.decode()
    return process.returncode == 0


async def run_killed(module: str, arguments: Sequence[str], *, kills: int, seed: int = 3) -> int:
    """Run ``module`` until its end, after it was killed ``kills`` times at random moments.

    Return the number of kills; fewer if it ended before.
    """
    random = Random(seed)
    killed = 0

    async def kill(process: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(random.uniform(0, 0.15))
        process.kill()

    for _ in range(kills):
        killed += not await run_process(module, arguments, random.randint(1, 3), kill)
    assert await run_process(module, arguments, 0)
    return killed
