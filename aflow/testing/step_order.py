"""Who goes first among things that are due at the same moment: first come first served, or shuffled by a seed.

A seed explores interleavings that asyncio could show on another day (or another loop) but not today. What it may change
is drawn tightly, because asyncio itself leans on ``call_soon`` being first in, first out (a transport calls
``connection_made``, then starts reading, then wakes whoever opened it, with three calls of ``call_soon``):

- Only *steps of tasks* change places. Any other callback keeps its place in the queue and is a **fence**: no step moves
  from one side of it to the other.
- A turn of the loop is a fence too, so nobody starves and ``await asyncio.sleep(0)`` still means one turn.
- Timers of one deadline fire in shuffled order. asyncio promises no order there.

What enters the loop from outside (another thread, a socket) is not shuffled: no seed could repeat it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Protocol


class Order(Protocol):
    """Ranks timers of one deadline: the lower rank fires first."""

    def rank(self) -> float:
        """The rank of the timer that is being set now."""
        ...


class FirstComeFirstServed:
    """Timers of one deadline fire in the order in which they were set."""

    def __init__(self) -> None:
        self._ranks = itertools.count()

    def rank(self) -> float:
        """One more than the last."""
        return next(self._ranks)


class Deadline(float):
    """Seconds of loop time; among equals the lower rank is the earlier, so that a heap of deadlines has one order."""

    __slots__ = ("_rank",)

    _rank: float

    def __new__(cls, seconds: float, rank: float) -> Deadline:
        deadline = super().__new__(cls, seconds)
        deadline._rank = rank
        return deadline

    def __lt__(self, other: float, /) -> bool:
        if isinstance(other, Deadline) and float(self) == float(other):
            return self._rank < other._rank
        return super().__lt__(other)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a task that is ready to run, with the handle that can still cancel it."""

    handle: asyncio.Handle
    action: Callable[[], object]
    context: Context


class SeededOrder:
    """Shuffles the ready steps between two fences, and ranks timers at random; the same seed gives the same order."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        #: Steps by the fences between them, oldest first. Only the last group still grows, and only if it is open.
        self._groups: deque[list[Step]] = deque()
        self._open = False

    def rank(self) -> float:
        """A random rank."""
        return self._random.random()

    def add(self, step: Step) -> None:
        """Note a ready step; it may change places with every step since the last fence."""
        if not self._open:
            self._groups.append([])
            self._open = True
        self._groups[-1].append(step)

    def fence(self) -> None:
        """Steps added from now on come after all that were added before."""
        self._open = False

    def take(self) -> Step:
        """Remove and return a random step of the oldest group. Raises ``IndexError`` if there is none."""
        group = self._groups[0]
        step = group.pop(self._random.randrange(len(group)))
        if not group:
            self._groups.popleft()
            self._open = self._open and bool(self._groups)
        return step
