"""Event time advances when a job continues with another parallelism."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.testing import Pause, ScriptedSource, VirtualClock, settle, virtual_time

SECOND = timedelta(seconds=1)


def mixed() -> af.Flow:
    """Emits seconds of event time, downstream of an exchange, of a source that does not end within an hour."""
    flow = af.Flow("mixed")
    numbers = ScriptedSource[int](*range(10), Pause(SECOND), *range(10, 500), Pause(3600 * SECOND))
    timed = flow.source(numbers, name="numbers").rebalance().event_time(lambda n: n * 100)
    sums = timed.key_by(lambda n: n % 3).window(af.Tumbling(SECOND))
    sums.fold(int, lambda total, n: total + n, name="sums").to(af.CollectSink(), name="out")
    return flow


@pytest.mark.parametrize("after", [1, 3])
def test_windows_fire_when_the_exchange_before_event_time_is_gone_or_wider(
    after: int, tmp_path: Path
) -> None:
    checkpointing = af.Checkpointing(every=None, storage=tmp_path)

    async def main() -> int:
        options = af.Options(clock=VirtualClock(), batch_records=10)
        first = mixed().start(parallelism=2, options=options, checkpointing=checkpointing)
        async with first:
            await settle()
            await first.checkpoint()
            await first.cancel()
        second = mixed().start(parallelism=after, options=options, checkpointing=checkpointing)
        async with second:
            await virtual_time.advance(2 * SECOND)
            fired = second.metrics().steps["sums"].records_out
            await second.cancel()
        return fired

    assert virtual_time.run(main) > 0
