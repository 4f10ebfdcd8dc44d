"""Requests that are admitted, wait, and are rejected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from flights.lookups.capacity import Capacities, CapacityExceeded, RequestLimiter


class Clients:
    """Clients that start and end their requests on demand."""

    def __init__(self, desk: RequestLimiter, group: asyncio.TaskGroup) -> None:
        self._desk = desk
        self._group = group
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, asyncio.Event] = {}
        self.inside: list[str] = []
        self.refused: list[str] = []

    async def come(self, *names: str) -> None:
        for name in names:
            self._leave[name] = asyncio.Event()
            self._tasks[name] = self._group.create_task(self._visit(name))
            await settled()

    async def leave(self, *names: str) -> None:
        for name in names:
            self._leave[name].set()
            await settled()

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await settled()

    async def _visit(self, name: str) -> None:
        try:
            async with self._desk.admitted():
                self.inside.append(name)
                try:
                    await self._leave[name].wait()
                finally:
                    self.inside.remove(name)
        except CapacityExceeded:
            self.refused.append(name)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def desk(*capacities: int, phase: int = 1000) -> AsyncGenerator[Clients]:
    async with asyncio.TaskGroup() as group:
        clients = Clients(RequestLimiter(Capacities(phase=phase, each=capacities)), group)
        yield clients
        for name in list(clients._leave):  # pyright: ignore[reportPrivateUsage] - same file
            await clients.leave(name)


@pytest.mark.asyncio
async def test_the_capacity_is_admitted_and_half_as_many_wait() -> None:
    async with desk(4) as clients:
        await clients.come(*"abcdefg")

        assert clients.inside == [*"abcd"]
        assert clients.refused == ["g"]


@pytest.mark.asyncio
async def test_waiting_requests_are_admitted_in_order() -> None:
    async with desk(2, 2) as clients:
        await clients.come(*"abc")

        await clients.leave("b")

        assert clients.inside == ["a", "c"]


@pytest.mark.asyncio
async def test_completed_requests_free_capacity() -> None:
    async with desk(2) as clients:
        await clients.come(*"abcd")
        await clients.leave("a", "b", "c")

        await clients.come("e", "f")

        assert clients.refused == ["d"]
        assert clients.inside == ["e", "f"]


@pytest.mark.asyncio
async def test_a_smaller_capacity_admits_none_until_enough_have_completed() -> None:
    async with desk(4, 1, phase=1) as clients:
        await clients.come(*"abcde")

        await clients.leave("a")
        assert clients.inside == [*"bcd"]

        await clients.leave("b")  # after two requests the capacity is four again
        assert clients.inside == [*"cde"]


@pytest.mark.asyncio
async def test_a_cancelled_request_frees_its_place_in_the_queue() -> None:
    async with desk(2) as clients:
        await clients.come(*"abc")
        await clients.give_up("c")

        await clients.come("d")
        await clients.leave("a")

        assert clients.refused == []
        assert clients.inside == ["b", "d"]


@pytest.mark.parametrize(
    ("requests", "capacity"), [(0, 32), (99, 32), (100, 16), (200, 8), (300, 16), (400, 32)]
)
def test_the_capacity_halves_and_doubles(requests: int, capacity: int) -> None:
    assert Capacities(phase=100, each=(32, 16, 8, 16)).after(requests) == capacity
