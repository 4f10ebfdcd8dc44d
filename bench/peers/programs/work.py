"""The work of the jobs that all programs share: functions of single records, and events.

Only the standard library is used.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.events import DISORDER, WINDOW
from bench.peers.programs.protocol import RATE

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WINDOW_TIME = timedelta(milliseconds=WINDOW)
DISORDER_TIME = timedelta(milliseconds=DISORDER)

Totals = tuple[int, int]


def add_one(number: int) -> int:
    """First step of ``stateless``."""
    return number + 1


def keep(number: int) -> bool:
    """Second step of ``stateless``."""
    return number % 3 != 0


def double(number: int) -> int:
    """Third step of ``stateless``, and the result of a call."""
    return number * 2


def nothing() -> Totals:
    """Accumulator of a new window."""
    return (0, 0)


def add(so_far: Totals, event: Any) -> Totals:
    """Add an event to the accumulator of its window."""
    return so_far[0] + 1, so_far[1] + event["value"]


def merged(one: Totals, other: Totals) -> Totals:
    """Add two accumulators."""
    return one[0] + other[0], one[1] + other[1]


def time_of(event: Any) -> datetime:
    """Time of an event as an aware datetime."""
    return EPOCH + timedelta(milliseconds=event["ts"])


def same(event: tuple[int, float]) -> tuple[int, float]:
    """First step of ``latency``."""
    return event


def is_event(event: tuple[int, float]) -> bool:
    """Second step of ``latency``: true for all."""
    return event[0] >= 0


def time_of_sending(event: tuple[int, float]) -> float:
    """Third step of ``latency``."""
    return event[1]


def rows_in(folder: Path, pattern: str = "*.jsonl") -> list[Any]:
    """Return the rows in the JSON lines of all files of a folder."""
    return [json.loads(line) for file in sorted(folder.rglob(pattern)) for line in file.open("rb")]


def due(records: int) -> Iterator[tuple[int, float]]:
    """Yield the events of ``latency``: numbers, and the ``perf_counter`` second at which each is to be sent."""
    began = time.perf_counter() + 0.2
    return ((number, began + number / RATE) for number in range(records))


async def sent_when_due(records: int) -> AsyncIterator[tuple[int, float]]:
    """Yield the events of ``latency`` on an event loop, each when it is to be sent, or later if the loop was busy."""
    for event in due(records):
        if (wait := event[1] - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        yield event
