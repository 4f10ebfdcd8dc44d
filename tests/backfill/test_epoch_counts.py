"""An epoch counts the records of its steps and the values of its state, for all steps and partitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.backfill.epoch_time import EpochWatermarks
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import FragmentResult, Partition, StateReader
from aflow.backfill.fragments import Fragment
from aflow.backfill.step_totals import StepTotals
from aflow.errors import CheckpointError
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import MIN_TIMESTAMP
from aflow.testing import VirtualClock
from aflow.testing.virtual_time import run, virtual_time
from tests.backfill.items import Item, key_of
from tests.backfill.locally import backfill_locally, run_locally
from tests.backfill.test_each_step import PAIR_STEPS, STEPS, case_of

#: In the middle of the records of all cases.
NOW = 300
#: Steps with aggregates that are computed again when they are needed, and not stored.
DERIVED = frozenset({"sliding", "several"})


async def epoch(
    flow: af.Flow,
    sources: Mapping[str, list[Any]],
    before: Mapping[str, Any],
    watermarks: EpochWatermarks,
) -> tuple[Mapping[str, list[Any]], list[FragmentResult]]:
    """Results, by sink, and reports of an epoch in one partition, with the state ``before``."""

    def restored(fragment: Fragment, groups: KeyGroupRange) -> StateReader | None:
        state = before.get(fragment.head.name)
        return None if state is None else lambda: state

    partition = Partition(watermarks=watermarks)
    options = af.Options(clock=VirtualClock())
    plan = plan_fragments(flow.graph)
    results, left = await run_locally(
        plan, sources, lambda fragment, groups: partition, restored, options=options
    )
    return results, [result for _, _, result in left]


@pytest.mark.parametrize("name", [*STEPS, *PAIR_STEPS])
def test_an_epoch_begins_with_as_many_values_as_the_one_before_has_left(name: str) -> None:
    case, _ = case_of(name)
    sinks = {"out": af.CollectSink[Any]()}

    async def main() -> tuple[list[FragmentResult], list[FragmentResult]]:
        flow = case.flow({source: [] for source in case.sources}, sinks)
        sources = {source: list(items) for source, items in case.sources.items()}
        _, first = await epoch(flow, sources, {}, EpochWatermarks(MIN_TIMESTAMP, NOW))
        state = {step: one for result in first for step, one in result.state.items()}
        nothing = {source: list[Any]() for source in sources}
        _, second = await epoch(flow, nothing, state, EpochWatermarks(NOW, NOW))
        return first, second

    first, second = run(main)

    left = sum(result.entries[1] for result in first)
    restored = [result.entries for result in second]
    assert [result.entries[0] for result in first] == [0] * len(first)
    assert [before for before, _ in restored] == [after for _, after in restored]
    found = sum(after for _, after in restored)
    assert 0 < found < left if name in DERIVED else found == left
    assert (left > 0) == any(one.keyed for result in first for one in result.state.values())


@virtual_time
async def test_the_counters_of_steps_are_those_of_a_live_job() -> None:
    case, _ = case_of("running")
    items = list(case.sources["items"])
    sinks = {"out": af.CollectSink[Any]()}
    async with case.flow({"items": items}, sinks).start() as job:
        await job.wait()
    live = job.metrics().steps

    results, reports = await epoch(
        case.flow({"items": []}, {"out": af.CollectSink[Any]()}),
        {"items": items},
        {},
        EpochWatermarks(MIN_TIMESTAMP, NOW),
    )
    totals = StepTotals([])
    totals.add([report.counted for report in reports], {})

    found = totals.metrics(0)
    assert found.keys() <= live.keys()
    assert {"items", "step"} <= found.keys()
    for name, one in found.items():
        assert (one.records_in, one.records_out) == (live[name].records_in, live[name].records_out)
    assert len(results["out"]) == live["out"].records_in
    assert found["step"].watermark == NOW


class Unstorable:
    """A value without a declared type."""


@virtual_time
async def test_a_running_value_that_cannot_be_stored_fails_a_backfill_early(
    tmp_path: Path,
) -> None:
    seen: list[int] = []

    def fold(accumulator: Unstorable, item: Item) -> Unstorable:
        seen.append(item.n)
        return Unstorable()

    items = [Item(0, n, n) for n in range(1000)]
    flow = af.Flow("unstorable")
    stream = flow.source(list[Item](), name="items").event_time(lambda item: item.at, name="time")
    stream.key_by(key_of).fold(Unstorable, fold, name="step").to(af.CollectSink[Any](), name="out")

    with pytest.raises(CheckpointError):
        await backfill_locally(
            flow,
            {"items": items},
            until=2000,
            block=10,
            parallelism=1,
            savepoint=tmp_path / "savepoint",
            ship=lambda fragment: fragment,
        )

    assert len(seen) < len(items)
