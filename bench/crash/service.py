"""A service that the pipeline calls: slow, sometimes unavailable, and with one answer to each question.

The latency of each call is random, so calls complete in a different order each time. The output depends on the
records only: a kill loses the calls in flight, without an effect on the output.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from typing import Final

import aflow as af
from bench.crash.records import Order, Reading

#: Maximum latency of most calls in seconds; one in ten takes up to ten times as long.
_LATENCY: Final = 0.01
#: Share of calls that fail.
_FAILURES: Final = 0.05

#: Retries until the call succeeds.
RETRY: Final = af.Retry(attempts=1000, delay=timedelta(milliseconds=2), factor=1.2, jitter=0.5)

_random = Random()  # unseeded on purpose: the output must not depend on it


class Unavailable(Exception):
    """The service failed, at random."""


async def _answer(number: int) -> int:
    longer = 10 if _random.random() < 0.1 else 1
    await asyncio.sleep(_random.random() * _LATENCY * longer)
    if _random.random() < _FAILURES:
        raise Unavailable(f"no answer for {number}")
    return number * 7919 % 1009


async def scored(reading: Reading) -> Reading:
    """Return the reading with another value."""
    return Reading(reading.id, reading.device, reading.at, await _answer(reading.value))


async def worth(reading: Reading) -> bool:
    """Return True for most readings."""
    return await _answer(reading.value) % 4 != 0


async def parts(reading: Reading) -> AsyncIterator[tuple[str, int, int]]:
    """Yield up to two rows."""
    for number in range(reading.value % 3):
        yield reading.id, number, await _answer(reading.value + number)


async def priced(order: Order) -> tuple[int, int, int]:
    """Return the order as a row, with another price."""
    return order.device, order.at, await _answer(order.price)
