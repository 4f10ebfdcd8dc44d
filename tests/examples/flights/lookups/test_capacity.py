"""Who is let in at once, who waits, and who is sent away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from flights.lookups.capacity import Capacities, CapacityExceeded, RequestLimiter


class Visitors:
    """Come in when told, and stay until told."""

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
async def desk(*capacities: int, phase: int = 1000) -> AsyncGenerator[Visitors]:
    async with asyncio.TaskGroup() as group:
        visitors = Visitors(RequestLimiter(Capacities(phase=phase, each=capacities)), group)
        yield visitors
        for name in list(visitors._leave):  # pyright: ignore[reportPrivateUsage] - its own file
            await visitors.leave(name)


@pytest.mark.asyncio
async def test_as_many_as_there_is_room_for_are_inside_and_half_as_many_wait() -> None:
    async with desk(4) as visitors:
        await visitors.come(*"abcdefg")

        assert visitors.inside == [*"abcd"]
        assert visitors.refused == ["g"]


@pytest.mark.asyncio
async def test_who_waits_comes_in_by_turns() -> None:
    async with desk(2, 2) as visitors:
        await visitors.come(*"abc")

        await visitors.leave("b")

        assert visitors.inside == ["a", "c"]


@pytest.mark.asyncio
async def test_there_is_room_for_others_after_some_have_left() -> None:
    async with desk(2) as visitors:
        await visitors.come(*"abcd")
        await visitors.leave("a", "b", "c")

        await visitors.come("e", "f")

        assert visitors.refused == ["d"]
        assert visitors.inside == ["e", "f"]


@pytest.mark.asyncio
async def test_a_capacity_that_shrinks_lets_nobody_in_until_enough_have_left() -> None:
    async with desk(4, 1, phase=1) as visitors:
        await visitors.come(*"abcde")

        await visitors.leave("a")
        assert visitors.inside == [*"bcd"]

        await visitors.leave("b")  # after two requests the capacity is four again
        assert visitors.inside == [*"cde"]


@pytest.mark.asyncio
async def test_who_gives_up_waiting_takes_no_room() -> None:
    async with desk(2) as visitors:
        await visitors.come(*"abc")
        await visitors.give_up("c")

        await visitors.come("d")
        await visitors.leave("a")

        assert visitors.refused == []
        assert visitors.inside == ["b", "d"]


@pytest.mark.parametrize(
    ("requests", "capacity"), [(0, 32), (99, 32), (100, 16), (200, 8), (300, 16), (400, 32)]
)
def test_the_capacity_halves_and_doubles(requests: int, capacity: int) -> None:
    assert Capacities(phase=100, each=(32, 16, 8, 16)).after(requests) == capacity
