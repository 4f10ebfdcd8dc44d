"""A stream of micro-batches has the watermarks of its records, one batch later, and the results of a live job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

import aflow as af
from aflow.backfill import task_state
from aflow.backfill.epoch_time import EpochTime, EpochWatermarks, StreamWatermarks
from aflow.backfill.epochs import EpochStore, needs_complete_part, next_steps
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import Partition
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.errors import FlowDefinitionError
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.state.change_plan import ChangePlan
from aflow.state.manifest import Manifest, StreamPosition
from aflow.testing import VirtualClock, virtual_time
from tests.backfill.comparison import Case, Results, together
from tests.backfill.epoch_tasks import EpochTasks, Processes
from tests.backfill.items import Item, Row, millis
from tests.backfill.locally import run_locally
from tests.backfill.test_each_step import PAIR_STEPS, STEPS, case_of
from tests.backfill.test_epochs import GROUPS, epoch


def at_the_end(watermarks: StreamWatermarks) -> StreamWatermarks:
    """The same for an epoch that ends time."""
    steps = {
        step: EpochWatermarks(one.before, MAX_TIMESTAMP) for step, one in watermarks.steps.items()
    }
    return replace(
        watermarks, stream=EpochWatermarks(watermarks.stream.before, MAX_TIMESTAMP), steps=steps
    )


@dataclass
class Stream:
    """The epochs of a flow in a folder, on a random number of partitions each, in processes that may keep state."""

    case: Case
    folder: Path
    random: Random
    processes: Processes = field(init=False)
    _subtasks: int = 1

    def __post_init__(self) -> None:
        self.processes = Processes(self.random)

    def epoch(self, batch: dict[str, list[Item]], *, last: bool = False) -> Results:
        """Results of an epoch over ``batch``; the last one ends time."""
        sinks = {"out": af.CollectSink[Row]()}

        async def main() -> Results:
            flow = self.case.flow({name: [] for name in batch}, sinks)
            plan = plan_fragments(flow.graph, can_be_late=True)
            time = EpochTime.of(plan)
            store = EpochStore(self.folder, plan.flow, GROUPS)
            before = store.open() or epoch(1, flow=plan.flow)
            with closing(store):
                position = before.stream or StreamPosition()
                watermarks = time.watermarks(
                    position.watermark, position.watermarks, position.earned
                )
                if last:
                    watermarks = at_the_end(watermarks)
                return await self._run(store, plan, before, time, watermarks, batch)

        results = virtual_time.run(main)
        return {name: sorted(results.get(name, [])) for name in sinks}

    async def _run(
        self,
        store: EpochStore,
        plan: FragmentPlan,
        before: Manifest,
        time: EpochTime,
        watermarks: StreamWatermarks,
        batch: dict[str, list[Item]],
    ) -> Results:
        subtasks = self._subtasks = self.random.choice([self._subtasks, 1, 2, 3])
        tasks = EpochTasks(self.processes, store, before, subtasks)

        def partition(fragment: Fragment, groups: KeyGroupRange) -> Partition:
            files = store.files_of(before, fragment.head.name, ChangePlan())
            changes = not needs_complete_part(files, store.folder, groups)
            return Partition(
                subtasks=subtasks,
                key_groups=GROUPS,
                watermarks=watermarks.of(fragment),
                changes=changes,
            )

        options = af.Options(clock=VirtualClock(), batch_records=self.random.choice([1, 1024]))
        results, left = await run_locally(
            plan, batch, partition, None, selector=tasks.begin, options=options
        )
        newest: dict[str, int] = {}
        for _, _, result in left:
            for step, at in result.newest.items():
                newest[step] = max(at, newest.get(step, MIN_TIMESTAMP))
        steps = next_steps(
            before.steps,
            [tasks.end(one, subtask, result) for one, subtask, result in left if one.keyed],
            {one.head.name: one.head.what for one in plan.fragments if one.keyed},
            subtasks=subtasks,
            key_groups=GROUPS,
        )
        position = before.stream or StreamPosition()
        stream = replace(
            position,
            watermark=watermarks.stream.after,
            watermarks={step: one.after for step, one in watermarks.steps.items()},
            earned=time.earned(position.earned, newest),
        )
        committed = replace(before, id=before.id + 1, steps=steps, stream=stream)
        store.commit(committed)
        tasks.check_kept(plan.fragments, committed)
        return results


@pytest.mark.parametrize("name", [*STEPS, *PAIR_STEPS])
def test_a_step_gives_the_results_of_a_live_job_in_micro_batches(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, expected = case_of(name)
    random = Random(f"{name} in micro-batches")
    # There are few keys: more than half of them are never restored alone, unless this is changed.
    monkeypatch.setattr(task_state, "MOST_KEYS", random.choice([0.5, 2]))
    ends = sorted(random.choices(range(1, 150), k=4))
    stream = Stream(case, tmp_path, random)

    results: Results = {}
    for begin, end in zip([0, *ends], [*ends, None], strict=True):
        batch = {source: list(items[begin:end]) for source, items in case.sources.items()}
        some = stream.epoch(batch)
        results = together(some, results) if results else some
    results = together(stream.epoch({source: [] for source in case.sources}, last=True), results)

    assert results == expected, f"batches end at {ends}"


def test_the_watermark_follows_the_slowest_source_and_never_goes_back() -> None:
    time = EpochTime({"fast": 1, "slow": 11})

    none = time.earned({}, {})
    one = time.earned(none, {"fast": 500})
    both = time.earned(one, {"slow": 100, "of no source": 7})
    older = time.earned(both, {"slow": 60, "fast": 400})

    assert time.watermarks(MIN_TIMESTAMP, {}, none).stream.after == MIN_TIMESTAMP
    assert time.watermarks(MIN_TIMESTAMP, {}, one).stream.after == MIN_TIMESTAMP
    assert both == {"fast": 499, "slow": 89}
    assert time.watermarks(MIN_TIMESTAMP, {}, both).stream.after == 89
    assert older == both
    assert time.watermarks(300, {}, both).stream.after == 300


class Every:
    """A generator of a user."""

    def on_event(self, value: int, timestamp: int) -> int | None:
        return timestamp

    def on_periodic(self) -> int | None:
        return None


def own(numbers: af.Stream[int]) -> af.Stream[int]:
    return numbers.event_time(lambda n: n, generator=Every, name="own")


def second(numbers: af.Stream[int]) -> af.Stream[int]:
    return numbers.event_time(lambda n: n, name="first").event_time(lambda n: -n, name="second")


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (own, "step 'own' of flow 'times' has watermarks of its own or of its source"),
        (second, "step 'sums' of flow 'times' is downstream of a second event_time"),
    ],
    ids=["own watermarks", "a second time"],
)
def test_watermarks_that_an_epoch_cannot_have_are_refused(
    times: Callable[[af.Stream[int]], af.Stream[int]], message: str
) -> None:
    flow = af.Flow("times")
    keyed = times(flow.source([1, 2], name="numbers")).key_by(lambda n: n)
    sums = keyed.window(af.Tumbling(millis(10))).fold(int, lambda total, n: total + n, name="sums")
    sums.to(af.CollectSink[object](), name="out")

    with pytest.raises(FlowDefinitionError, match=message):
        EpochTime.of(plan_fragments(flow.graph))


def test_a_flow_without_event_time_is_no_stream() -> None:
    flow = af.Flow("timeless")
    flow.source([1, 2], name="numbers").to(af.CollectSink[int](), name="out")

    with pytest.raises(FlowDefinitionError, match=r"flow 'timeless' has no event_time"):
        EpochTime.of(plan_fragments(flow.graph))
