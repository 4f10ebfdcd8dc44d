"""A service that the pipeline asks: slow, now and then unavailable, and with one answer to each question for ever.

How long it takes is drawn anew for each call, so calls complete in another order each time. What leaves depends on the
records only, which is what the proof is about: a kill loses the calls that are under way, and nobody can tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from typing import Final

import aflow as af
from bench.crashing.records import Order, Reading

#: Seconds that most calls take at most; one in ten takes up to ten times as long.
_TAKES: Final = 0.01
#: The share of calls that fail.
_FAILS: Final = 0.05

#: A call that fails is made again until it does not.
RETRY: Final = af.Retry(attempts=1000, delay=timedelta(milliseconds=2), factor=1.2, jitter=0.5)

_random = Random()  # unseeded on purpose: nothing that is written may depend on it


class Unavailable(Exception):
    """The service fails for no reason."""


async def _served(number: int) -> int:
    longer = 10 if _random.random() < 0.1 else 1
    await asyncio.sleep(_random.random() * _TAKES * longer)
    if _random.random() < _FAILS:
        raise Unavailable(f"no answer for {number}")
    return number * 7919 % 1009


async def scored(reading: Reading) -> Reading:
    """The reading with another value."""
    return Reading(reading.id, reading.device, reading.at, await _served(reading.value))


async def worth(reading: Reading) -> bool:
    """True for most readings."""
    return await _served(reading.value) % 4 != 0


async def parts(reading: Reading) -> AsyncIterator[tuple[str, int, int]]:
    """None to two rows."""
    for number in range(reading.value % 3):
        yield reading.id, number, await _served(reading.value + number)


async def priced(order: Order) -> tuple[int, int, int]:
    """The order as a row, with another price."""
    return order.device, order.at, await _served(order.price)
