"""The order of callbacks and timers that are due at the same time: first in, first out, or shuffled by a seed.

A seed explores interleavings that another run or another loop could have. They are restricted because asyncio itself
relies on ``call_soon`` being first in, first out (a transport calls ``connection_made``, then starts reading, then
wakes its opener, with three calls of ``call_soon``):

- Only *steps of tasks* change places. Any other callback keeps its place in the queue and is a **fence**: no step moves
  from one side of it to the other.
- An iteration of the loop is a fence too, so no task starves and ``await asyncio.sleep(0)`` still means one iteration.
- Timers of one deadline fire in shuffled order. asyncio guarantees no order there.

Callbacks from outside of the loop (another thread, a socket) are not shuffled: no seed could repeat them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from random import Random


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
class TaskStep:
    """A ready step of a task, with the handle that can cancel it."""

    handle: asyncio.Handle
    action: Callable[[], object]
    context: Context


class SeededOrder:
    """Ready steps shuffled between two fences, and random ranks of timers; equal seeds have equal orders."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        #: Groups of steps between two fences, oldest first. Only the last group grows, and only if it is open.
        self._groups: deque[list[TaskStep]] = deque()
        self._open = False

    def rank(self) -> float:
        """Return a random rank."""
        return self._random.random()

    def add(self, step: TaskStep) -> None:
        """Add a ready step; it may change places with every step since the last fence."""
        if not self._open:
            self._groups.append([])
            self._open = True
        self._groups[-1].append(step)

    def fence(self) -> None:
        """Run steps that are added from now on after all that were added before."""
        self._open = False

    def take(self) -> TaskStep:
        """Remove and return a random step of the oldest group. Raises ``IndexError`` if there is none."""
        group = self._groups[0]
        step = group.pop(self._random.randrange(len(group)))
        if not group:
            self._groups.popleft()
            self._open = self._open and bool(self._groups)
        return step
