"""Branches of random pipelines with calls to a service that is slow, fails sometimes, and has constant answers.

Duration and failure of a call depend on its time. So calls complete in any order, and those that are made again after a
crash do so differently; their results are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final, Protocol, TypeAlias, TypeVar

import aflow as af

Row: TypeAlias = tuple[object, ...]

#: Durations of calls (s).
_TAKES: Final = (0.0, 0.0, 0.0005, 0.001, 0.003, 0.003, 0.01, 0.03)
#: One of this number of calls fails.
_FAILS: Final = 7
#: Enough attempts that no call fails for good, after random pauses.
RETRY: Final = af.Retry(attempts=100, delay=timedelta(milliseconds=1), factor=1.3, jitter=0.5)


class Numbered(Protocol):
    """A record of the random pipelines."""

    @property
    def n(self) -> int: ...
    @property
    def key(self) -> int: ...


T = TypeVar("T", bound=Numbered)


class Unavailable(Exception):
    """The service fails without a reason."""


async def served(number: int) -> int:
    """Something of ``number``, after a while."""
    loop = asyncio.get_running_loop()
    draw = hash((number, round(loop.time() * 1_000_000)))
    if takes := _TAKES[draw % len(_TAKES)]:
        await asyncio.sleep(takes)
    if draw // len(_TAKES) % _FAILS == 0:
        raise Unavailable(f"no answer for {number}")
    return number * 7919 % 1009


async def answer(one: T) -> T:
    """The record itself, after a while."""
    await served(one.n)
    return one


async def worth(one: Numbered) -> bool:
    """True for two of three records."""
    return await served(one.n) % 3 != 0


async def copies(one: T) -> AsyncIterator[tuple[int, T]]:
    """None to three of the record, with their numbers."""
    for number in range(await served(one.n) % 4):
        await served(number)
        yield number, one


async def thrice(one: Row) -> list[Row]:
    """The row, with three numbers."""
    number = one[1]
    assert isinstance(number, int)
    await served(number)
    return [(*one, part) for part in range(3)]


async def answers(some: Sequence[Numbered]) -> list[Row | Exception]:
    """Return the number and the answer of each record, or its failure."""

    async def one_of_them(one: Numbered) -> Row | Exception:
        try:
            return one.n, await served(one.n)
        except Unavailable as exc:
            return exc

    return list(await asyncio.gather(*map(one_of_them, some)))


def in_order(so_far: tuple[int, int], one: Numbered) -> tuple[int, int]:
    """Return a number that identifies the order of the records of a key."""
    return one.key, (so_far[1] * 31 + one.n) % 1_000_003


def nothing() -> tuple[int, int]:
    """Return the first number of ``in_order``."""
    return 0, 0


def millis(number: int) -> timedelta:
    """Short for it."""
    return timedelta(milliseconds=number)


def sums(events: af.Stream[T], name: str) -> af.Stream[Row]:
    """Return the records in time by key and window, without those that a watermark has overtaken."""
    windows = events.key_by(_key).window(af.Tumbling(millis(200)))
    return windows.fold(int, _plus, name=f"sums of {name}").map(
        lambda one: (name, one.key, one.window.start, one.firing, one.value)
    )


def _key(one: Numbered) -> int:
    return one.key


def _plus(so_far: int, one: Numbered) -> int:
    return so_far + one.n
