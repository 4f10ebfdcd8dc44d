"""Senders that wait for the promise of a job."""

from __future__ import annotations

import asyncio

import pytest

from aflow.errors import JobStopped
from aflow.runtime.builtin_connectors.durable_push.acknowledgements import Waits
from aflow.testing.virtual_time import settle, virtual_time


@virtual_time
async def test_cancelled_senders_leave_nothing_behind_while_no_position_is_reached() -> None:
    waits = Waits()
    kept = [asyncio.create_task(waits.until(position)) for position in (7, 3, 5)]
    for position in range(1_000):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await waits.until(position % 10 + 1)

    assert len(waits) <= 7
    waits.reach(5)
    await settle()
    assert [one.done() for one in kept] == [False, True, True]
    waits.fail(JobStopped("ended"))
    with pytest.raises(JobStopped):
        await kept[0]
