"""Steps that fire in pieces, in jobs: the host, barriers, cancellation and room between the pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.machines.batch_size import BatchSize
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.pieces import ChainPieces, OperatorPieces
from aflow.testing import VirtualClock, virtual_time
from tests.operators.piece_steps import CASES, millis
from tests.runtime.checkpoints.ledger_sink import LedgerSink
from tests.runtime.impatient import ImpatientClock

NUMBERS = list(range(60))

#: Two inputs arrive in any order, and so do the results of what is joined by processing time.
ONE_INPUT = [
    case
    for case in CASES
    if case
    not in {
        "two inputs",
        "broadcast",
        "inner",
        "full",
        "as of",
        "as of, for ever",
        "co-group",
        "window join",
        "processing time",
        "timers",
    }
]


def _length(one: object) -> int:
    return len(repr(one)) % 3


def _shown(ones: Sequence[object]) -> list[str]:
    return [repr(one) for one in ones]


def run(case: str, clock: Callable[[], VirtualClock]) -> list[list[Any]]:
    """Return the results of a case, and those of windows over them in the same task."""
    sinks = [af.CollectSink[Any](), af.CollectSink[Any]()]

    async def main() -> None:
        flow = af.Flow("cases")
        numbers, others = (
            flow.source(NUMBERS, name=name).event_time(lambda n: n, max_delay=millis(9))
            for name in ("numbers", "others")
        )
        keyed, other = (one.key_by(lambda n: n % 4) for one in (numbers, others))
        results = CASES[case](keyed, other, others)
        results.to(sinks[0], name="first")
        other.fold(int, lambda total, n: total + n, name="folded").to(
            af.CollectSink[int](), name="others out"
        )
        windows = results.key_by(_length).window(af.Tumbling(millis(20)))
        windows.apply(_shown, name="second").to(sinks[1], name="last")
        await flow.run(options=af.Options(clock=clock(), batch_records=1))

    virtual_time.run(main)
    return [sink.values for sink in sinks]


@pytest.mark.parametrize("case", ONE_INPUT)
def test_a_job_that_yields_after_each_piece_has_the_same_results_in_the_same_order(
    case: str,
) -> None:
    assert run(case, ImpatientClock) == run(case, VirtualClock)


@pytest.mark.parametrize("case", ["inner", "full", "as of", "co-group", "window join"])
def test_a_join_that_yields_after_each_piece_has_the_same_results(case: str) -> None:
    impatient, patient = run(case, ImpatientClock)[0], run(case, VirtualClock)[0]

    assert sorted(map(repr, impatient)) == sorted(map(repr, patient))


def windows(keys: int, sink: af.CollectSink[Any] | LedgerSink[Any]) -> af.Flow:
    """One window for each of ``keys`` keys, all of which end at the end of the input."""
    flow = af.Flow("windows")
    timed = flow.source(range(keys), name="numbers").event_time(lambda n: 0)
    counted = timed.key_by(lambda n: n).window(af.Tumbling(millis(10)))
    sums = counted.fold(int, lambda total, n: total + n, name="sums")
    sums.map(lambda one: one.key, name="keys").rebalance(2).to(sink, name="out")
    return flow


def test_other_coroutines_run_between_the_pieces() -> None:
    sink = af.CollectSink[Any]()
    seen: set[int] = set()

    async def main() -> None:
        async with windows(200, sink).start(options=af.Options(clock=ImpatientClock())) as job:
            waiting = asyncio.ensure_future(job.wait())
            while not waiting.done():
                seen.add(len(sink.values))
                await asyncio.sleep(0)
            await waiting

    virtual_time.run(main)

    assert len(sink.values) == 200
    assert len(seen) > 100


def test_a_job_is_cancelled_between_two_pieces() -> None:
    sink = af.CollectSink[Any]()

    async def main() -> int:
        async with windows(200, sink).start(options=af.Options(clock=ImpatientClock())) as job:
            while not sink.values:  # noqa: ASYNC110 - between any two passes of the loop
                await asyncio.sleep(0)
            await job.cancel()
            return len(sink.values)

    at_cancellation = virtual_time.run(main)

    assert len(sink.values) == at_cancellation < 200


@pytest.mark.parametrize("barriers", [af.checkpoints.Aligned(), af.checkpoints.Unaligned()])
def test_a_checkpoint_is_taken_after_the_last_piece(
    barriers: af.checkpoints.Aligned | af.checkpoints.Unaligned, tmp_path: Path
) -> None:
    ledger = LedgerSink[Any](delay=0.01)

    async def main() -> int:
        options = af.Options(clock=ImpatientClock(), channel_records=8)
        checkpointing = af.Checkpointing(every=millis(5), storage=tmp_path, barriers=barriers)
        job = windows(300, ledger).start(options=options, checkpointing=checkpointing)
        async with job:
            await job.wait()
            return job.metrics().checkpoints.completed

    completed = virtual_time.run(main)

    assert completed
    assert sorted(ledger.values) == list(range(300))


def pieces(*full: bool) -> tuple[ChainPieces, list[OperatorPieces]]:
    """A chain of operators for which the loop budget is always spent; ``full``: each has a full part downstream."""
    clock = ImpatientClock()
    chain = ChainPieces(LoopBudget(asyncio.get_running_loop(), clock, 0.002), clock, lambda: None)
    operators = [
        OperatorPieces(chain, index, f"step {index}", BatchSize(8, 0.002))
        for index in range(len(full))
    ]
    for operator, is_full in zip(operators, full, strict=True):
        operator.rooms = [Part(is_full)]
    return chain, operators


class Part:
    def __init__(self, full: bool) -> None:
        self.full = full


@virtual_time.virtual_time
async def test_the_operator_furthest_downstream_is_resumed_first_and_then_its_queue() -> None:
    chain, (first, second) = pieces(False, False)
    told: list[str] = []

    def work(name: str) -> Any:
        for number in range(2):
            told.append(f"{name} {number}")
            yield 1

    first.run(work("first"))
    second.run(work("second"))
    second.put(lambda: told.append("element"))
    chain.when_finished(lambda: told.append("checkpoint"))
    while chain.unfinished:
        chain.step()

    assert told == ["first 0", "second 0", "second 1", "element", "first 1", "checkpoint"]


@virtual_time.virtual_time
async def test_work_waits_for_room_unless_something_urgent_waits_for_it() -> None:
    chain, (operator,) = pieces(True)

    operator.run(iter([1, 1]))
    waited = chain.waits_for()
    chain.when_finished(lambda: None, urgent=True)

    assert waited is operator.rooms[0]
    assert chain.waits_for() is None
