"""Ends of jobs in crash tests: at any time, by a stop or by a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random

import aflow as af
from aflow.testing import virtual_time
from tests.crash.async_branches import millis

MODES: dict[str, af.checkpoints.Aligned | af.checkpoints.Unaligned] = {
    "aligned": af.checkpoints.Aligned(),
    "timeout": af.checkpoints.Aligned(timeout=millis(3)),
    "unaligned": af.checkpoints.Unaligned(),
}


async def end(job: af.Job, random: Random, *, within: int, stopped: float) -> None:
    """Let ``job`` run for up to ``within`` ms, at least 5; then stop it, with probability ``stopped``, or cancel it."""
    await asyncio.sleep(random.randrange(5, within) / 1000)
    for _ in range(random.randrange(50)):
        await asyncio.sleep(0)
    if random.random() < stopped:
        with suppress(af.errors.SourceError):  # a job that is being stopped is not started again
            await job.stop()
    else:
        await job.cancel()


def start_again(
    begin: Callable[[], af.Job], random: Random, *, seed: int, ends: int, within: int
) -> None:
    """Start jobs that continue from each other: some that are ended, and one that runs to its end."""

    async def main() -> None:
        for _ in range(ends):
            async with begin() as job:
                await end(job, random, within=within, stopped=0.3)
        async with begin() as job:
            await job.wait()

    virtual_time.run(main, seed=seed)
