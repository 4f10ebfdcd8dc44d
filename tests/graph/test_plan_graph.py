"""Plans as text and as Mermaid: whole drawings of small flows, and names that would break a drawing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from textwrap import dedent

import pytest

from aflow.api.flow import Flow
from aflow.api.stream import Stream
from aflow.graph.plan_graph import to_mermaid, to_text
from aflow.model.tags import Tag
from aflow.operators.context import ProcessContext
from aflow.operators.process import ProcessFunction
from aflow.runtime.builtin_connectors import CollectSink, PushSource
from aflow.runtime.options import Options

BAD = Tag[int]("bad")


class Sort(ProcessFunction[int, int]):
    def process(self, value: int, ctx: ProcessContext) -> Iterable[int]:
        return [value]


def branching() -> Flow:
    """Return a flow with one source, totals of valid records by key, and a sink for invalid ones."""
    flow = Flow("orders")
    sorted_out = flow.source([1], name="in").process(Sort(), name="sort")
    sorted_out.side(BAD).map(abs, name="repair").to(CollectSink(), name="bad orders")
    sorted_out.key_by(abs, name="by size").reduce(max, name="top").to(CollectSink(), name="out")
    return flow


def test_text_shows_tasks_as_trees_with_their_exchanges_key_groups_and_guarantee() -> None:
    drawn = to_text(branching().plan(parallelism=3))

    assert drawn == dedent("""\
        flow 'orders': 2 tasks in 4 subtasks, 128 key groups

        task 0: 1 subtask
          in  source IterableSource · bounded · replayable
          └─ sort  process
             ├─ repair  map ← side output 'bad'
             │  └─ bad orders  sink CollectSink · delivers at least once
             └─ by size  key_by

        task 1: 3 subtasks, key groups 0–42, 43–85, 86–127
          reads by size of task 0: hash by key
          top  reduce · keyed state
          └─ out  sink CollectSink · delivers at least once

        end-to-end guarantee with checkpoints: at least once
          bad orders, out: at least once; records since the last checkpoint are written again, as duplicates
        end-to-end guarantee without checkpoints: at least once
          bad orders, out: at least once; the next run writes everything again, so records written before the crash \
are duplicated
        """)


def test_mermaid_has_a_subgraph_for_each_task_and_labels_exchanges() -> None:
    drawn = to_mermaid(branching().plan(parallelism=3))

    assert drawn == dedent("""\
        flowchart LR
            subgraph task0["task 0 · 1 subtask"]
                n0(["in<br/>source IterableSource<br/>bounded<br/>replayable"])
                n1["sort<br/>process"]
                n2["repair<br/>map"]
                n3[("bad orders<br/>sink CollectSink<br/>delivers at least once")]
                n4["by size<br/>key_by"]
                n0 --> n1
                n1 -->|"side output 'bad'"| n2
                n2 --> n3
                n1 --> n4
            end
            subgraph task1["task 1 · 3 subtasks"]
                n5["top<br/>reduce<br/>keyed state"]
                n6[("out<br/>sink CollectSink<br/>delivers at least once")]
                n5 --> n6
            end
            n4 -->|"hash by key"| n5
        """)


def to_first(value: int, subtasks: int) -> int:
    return 0


def rebalanced(stream: Stream[int]) -> Stream[int]:
    return stream.rebalance(2)


def broadcast(stream: Stream[int]) -> Stream[int]:
    return stream.broadcast(2)


def partitioned(stream: Stream[int]) -> Stream[int]:
    return stream.partition_by(to_first, 2)


@pytest.mark.parametrize(
    ("exchange", "label"),
    [
        (rebalanced, "rebalance"),
        (broadcast, "broadcast"),
        (partitioned, "partition by to_first"),
    ],
    ids=["rebalance", "broadcast", "custom"],
)
def test_both_drawings_name_the_kind_of_an_exchange(
    exchange: Callable[[Stream[int]], Stream[int]], label: str
) -> None:
    flow = Flow("exchange")
    exchange(flow.source([1], name="in")).to(CollectSink())

    plan = flow.plan()

    assert f"reads in of task 0: {label}\n" in to_text(plan)
    assert f'n0 -->|"{label}"| n1' in to_mermaid(plan)


def test_an_exchange_of_a_side_output_says_which() -> None:
    flow = Flow("sides")
    sort = flow.source([1]).process(Sort(), name="sort")
    sort.to(CollectSink())
    sort.side(BAD).rebalance(2).to(CollectSink())

    plan = flow.plan()

    assert "reads sort of task 0: rebalance, side output 'bad'" in to_text(plan)
    assert "|\"rebalance, side output 'bad'\"|" in to_mermaid(plan)


def test_a_union_of_one_subtask_each_reads_its_inputs_forward() -> None:
    flow = Flow("union")
    one, two = flow.source([1], name="one"), flow.source([2], name="two")
    one.union(two).to(CollectSink())

    drawn = to_text(flow.plan())

    assert "  reads one of task 0: forward\n  reads two of task 1: forward\n" in drawn


def test_a_source_that_never_ends_and_cannot_be_read_again_says_so() -> None:
    flow = Flow("live")
    flow.source(PushSource[int](), name="requests").to(CollectSink(), name="out")

    drawn = to_text(flow.plan())

    assert "requests  source PushSource · unbounded · not replayable" in drawn
    assert "end-to-end guarantee with checkpoints: no guarantee" in drawn
    assert "out: no guarantee; 'requests' cannot be read again" in drawn


def test_of_many_key_group_ranges_the_first_two_and_the_last_are_shown() -> None:
    flow = Flow("many")
    flow.source([1]).key_by(abs).reduce(max, name="top").to(CollectSink())

    drawn = to_text(flow.plan(parallelism=64))

    assert "64 subtasks, key groups 0–1, 2–3, …, 126–127\n" in drawn


def test_a_chain_of_thousands_of_steps_is_drawn() -> None:
    flow = Flow("long")
    stream = flow.source([1])
    for _ in range(2_000):
        stream = stream.map(abs)
    stream.to(CollectSink())

    plan = flow.plan(options=Options(chaining=True))

    assert "map #2000  map" in to_text(plan)
    assert to_mermaid(plan).count("-->") == 2_001


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ('say "hi"', "say #34;hi#34;"),
        ("a#b;c", "a#35;b#59;c"),
        ("<script>&", "#60;script#62;#38;"),
        ("`md`", "#96;md#96;"),
        ("%%{init}%%", "#37;#37;{init}#37;#37;"),
        ("style a:b", "style a#58;b"),
        ("two\nlines", "two lines"),
        ("a|b\\c", "a#124;b#92;c"),
        ("Größe 数 end", "Größe 数 end"),
    ],
    ids=[
        "quotes",
        "codes",
        "markup",
        "markdown",
        "directive",
        "style",
        "newline",
        "bars",
        "letters",
    ],
)
def test_odd_names_cannot_break_out_of_a_mermaid_label(name: str, label: str) -> None:
    flow = Flow("odd")
    flow.source([1]).map(abs, name=name).to(CollectSink())

    drawn = to_mermaid(flow.plan())

    assert f'n1["{label}<br/>map"]' in drawn
    assert all(line.count('"') in (0, 2) for line in drawn.splitlines())


def test_each_step_and_each_edge_is_drawn_once() -> None:
    drawn = to_mermaid(branching().plan(parallelism=3))

    edges = re.findall(r"(n\d+) -->(?:\|[^|]*\|)? (n\d+)", drawn)

    assert sorted(set(edges)) == sorted(edges)
    assert {node for edge in edges for node in edge} == {f"n{number}" for number in range(7)}
