"""A job that fails while a watermark waits for calls: after the restore windows fire when the calls have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.testing import Pause, ScriptedSource, advance, run_flow, settle, virtual_time
from aflow.testing.scripted_source import Line
from tests.runtime.calls.questions import ORDERS, SECOND


class FailsOnce:
    """Waits for a second, then fails; each call that begins after that gives its number at once."""

    def __init__(self, *, failed: bool = False) -> None:
        self.failed = failed

    async def ask(self, number: int) -> int:
        if not self.failed:
            await asyncio.sleep(1)
            self.failed = True
            raise ConnectionError("the service is away")
        return number


class AskingHandler(af.AsyncKeyedProcess[str, int, int]):
    """Asks, with state of its own."""

    asked = af.ValueState("asked", of=int)

    def __init__(self, service: FailsOnce) -> None:
        self.service = service

    async def process(self, value: int, ctx: af.AsyncContext[str]) -> list[int]:
        answer = await self.service.ask(value)
        ctx.state(self.asked).set(answer)
        return [answer]


def answers(numbers: af.Stream[int], order: str, service: FailsOnce) -> af.Stream[int]:
    match order:
        case "by key":
            return numbers.key_by(str, of=str).map_async(service.ask, name="ask")
        case "cached":
            return numbers.map_async(service.ask, name="ask", cache=af.calls.Cache(10))
        case "handlers":
            keyed = numbers.key_by(str, of=str)
            return keyed.process_async(AskingHandler(service), name="ask")
        case _:
            return numbers.map_async(service.ask, name="ask", ordered=order == "ordered")


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("order", [*ORDERS, "cached", "handlers"])
def test_a_window_behind_calls_fires_when_they_have_ended_after_a_restore(
    order: str, parallelism: int, tmp_path: Path
) -> None:
    fired: list[tuple[float, list[int]]] = []

    def note(window: af.Windowed[str, list[int]]) -> None:
        fired.append((asyncio.get_running_loop().time(), window.value))

    flow = af.Flow("f")
    source = ScriptedSource(0, 100, Pause(6 * SECOND))
    numbers = flow.source(source, name="numbers").event_time(
        lambda number: number * 1000, max_delay=timedelta(0)
    )
    answered = answers(numbers, order, FailsOnce())
    windows = answered.key_by(lambda _: "all").window(af.Tumbling(10 * SECOND))
    windows.apply(list, name="windows").to(af.CallbackSink(note))

    run_flow(
        flow,
        parallelism=parallelism,
        checkpointing=af.Checkpointing(storage=tmp_path, every=timedelta(milliseconds=200)),
        restart=af.restart.FixedDelay(attempts=3, delay=timedelta(milliseconds=10)),
    )

    assert [values for _, values in fired] == [[0], [100]]
    assert fired[0][0] < 2


@pytest.mark.parametrize("order", ["ordered", "unordered", "cached"])
def test_a_new_subtask_that_begins_with_a_watermark_alone_emits_its_results(
    order: str, tmp_path: Path
) -> None:
    old: list[Line[int]] = [0, Pause(100 * SECOND)]
    new: list[Line[int]] = [100, Pause(100 * SECOND)]
    checkpointing = af.Checkpointing(storage=tmp_path, every=None)

    def build(
        scripts: dict[str, Sequence[Line[int]]], service: FailsOnce
    ) -> tuple[af.Flow, af.CollectSink[int]]:
        flow, out = af.Flow("f"), af.CollectSink[int]()
        source = ScriptedSource.of_splits(scripts)
        numbers = flow.source(source, name="numbers").event_time(
            lambda number: number * 1000, max_delay=timedelta(0)
        )
        answers(numbers, order, service).to(out, name="out")
        return flow, out

    async def main() -> list[int]:
        flow, out = build({"old": old}, FailsOnce())
        async with flow.start(checkpointing=checkpointing) as job:
            await settle()
            await job.checkpoint()
            await job.cancel()
        flow, out = build({"old": old, "new": new}, FailsOnce(failed=True))
        async with flow.start(parallelism=2, checkpointing=checkpointing) as job:
            await advance(3 * SECOND)
            await settle()
            await job.cancel()
        return sorted(out.values)

    assert virtual_time.run(main) == [0, 100]
