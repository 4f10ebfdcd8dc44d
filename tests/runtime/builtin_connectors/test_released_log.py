"""The size of a log that the sizes of writes and of removals, reported by its thread, add up to."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from aflow.runtime.builtin_connectors.durable_push.open_log import OpenLog
from aflow.runtime.clock import SystemClock
from aflow.runtime.record_log.log import RecordLog


class _SizesOnly:
    """A log that has only sizes."""

    folder = Path("log")
    header_size = start = end = 0
    size = 90

    def append(self, records: list[Any], now: int) -> None:
        self.size += 80

    def release(self, position: int, since: int) -> None:
        self.size -= 80

    def close(self) -> None:
        return None


def opened() -> OpenLog[int]:
    log = cast("RecordLog", _SizesOnly())
    return OpenLog(log, SystemClock(), max_bytes=100, id_window=1, seen=())


@pytest.mark.asyncio
async def test_a_write_that_follows_a_removal_counts() -> None:
    log, written = opened(), threading.Event()
    releasing = asyncio.create_task(log.release(1))
    await asyncio.sleep(0)
    _ = log.send((b"", None, None), 1, 5)
    marker = asyncio.create_task(log._appender.run(written.set))  # pyright: ignore[reportPrivateUsage]
    await asyncio.sleep(0)

    written.wait(30)  # the loop gets both reports in one pass
    await asyncio.gather(releasing, marker)

    assert not log.has_room(50)
    await log.close()


@pytest.mark.asyncio
async def test_a_removal_makes_room_although_its_caller_is_cancelled() -> None:
    log = opened()
    releasing = asyncio.create_task(log.release(1))
    await asyncio.sleep(0)

    releasing.cancel()
    await asyncio.wait([releasing])

    await log.room(50, 30)
    assert log.has_room(50)
    await log.close()
