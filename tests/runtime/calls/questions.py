"""Functions to be called by asynchronous steps, that keep note of what happens to them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta

import aflow as af
from aflow.testing import CollectSink


@dataclass
class Service:
    """Answers with the number itself, after ``takes(number)`` seconds; notes how many calls are under way."""

    takes: Callable[[int], float] = lambda number: 1.0
    #: Of whom not two calls may be under way at once.
    key: Callable[[int], Hashable] = lambda number: number
    begun: list[int] = field(default_factory=list[int])
    ended: list[int] = field(default_factory=list[int])
    cancelled: list[int] = field(default_factory=list[int])
    most: int = 0
    """The most that were under way at once."""
    _keys: Counter[Hashable] = field(default_factory=Counter[Hashable])

    @property
    def under_way(self) -> int:
        return len(self.begun) - len(self.ended) - len(self.cancelled)

    async def ask(self, number: int) -> int:
        self.begun.append(number)
        self.most = max(self.most, self.under_way)
        self._keys[self.key(number)] += 1
        assert self._keys[self.key(number)] == 1, f"two calls at once for key {self.key(number)}"
        try:
            await asyncio.sleep(self.takes(number))
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        finally:
            self._keys[self.key(number)] -= 1
        self.ended.append(number)
        return number


def asked(
    source: af.Source[int] | range, service: Service, order: str = "ordered", *, capacity: int = 100
) -> tuple[af.Flow, CollectSink[int]]:
    """A flow that asks ``service`` for each number, in one of the orders of ``ORDERS``."""
    flow, sink = af.Flow("asking"), CollectSink[int]()
    numbers = flow.source(source, name="numbers")
    ask(numbers, service, order, capacity=capacity).to(sink, name="out")
    return flow, sink


def ask(
    numbers: af.Stream[int],
    service: Service,
    order: str = "ordered",
    *,
    capacity: int = 100,
    name: str = "ask",
) -> af.Stream[int]:
    """The step by itself."""
    if order == "by key":
        return numbers.key_by(service.key).map_async(service.ask, name=name, capacity=capacity)
    ordered = order == "ordered"
    return numbers.map_async(service.ask, name=name, capacity=capacity, ordered=ordered)


ORDERS = ["ordered", "unordered", "by key"]

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
