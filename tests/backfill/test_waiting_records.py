"""Records that wait for a savepoint of a running stream change no result, and the savepoint continues over history."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import pytest

import aflow as af
from aflow.backfill.epoch_state import EpochState
from aflow.backfill.epochs import needs_complete_part, write_epoch_part
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import Partition, StateReader
from aflow.backfill.fragments import Fragment
from aflow.backfill.stream_recovery import StreamFolders, opened_stream
from aflow.model.key_groups import KeyGroupRange
from aflow.testing import VirtualClock, virtual_time
from aflow_connectors.spark.stream.savepoint_request import first_cut
from tests.backfill.comparison import Case, Results, together
from tests.backfill.items import Item, Row
from tests.backfill.locally import backfill_locally, run_locally
from tests.backfill.test_each_step import PAIR_STEPS, STEPS, case_of
from tests.backfill.test_epoch_time import at_the_end

Batch = dict[str, list[Item]]


def flow_of(case: Case) -> af.Flow:
    return case.flow({name: [] for name in case.sources}, {"out": af.CollectSink[Row]()})


@dataclass
class Stream:
    """The epochs of a stream, as a driver runs them."""

    state: EpochState
    random: Random
    results: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    subtasks: int = 1

    async def epoch(
        self,
        batch: Batch,
        *,
        begins: int | None = None,
        cut: int | None = None,
        held: tuple[str, ...] = (),
        last: bool = False,
    ) -> None:
        state, self.subtasks = self.state, self.random.choice([1, 2, 3])
        watermarks = state.watermarks(cut=cut)
        if last:
            watermarks = at_the_end(watermarks)
        folder, groups_of_keys = state.store.folder, state.plan.key_groups

        def partition(fragment: Fragment, groups: KeyGroupRange) -> Partition:
            return Partition(
                subtasks=self.subtasks,
                key_groups=groups_of_keys,
                begins=begins,
                until=cut,
                watermarks=watermarks.of(fragment),
                changes=not needs_complete_part(state.files_of(fragment), folder, groups),
            )

        def restored(fragment: Fragment, groups: KeyGroupRange) -> StateReader | None:
            files = state.files_of(fragment)
            return None if files is None else partial(files.read, groups)

        options = af.Options(clock=VirtualClock(), batch_records=self.random.choice([1, 1024]))
        results, left = await run_locally(state.plan, batch, partition, restored, options=options)
        number = state.last.id + 1
        parts = [
            write_epoch_part(folder, number, one.head.name, subtask, result.state)
            for one, subtask, result in left
            if one.keyed
        ]
        newest = [result.newest for _, _, result in left]
        state.commit(
            watermarks, parts, newest, {}, batch=None, subtasks=self.subtasks, cut=cut, held=held
        )
        for name, rows in results.items():
            self.results.setdefault(name, []).extend(rows)


async def streamed(
    case: Case, batches: list[Batch], folder: Path, random: Random
) -> tuple[Results, Results | None]:
    """Results of a stream that was asked for a savepoint after two batches, and those before the savepoint.

    The latter are None if the watermark has not arrived at the savepoint.
    """
    graph = flow_of(case).graph
    folders = StreamFolders(folder / "state", None, None, None, allow_dropped_state=False)
    state = opened_stream(graph, plan_fragments(graph), folders)
    stream, before = Stream(state, random), None
    with closing(state.store):
        state.begin({})
        for batch in batches[:2]:
            await stream.epoch(batch)
        cut, waiting, held = first_cut(state), batches[2:], tuple[str, ...]()
        arrived: list[Batch] = []
        while waiting and state.position.watermark < cut - 1:
            arrived.append(waiting.pop(0))
            held = (*held, str(len(arrived)))
            await stream.epoch(arrived[-1], cut=cut, held=held)
        if state.can_advance(cut=cut):
            await stream.epoch({name: [] for name in case.sources}, cut=cut, held=held)
        if state.position.watermark == cut - 1:
            state.write_savepoint(folder / "savepoint", cut, stream.subtasks)
            before = {name: sorted(rows) for name, rows in stream.results.items()}
        all_held = {name: [item for one in arrived for item in one[name]] for name in case.sources}
        await stream.epoch(all_held, begins=cut)
        for batch in waiting:
            await stream.epoch(batch)
        await stream.epoch({name: [] for name in case.sources}, last=True)
    return {"out": sorted(stream.results.get("out", []))}, before


@pytest.mark.parametrize("name", [*list(STEPS)[::4], *list(PAIR_STEPS)[::3]])
def test_a_stream_and_what_starts_from_its_savepoint_give_the_results_of_a_live_job(
    name: str, tmp_path: Path
) -> None:
    case, expected = case_of(name)
    random = Random(f"{name} with a savepoint")
    ends = sorted(random.choices(range(1, 150), k=4))
    batches = [
        {source: list(items[begin:end]) for source, items in case.sources.items()}
        for begin, end in zip([0, *ends], [*ends, None], strict=True)
    ]

    results, before = virtual_time.run(lambda: streamed(case, batches, tmp_path, random))

    assert results == expected, f"batches end at {ends}"
    if before is not None:
        rest = virtual_time.run(
            lambda: backfill_locally(
                flow_of(case), case.sources, restore=tmp_path / "savepoint", parallelism=2
            )
        )
        after = {"out": sorted(rest.results.get("out", []))}
        assert together({"out": before.get("out", [])}, after) == expected
    else:
        assert case.max_delay
