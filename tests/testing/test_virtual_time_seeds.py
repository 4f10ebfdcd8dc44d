"""A seed chooses the interleaving of tasks: repeatable, varied, and within what asyncio users may rely on."""

from __future__ import annotations

import asyncio
import contextvars
from itertools import permutations

import pytest

from aflow.testing.step_order import SeededOrder, TaskStep
from aflow.testing.virtual_time import run, settle, virtual_time

_SEEDS = range(200)

_who = contextvars.ContextVar("who", default="nobody")


async def _interleaving() -> str:
    """Three tasks that each note their name before and after one turn and one second."""
    notes: list[str] = []

    async def note(name: str) -> None:
        notes.append(name)
        await asyncio.sleep(0)
        notes.append(name)
        await asyncio.sleep(1)
        notes.append(name)

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(note(name))
    return "".join(notes)


def test_without_a_seed_tasks_run_first_in_first_out() -> None:
    assert run(_interleaving) == "abcabcabc"


def test_equal_seeds_have_equal_interleavings() -> None:
    assert [run(_interleaving, seed=s) for s in range(20)] == [
        run(_interleaving, seed=s) for s in range(20)
    ]


def test_seeds_explore_every_interleaving() -> None:
    orders = {"".join(order) for order in permutations("abc")}

    seen = [{run(_interleaving, seed=s)[i : i + 3] for s in _SEEDS} for i in (0, 3, 6)]

    assert seen == [orders] * 3


def test_a_seed_finds_the_race_that_first_in_first_out_hides() -> None:
    async def check_then_act() -> int:
        taken = 0

        async def take() -> None:
            nonlocal taken
            seen = taken
            await asyncio.sleep(0)
            taken = seen + 1

        async def take_late() -> None:
            await asyncio.sleep(0)
            await take()

        await asyncio.gather(take_late(), take())
        return taken

    results = {run(check_then_act, seed=s) for s in _SEEDS}

    assert run(check_then_act) == 1
    assert results == {1, 2}


def test_plain_callbacks_keep_their_order() -> None:
    async def plain() -> list[int]:
        ran: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_soon(ran.append, number)
        await settle()
        return ran

    assert all(run(plain, seed=s) == list(range(20)) for s in range(20))


def test_a_task_step_does_not_overtake_a_callback_nor_the_other_way_round() -> None:
    async def mixed() -> list[str]:
        ran: list[str] = []

        async def step(name: str) -> None:
            ran.append(name)

        tasks = [asyncio.ensure_future(step(name)) for name in "ab"]
        asyncio.get_running_loop().call_soon(ran.append, "|")
        tasks += [asyncio.ensure_future(step(name)) for name in "cd"]
        await asyncio.gather(*tasks)
        return ran

    seen = {"".join(run(mixed, seed=s)) for s in _SEEDS}

    assert seen == {"ab|cd", "ba|cd", "ab|dc", "ba|dc"}


def test_no_task_starves_while_another_one_spins() -> None:
    async def spin() -> int:
        turns = 0

        async def wait_ten_turns() -> None:
            for _ in range(10):
                await asyncio.sleep(0)

        waiting = asyncio.ensure_future(wait_ten_turns())
        while not waiting.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert {run(spin, seed=s) for s in _SEEDS} <= {11, 12}


def test_timers_of_one_deadline_fire_in_any_order_but_not_before_earlier_ones() -> None:
    async def timers() -> str:
        fired: list[str] = []
        loop = asyncio.get_running_loop()
        for name, delay in [("x", 2), ("a", 1), ("y", 2), ("b", 1)]:
            loop.call_later(delay, fired.append, name)
        await asyncio.sleep(3)
        return "".join(fired)

    assert {run(timers, seed=s) for s in _SEEDS} == {"abxy", "baxy", "abyx", "bayx"}


def test_every_task_keeps_its_context() -> None:
    async def contexts() -> list[tuple[str, str]]:
        async def tell(name: str) -> tuple[str, str]:
            _who.set(name)
            await asyncio.sleep(0)
            await asyncio.sleep(1)
            return name, _who.get()

        return await asyncio.gather(*(tell(name) for name in "abcdef"))

    assert run(contexts, seed=7) == [(name, name) for name in "abcdef"]
    assert _who.get() == "nobody"


@virtual_time
async def test_a_step_may_be_added_after_all_others_were_taken() -> None:
    order = SeededOrder(7)
    handle = asyncio.get_running_loop().call_soon(int)
    steps = [TaskStep(handle, int, contextvars.Context()) for _ in range(2)]

    order.add(steps[0])
    first = order.take()
    order.add(steps[1])

    assert [first, order.take()] == steps


@virtual_time(seed=7)
async def test_a_cancelled_handle_of_a_task_step_does_not_run() -> None:
    class Steps(asyncio.Task[None]):
        def step(self) -> None:
            ran.append("step")

    ran: list[str] = []
    loop = asyncio.get_running_loop()
    task = Steps(asyncio.sleep(0), loop=loop)
    kept, cancelled = loop.call_soon(task.step), loop.call_soon(task.step)

    cancelled.cancel()
    await task
    await settle()

    assert ran == ["step"]
    assert not kept.cancelled()


@virtual_time(seed=7)
async def test_a_failing_step_is_reported_to_the_exception_handler_and_the_loop_continues() -> None:
    class Steps(asyncio.Task[None]):
        def step(self) -> None:
            raise LookupError("in a step")

    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
    task = Steps(asyncio.sleep(0), loop=loop)
    loop.call_soon(task.step)

    await task
    await settle()

    assert [type(exc) for exc in reported] == [LookupError]


@pytest.mark.parametrize("seed", range(20))
def test_streams_of_asyncio_work_under_every_seed(seed: int) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async def ask(port: int, question: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(question)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def main() -> list[bytes]:
        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await asyncio.gather(*(ask(port, b"%d\n" % n) for n in range(5)))

    assert run(main, seed=seed) == [b"%d\n" % n for n in range(5)]
