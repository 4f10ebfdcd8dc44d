"""The job of a pair, in a process that is killed.

Each number of the input passes a call, the numbers of each key are summed in windows, and each sum passes another
call and is written to all sinks of the pair. The job continues from its checkpoints, and never ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import aflow as af
from tests.connectors.pairs.pair import Ends, Result, pair_named

KEYS: Final = 5

#: Width of the windows in milliseconds. The number n of the input has the timestamp n.
WIDTH: Final = 100

#: Calls of numbers at the same time, in each subtask, and their duration in seconds.
_CALLS: Final = 16
_CALL: Final = 0.01


async def _looked_up(number: int) -> int:
    await asyncio.sleep(_CALL)
    return number


async def _priced(total: af.Windowed[int, int]) -> dict[str, int]:
    await asyncio.sleep(_CALL)
    return {"key": total.key, "start": total.window.start, "sum": total.value}


def flow_of(ends: Ends) -> af.Flow:
    """Return the flow between ``ends``."""
    flow = af.Flow("pair")
    numbers = (
        flow.source(ends.source, name="in")
        .event_time(ends.number, max_delay=ends.max_delay)
        .map(ends.number, name="number")
        .map_async(_looked_up, name="looked_up", capacity=_CALLS)
    )
    sums = (
        numbers.key_by(lambda number: number % KEYS)
        .window(af.Tumbling(timedelta(milliseconds=WIDTH)))
        .fold(int, lambda total, number: total + number, name="sum")
        .map_async(_priced, name="priced", capacity=4)
    )
    for name, sink in ends.sinks.items():
        sums.to(sink, name=name)
    return flow


def expected(count: int) -> list[Result]:
    """Return the result of each window for the numbers below ``count``, sorted."""
    sums: dict[tuple[int, int], int] = {}
    for number in range(count):
        place = (number % KEYS, number // WIDTH * WIDTH)
        sums[place] = sums.get(place, 0) + number
    return sorted((*place, total) for place, total in sums.items())


def run(name: str, settings: Mapping[str, str], parallelism: int, events: Path, log: Path) -> None:
    """Run the job in this process. Append a line for each event to ``events``, and what is logged to ``log``.

    The line is the type of the event, or the outcome of a checkpoint.
    """
    for path, descriptor in ((events, 1), (log, 2)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(file, descriptor)
        os.close(file)
    asyncio.run(_run(name, settings, parallelism))


def line_of(outcome: af.checkpoints.Outcome) -> str:
    """Return the line for the end of a checkpoint."""
    return f"checkpoint {outcome.name}"


def _print_event(event: object) -> None:
    if isinstance(event, af.checkpoints.CheckpointInfo):
        print(line_of(event.outcome), flush=True)
    else:
        print(type(event).__name__, flush=True)


async def _run(name: str, settings: Mapping[str, str], parallelism: int) -> None:
    ends = pair_named(name).ends(settings)
    storage = Path(settings["folder"]) / "checkpoints" if ends.storage is None else ends.storage
    checkpointing = af.Checkpointing(storage=storage, every=timedelta(milliseconds=100))
    restart: af.restart.FixedDelay | af.restart.NoRestart = af.restart.NoRestart()
    if ends.restarts:
        restart = af.restart.FixedDelay(ends.restarts, timedelta(milliseconds=100))
    async with ends.serving:
        await flow_of(ends).run(
            parallelism=parallelism,
            checkpointing=checkpointing,
            restart=restart,
            on_event=_print_event,
        )
