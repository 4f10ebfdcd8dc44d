"""Steps with two inputs in a plan: tasks, parallelism, exchanges, side outputs, and how they are drawn."""

from __future__ import annotations

from textwrap import dedent

import pytest

import aflow as af
from aflow.api.stream import Stream
from aflow.graph.nodes import Broadcast, Edge, Forward, HashByKey, Rebalance
from aflow.graph.plan import Plan
from aflow.graph.plan_graph import to_mermaid, to_text
from aflow.testing import CollectSink
from tests.runtime.two_inputs import BROADCAST, Both, connect

ODD = af.Tag[int]("odd")


def shape(plan: Plan) -> list[tuple[str, int]]:
    return [(task.name, task.parallelism) for task in plan.tasks]


def exchanges(plan: Plan, name: str = "two") -> list[tuple[str, type]]:
    """Return the exchanges of the step, in the order of its inputs."""
    task = next(task for task in plan.tasks if task.head.name == name)
    return [(one.edge.origin.name, type(one.edge.partitioning)) for one in task.incoming]


def keyed_flow() -> af.Flow:
    flow = af.Flow("orders")
    orders = flow.source([1], name="orders").key_by(abs, name="by order")
    paid = flow.source([2], name="paid").key_by(abs, name="by payment")
    connect(flow, orders, paid, Both).map(str, name="text").to(CollectSink(), name="out")
    return flow


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_step_with_two_inputs_has_a_task_of_its_own_with_its_downstream_steps(
    parallelism: int,
) -> None:
    plan = keyed_flow().plan(parallelism=parallelism)

    assert shape(plan) == [
        ("orders → by order", 1),
        ("paid → by payment", 1),
        ("two → text → out", parallelism),
    ]


def test_both_keyed_inputs_are_exchanged_in_their_order() -> None:
    plan = keyed_flow().plan(parallelism=3)

    assert exchanges(plan) == [("by order", HashByKey), ("by payment", HashByKey)]


def test_each_input_has_the_exchange_that_its_own_parallelism_needs() -> None:
    flow = af.Flow("mixed")
    left = flow.source([1]).rebalance(3).map(abs, name="wide")
    connect(flow, left, flow.source([2], name="narrow"), Both).to(CollectSink())

    plan = flow.plan()

    assert exchanges(plan) == [("wide", Forward), ("narrow", Rebalance)]


def test_a_broadcast_is_sent_to_the_subtasks_of_the_records() -> None:
    flow = af.Flow("rules")
    left = flow.source([1]).rebalance(3).map(abs, name="records")
    rules = flow.source([2], name="rules")
    connect(flow, left, rules, Both, by=BROADCAST).to(CollectSink(), name="out")

    plan = flow.plan(parallelism=5)

    assert shape(plan)[-1] == ("two → out", 3)
    assert exchanges(plan) == [("records", Forward), ("rules", Broadcast)]


def test_a_broadcast_beside_keys_is_sent_to_all_subtasks_of_the_keys() -> None:
    flow = af.Flow("rules")
    left = flow.source([1]).key_by(abs, name="records")
    rules = flow.source([2], name="rules")
    connect(flow, left, rules, Both, by=(HashByKey(), Broadcast())).to(CollectSink(), name="out")

    plan = flow.plan(parallelism=5)

    assert shape(plan)[-1] == ("two → out", 5)
    assert exchanges(plan) == [("records", HashByKey), ("rules", Broadcast)]


def test_keys_that_only_a_step_with_two_inputs_reads_are_used() -> None:
    keyed_flow().graph.validate()


def test_text_says_which_input_is_the_left_one() -> None:
    drawn = to_text(keyed_flow().plan(parallelism=2))

    assert (
        dedent("""\
        task 2: 2 subtasks, key groups 0–63, 64–127
          reads by order of task 0: hash by key, as its left input
          reads by payment of task 1: hash by key, as its right input
          two  connect · keyed state · no side output read
          └─ text  map
             └─ out  sink CollectSink · delivers at least once
        """)
        in drawn
    )


def test_mermaid_says_which_input_is_the_left_one() -> None:
    drawn = to_mermaid(keyed_flow().plan())

    assert 'n1 -->|"forward, as its left input"| n4\n' in drawn
    assert 'n3 -->|"forward, as its right input"| n4\n' in drawn


def test_a_union_treats_its_inputs_alike() -> None:
    flow = af.Flow("union")
    flow.source([1]).union(flow.source([2])).to(CollectSink())

    plan = flow.plan()

    assert "input" not in to_text(plan)
    assert "input" not in to_mermaid(plan)


def test_a_step_that_may_have_side_outputs_may_have_nothing_else() -> None:
    flow = af.Flow("sides")
    two = connect(flow, flow.source([1]), flow.source([2]), Both)
    two.side(ODD).to(CollectSink(), name="odd")

    plan = flow.plan()

    assert "└─ odd  sink CollectSink · delivers at least once ← side output 'odd'" in to_text(plan)


def test_a_side_output_of_a_step_without_any_is_refused() -> None:
    flow = af.Flow("sides")
    edges: list[Edge] = []
    for value in (1, 2):
        flow.source([value])
        edges.append(Edge(flow.graph.nodes[-1]))
    join = Stream[int](flow.graph, Edge(flow.graph.add_step("join", "j", tuple(edges), Both)))

    with pytest.raises(af.FlowDefinitionError, match=r"step 'j' \(join\) has no side outputs"):
        join.side(ODD)
