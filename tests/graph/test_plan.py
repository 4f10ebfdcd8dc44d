"""The plan: steps that share a task, their parallelism, and the exchanges between tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from aflow.api.flow import Flow
from aflow.api.windows import Tumbling
from aflow.connect import Position, Reader, Source, Split
from aflow.errors import FlowDefinitionError
from aflow.graph.nodes import Broadcast, Custom, Forward, HashByKey, Rebalance
from aflow.graph.plan import LONGEST_CHAIN, Plan
from aflow.runtime.builtin_connectors import CollectSink
from aflow.runtime.options import Options


class Wide(Source[int]):
    """A source that as many subtasks read as are wanted, or at most ``most``."""

    def __init__(self, most: int | None = None) -> None:
        self.max_parallelism = most

    async def splits(self) -> Sequence[Split]:
        raise NotImplementedError("planning reads nothing")

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        raise NotImplementedError("planning reads nothing")


def shape(plan: Plan) -> list[tuple[str, int]]:
    """Each task's steps and its number of subtasks."""
    return [(task.name, task.parallelism) for task in plan.tasks]


def exchanges(plan: Plan) -> list[tuple[str, type, str]]:
    """From where to where records are exchanged, and how."""
    return [
        (one.edge.origin.name, type(one.edge.partitioning), one.reader.name)
        for task in plan.tasks
        for one in task.incoming
    ]


def test_steps_without_exchange_between_them_share_a_task() -> None:
    flow = Flow("chain")
    flow.source(Wide()).map(abs).filter(bool).to(CollectSink())

    plan = flow.plan(parallelism=3)

    assert shape(plan) == [("source #1 → map #1 → filter #1 → to #1", 3)]
    assert exchanges(plan) == []


def test_keys_are_exchanged_between_more_than_one_subtask() -> None:
    flow = Flow("keyed")
    flow.source(Wide()).key_by(abs).reduce(max, name="top").to(CollectSink())

    plan = flow.plan(parallelism=2)

    assert shape(plan) == [("source #1 → key_by #1", 2), ("top → to #1", 2)]
    assert exchanges(plan) == [("key_by #1", HashByKey, "top")]


def test_from_one_subtask_to_one_keys_need_no_exchange() -> None:
    flow = Flow("keyed")
    flow.source(Wide()).key_by(abs).reduce(max, name="top").to(CollectSink())

    assert shape(flow.plan()) == [("source #1 → key_by #1 → top → to #1", 1)]


def test_one_subtask_hands_keys_to_many() -> None:
    flow = Flow("keyed")
    flow.source([1]).key_by(abs, parallelism=4).reduce(max, name="top").to(CollectSink())

    plan = flow.plan()

    assert shape(plan) == [("source #1 → key_by #1", 1), ("top → to #1", 4)]
    assert exchanges(plan) == [("key_by #1", HashByKey, "top")]


def test_a_source_that_cannot_be_divided_has_one_subtask() -> None:
    flow = Flow("narrow")
    flow.source([1]).map(abs).to(CollectSink())

    assert shape(flow.plan(parallelism=4)) == [("source #1 → map #1 → to #1", 1)]


def test_a_source_has_no_more_subtasks_than_it_can_use() -> None:
    flow = Flow("bounded")
    flow.source(Wide(most=3)).to(CollectSink())

    assert [flow.plan(parallelism=n).tasks[0].parallelism for n in (1, 3, 5)] == [1, 3, 3]


def test_a_source_prefers_the_parallelism_of_its_own() -> None:
    flow = Flow("own")
    flow.source(Wide(), parallelism=2).map(abs).to(CollectSink())

    assert shape(flow.plan(parallelism=5)) == [("source #1 → map #1 → to #1", 2)]


def test_keyed_steps_prefer_the_parallelism_of_their_key_by() -> None:
    flow = Flow("own")
    keyed = flow.source(Wide()).key_by(abs, parallelism=3)
    keyed.window(Tumbling(timedelta(hours=1))).reduce(max, name="hourly").to(CollectSink())

    plan = flow.plan(parallelism=5)

    assert shape(plan) == [("source #1 → key_by #1", 5), ("hourly → to #1", 3)]


def test_after_an_exchange_the_parallelism_is_that_of_the_node_or_of_the_job() -> None:
    flow = Flow("spread")
    stream = flow.source([1])
    stream.rebalance(2).map(abs, name="two").to(CollectSink())
    stream.rebalance().map(abs, name="all").to(CollectSink())

    plan = flow.plan(parallelism=4)

    assert shape(plan) == [
        ("source #1", 1),
        ("rebalance #1 → two → to #1", 2),
        ("rebalance #2 → all → to #2", 4),
    ]


def test_each_kind_of_exchange_is_kept_between_unequal_parallelisms() -> None:
    flow = Flow("kinds")
    stream = flow.source([1])
    stream.rebalance(2).to(CollectSink())
    stream.broadcast(2).to(CollectSink())
    stream.partition_by(lambda value, subtasks: value % subtasks, 2).to(CollectSink())

    assert [kind for _, kind, _ in exchanges(flow.plan())] == [Rebalance, Broadcast, Custom]


def test_an_exchange_from_one_to_one_is_none() -> None:
    flow = Flow("kinds")
    stream = flow.source([1])
    stream.rebalance().to(CollectSink())
    stream.broadcast().to(CollectSink())
    stream.partition_by(lambda value, subtasks: 0).to(CollectSink())

    assert len(flow.plan().tasks) == 1


@pytest.mark.parametrize("method", ["rebalance", "broadcast"])
def test_an_exchange_between_equal_numbers_above_one_is_no_forward(method: str) -> None:
    flow = Flow("kinds")
    getattr(flow.source(Wide()), method)().to(CollectSink())

    assert len(flow.plan(parallelism=2).tasks) == 2


def test_a_union_begins_a_task_since_it_has_several_inputs() -> None:
    flow = Flow("union")
    one, two = flow.source([1], name="one"), flow.source([2], name="two")
    one.union(two, name="both").map(abs).to(CollectSink())

    plan = flow.plan()

    assert shape(plan) == [("one", 1), ("two", 1), ("both → map #1 → to #1", 1)]
    assert exchanges(plan) == [("one", Forward, "both"), ("two", Forward, "both")]


def test_a_union_is_as_wide_as_its_widest_input_and_the_others_are_spread() -> None:
    flow = Flow("union")
    narrow, wide = flow.source([1], name="narrow"), flow.source(Wide(), name="wide")
    narrow.union(wide, name="both").to(CollectSink())

    plan = flow.plan(parallelism=3)

    assert shape(plan) == [("narrow", 1), ("wide", 3), ("both → to #1", 3)]
    assert exchanges(plan) == [("narrow", Rebalance, "both"), ("wide", Forward, "both")]


def test_two_readers_of_a_stream_and_of_its_side_output_join_its_task() -> None:
    flow = Flow("late")
    totals = (
        flow.source([1]).key_by(abs).window(Tumbling(timedelta(hours=1))).reduce(max, name="totals")
    )
    totals.to(CollectSink(), name="main")
    totals.late.to(CollectSink(), name="late")

    assert shape(flow.plan()) == [("source #1 → key_by #1 → totals → main → late", 1)]


def test_without_chaining_each_step_is_a_task_and_all_are_forwarded_to() -> None:
    flow = Flow("apart")
    flow.source(Wide()).map(abs).to(CollectSink())

    plan = flow.plan(parallelism=2, options=Options(chaining=False))

    assert shape(plan) == [("source #1", 2), ("map #1", 2), ("to #1", 2)]
    assert exchanges(plan) == [("source #1", Forward, "map #1"), ("map #1", Forward, "to #1")]


def test_a_chain_that_is_too_long_for_the_stack_continues_in_another_task() -> None:
    flow = Flow("long")
    stream = flow.source(Wide())
    for _ in range(LONGEST_CHAIN):
        stream = stream.map(abs)
    stream.to(CollectSink())

    tasks = flow.plan(parallelism=2).tasks

    assert [len(task.nodes) for task in tasks] == [LONGEST_CHAIN, 2]
    assert [type(one.edge.partitioning) for one in tasks[1].incoming] == [Forward]


def test_readers_of_one_stream_do_not_make_a_chain_longer() -> None:
    flow = Flow("wide")
    numbers = flow.source(Wide())
    for _ in range(LONGEST_CHAIN):
        numbers.map(abs).to(CollectSink())

    assert len(flow.plan().tasks) == 1


def test_tasks_follow_their_upstream_tasks_and_are_numbered_in_that_order() -> None:
    flow = Flow("order")
    stream = flow.source([1]).rebalance(2).rebalance(3)
    stream.to(CollectSink())

    plan = flow.plan()

    assert [task.index for task in plan.tasks] == [0, 1, 2]
    assert [task.parallelism for task in plan.tasks] == [1, 2, 3]


def test_the_key_groups_of_a_task_are_shared_out_among_its_subtasks() -> None:
    flow = Flow("groups")
    flow.source([1]).key_by(abs).reduce(max, name="top").to(CollectSink())

    plan = flow.plan(parallelism=3, options=Options(key_groups=10))

    assert [(one.start, one.stop) for one in plan.ranges(plan.tasks[1])] == [
        (0, 4),
        (4, 7),
        (7, 10),
    ]


def test_more_subtasks_than_key_groups_are_refused_by_the_name_of_the_step() -> None:
    flow = Flow("groups")
    flow.source([1]).key_by(abs, parallelism=5).reduce(max, name="top").to(CollectSink())

    with pytest.raises(FlowDefinitionError, match=r"'top' has parallelism 5 .* only 4 key groups"):
        flow.plan(options=Options(key_groups=4))


def test_as_many_subtasks_as_key_groups_are_accepted() -> None:
    flow = Flow("groups")
    flow.source([1]).key_by(abs, parallelism=4).reduce(max, name="top").to(CollectSink())

    plan = flow.plan(options=Options(key_groups=4))

    assert plan.tasks[-1].parallelism == 4


def test_a_plan_can_be_made_again_and_is_the_same() -> None:
    flow = Flow("again")
    flow.source(Wide()).key_by(abs).reduce(max, name="top").to(CollectSink())

    first = flow.plan(parallelism=2)

    assert shape(flow.plan(parallelism=2)) == shape(first)
    assert shape(flow.plan()) != shape(first)
