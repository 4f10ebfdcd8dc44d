"""A stream of micro-batches without Spark: epochs one after the other, over lists, in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from random import Random

import aflow as af
from aflow.backfill.blocks import InputRows
from aflow.backfill.epoch_state import EpochState
from aflow.backfill.epoch_time import EpochWatermarks, StreamWatermarks
from aflow.backfill.epochs import needs_complete_part
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import Partition
from aflow.backfill.fragments import Fragment
from aflow.backfill.stream_recovery import StreamFolders, opened_stream
from aflow.backfill.task_state import TaskPlace, TaskState
from aflow.model.key_groups import KeyGroupRange, ranges
from aflow.testing import VirtualClock, virtual_time
from tests.backfill.comparison import Case, Results, together
from tests.backfill.items import Item
from tests.backfill.locally import run_locally

Rows = Mapping[str, Sequence[Item]]


def stream_locally(
    case: Case, batches: Sequence[Rows], folders: StreamFolders, random: Random
) -> Results:
    """Results of an epoch for each batch, on any number of partitions, and of one that ends the stream."""
    sinks = case.new_sinks()

    async def main() -> Results:
        flow = case.flow({name: [] for name in case.sources}, sinks)
        plan = plan_fragments(flow.graph, can_be_late=True)
        state = opened_stream(flow.graph, plan, folders)
        with closing(state.store):
            state.begin({})
            results: Results = {name: [] for name in sinks}
            none = {name: list[Item]() for name in case.sources}
            for number, batch in enumerate([*batches, none]):
                if state.is_finished:
                    break  # what remains is after the end
                marks = state.watermarks()
                if batch is none:
                    marks = _at_the_end(marks, folders.until)
                some = await _epoch(state, marks, batch, number, random)
                results = together(results, {name: some.get(name, []) for name in sinks})
            assert state.is_finished
            return results

    return virtual_time.run(main)


async def _epoch(
    state: EpochState, marks: StreamWatermarks, batch: Rows, number: int, random: Random
) -> Results:
    subtasks, plan, folder = random.choice([1, 2, 3]), state.plan, state.store.folder
    tasks: dict[tuple[int, int], TaskState] = {}

    def partition(fragment: Fragment, groups: KeyGroupRange) -> Partition:
        return Partition(
            subtasks=subtasks,
            key_groups=plan.key_groups,
            begins=state.position.begins,
            until=state.position.until,
            watermarks=marks.of(fragment),
            changes=not needs_complete_part(state.files_of(fragment), folder, groups),
        )

    def task(fragment: Fragment, subtask: int, rows: list[InputRows]) -> TaskState:
        groups = ranges(plan.key_groups, subtasks)[subtask]
        place = TaskPlace(folder, state.last.id + 1, fragment.head.name, subtask, groups)
        made = tasks[fragment.index, subtask] = TaskState(place, state.files_of(fragment))
        made.read()
        return made

    results, left = await run_locally(
        plan,
        batch,
        partition,
        None,
        selector=task,
        calls=state.calls_in,
        options=af.Options(clock=VirtualClock(), batch_records=random.choice([1, 1024])),
    )
    state.commit(
        marks,
        [tasks[one.index, subtask].write(ran.state) for one, subtask, ran in left if one.keyed],
        [ran.newest for _, _, ran in left],
        {},
        batch=number,
        subtasks=subtasks,
    )
    state.finish(subtasks)
    return results


def _at_the_end(marks: StreamWatermarks, until: int | None) -> StreamWatermarks:
    """The same for an epoch that advances to the end of the stream: no more records before it arrive."""
    assert until is not None

    def advanced(one: EpochWatermarks) -> EpochWatermarks:
        return EpochWatermarks(one.before, max(one.before, until - 1))

    steps = {step: advanced(one) for step, one in marks.steps.items()}
    return replace(marks, stream=advanced(marks.stream), steps=steps)
