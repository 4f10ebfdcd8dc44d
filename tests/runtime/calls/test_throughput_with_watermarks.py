"""Unordered calls of which some are slow, with watermarks between the records: results that wait hold no slot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import pytest

import aflow as af
from aflow.testing import CollectSink, Pause, ScriptedSource, run_flow
from tests.runtime.calls.questions import SECOND, Service, ask

CALLS = 500


def paced() -> Iterable[int | Pause]:
    """Two records each millisecond."""
    for number in range(CALLS):
        yield number
        if number % 2:
            yield Pause(timedelta(milliseconds=1))


def takes(number: int) -> float:
    """Three calls of a hundred are slow."""
    return 1.5 if number % 33 == 7 else 0.01


class Asking(af.AsyncKeyedProcess[int, int, int]):
    """Waits for as long as a call takes."""

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[int]:
        await asyncio.sleep(takes(value))
        return [value]


def seconds(order: str, source: Iterable[int | Pause], *, watermarks: bool) -> float:
    flow, sink = af.Flow("f"), CollectSink[int]()
    numbers = flow.source(ScriptedSource[int](*source), name="numbers")
    if watermarks:
        numbers = numbers.event_time(lambda number: number, max_delay=SECOND)
    if order == "handlers":
        keyed = numbers.key_by(lambda number: number, of=int)
        answers = keyed.process_async(Asking(), name="ask", capacity=50)
    else:
        answers = ask(numbers, Service(takes), order, capacity=50)
    answers.to(sink)
    outcome = run_flow(flow, options=af.Options(batch_records=4))
    assert sorted(sink.values) == list(range(CALLS))
    return outcome.took.total_seconds()


@pytest.mark.parametrize("source", [range(CALLS), list(paced())], ids=["all at once", "paced"])
@pytest.mark.parametrize("order", ["unordered", "by key", "handlers"])
def test_watermarks_between_records_do_not_slow_the_calls_down(
    order: str, source: Iterable[int | Pause]
) -> None:
    without = seconds(order, source, watermarks=False)

    assert seconds(order, source, watermarks=True) <= without / 0.9
