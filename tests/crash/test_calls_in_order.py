"""Calls that are under way when jobs end, at any moment, lose no result, and their order neither.

The input has one split, so there is one order. The step is asked in order, or by key; what is behind it depends on the
order of each key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

import aflow as af
from aflow.connect import Sink
from aflow.testing import At, Crash, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.scripted_source import Line
from tests.crash.async_branches import RETRY, Row, answer, in_order, millis, nothing
from tests.crash.job_ends import MODES, start_again
from tests.runtime.checkpoints.ledger_sink import LedgerSink

pytestmark = pytest.mark.usefixtures("inline_threads")

COUNT = 150


@dataclass(frozen=True, slots=True)
class Record:
    """Number ``n``."""

    n: int

    @property
    def key(self) -> int:
        return self.n % 4


Ask = Callable[[af.Stream[Record]], af.Stream[Record]]


def ordered(records: af.Stream[Record]) -> af.Stream[Record]:
    return records.map_async(answer, name="ask", capacity=4, retry=RETRY)


def twice(records: af.Stream[Record]) -> af.Stream[Record]:
    first = records.map_async(answer, name="ask first", capacity=2, retry=RETRY)
    return first.map_async(answer, name="ask then", capacity=3, retry=RETRY)


def by_key(records: af.Stream[Record]) -> af.Stream[Record]:
    keyed = records.key_by(lambda one: one.key)
    return keyed.map_async(answer, name="ask", capacity=3, retry=RETRY)


STEPS: Sequence[Ask] = [ordered, twice, by_key]


def pipeline(ask: Ask, sink: Sink[Row], crashes: Random | None = None) -> af.Flow:
    flow = af.Flow("in order")
    records = flow.source(_source(crashes), name="records")
    folded = ask(records).key_by(lambda one: one.key).fold(nothing, in_order, name="in order")
    folded.to(sink, name="out")
    return flow


def _source(crashes: Random | None) -> ScriptedSource[Record]:
    script: list[Line[Record]] = []
    for n in range(COUNT):
        script.append(At(Record(n), n))
        if n % 8 == 7:
            script.append(Pause(millis(7)))
    if crashes is not None:
        script.insert(crashes.randrange(COUNT // 3, len(script)), Crash())
    return ScriptedSource[Record](*script)


def expected(ask: Ask) -> list[Row]:
    sink = af.CollectSink[Row]()
    run_flow(pipeline(ask, sink))
    return sorted(sink.values, key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("ask", STEPS)
@pytest.mark.parametrize(("seed", "mode"), list(enumerate(MODES)))
def test_results_keep_their_order_whenever_jobs_end_and_whatever_their_parallelism(
    seed: int, mode: str, ask: Ask, tmp_path: Path
) -> None:
    random = Random(f"{seed} {mode}")
    ledger = LedgerSink[Row](delay=random.choice([0.0, 0.001]))
    crashes = random.random()  # at the same place in each start: positions count them

    def begin() -> af.Job:
        return pipeline(ask, ledger, Random(crashes)).start(
            parallelism=random.randint(1, 3),
            options=af.Options(
                clock=VirtualClock(),
                random=random.random,
                batch_records=random.choice([1, 7, 1024]),
                channel_records=random.choice([1, 8, 1024]),
                chaining=random.random() < 0.7,
            ),
            checkpointing=af.Checkpointing(
                every=millis(random.choice([5, 20])), storage=tmp_path, barriers=MODES[mode]
            ),
            restart=af.restart.FixedDelay(5, delay=timedelta(0)),
        )

    start_again(begin, random, seed=seed, ends=random.randint(2, 5), within=90)

    assert sorted(ledger.values, key=repr) == expected(ask)
