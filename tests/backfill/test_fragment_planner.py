"""Fragments of a flow, and the exits between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

import aflow as af
from aflow import triggers
from aflow.backfill.fragment_planner import is_head, plan_fragments
from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.errors import FlowDefinitionError
from aflow.graph.nodes import HashByKey, Kind
from tests.backfill.any_flow import flows
from tests.backfill.locally import backfill_locally

MINUTE = timedelta(minutes=1)
BAD = af.Tag[Any]("bad")


class Pass(af.KeyedProcess[int, int, int]):
    def process(self, value: int, ctx: af.Context[int]) -> Iterable[int]:
        return (value,)


class Meet(af.CoProcess[int, int, int, int]):
    def process_left(self, value: int, ctx: af.Context[int]) -> Iterable[int]:
        return (value,)

    def process_right(self, value: int, ctx: af.Context[int]) -> Iterable[int]:
        return (value,)


class Ask(af.AsyncKeyedProcess[int, int, int]):
    async def process(self, value: int, ctx: af.AsyncContext[int]) -> Iterable[int]:
        return (value,)


async def answer(value: int) -> int:
    return value


def same(value: Any) -> Any:
    return value


def begun(flow: af.Flow, name: str = "numbers") -> af.Stream[int]:
    """A source with event time assigned right after it."""
    return flow.source([1], name=name).event_time(same, name=f"time of {name}")


def end(stream: af.Stream[Any], name: str) -> None:
    stream.to(af.CollectSink[Any](), name=name)


def names(fragment: Fragment) -> list[str]:
    return [node.name for node in fragment.nodes]


def said(plan: FragmentPlan, exit: Exit) -> str:
    """An exit in words: ``origin[side] -> sink`` or ``origin -> head.input``."""
    side = "" if exit.side is None else f"[{exit.side}]"
    if exit.sink is not None:
        return f"{exit.origin.name}{side} -> {exit.sink.name}"
    assert exit.reader is not None
    return f"{exit.origin.name}{side} -> {plan.fragments[exit.reader].head.name}.{exit.input}"


def exit_list(plan: FragmentPlan) -> list[list[str]]:
    """The exits of each fragment, in words."""
    return [[said(plan, exit) for exit in fragment.exits] for fragment in plan.fragments]


def test_a_flow_without_keys_is_one_fragment_with_its_branches() -> None:
    flow = af.Flow("branches")
    numbers = begun(flow).map(same, name="map")
    end(numbers, "all")
    end(numbers.filter(same, name="few"), "some")

    plan = plan_fragments(flow.graph)

    assert [names(one) for one in plan.fragments] == [
        ["numbers", "time of numbers", "map", "few"],
    ]
    assert exit_list(plan) == [["map -> all", "few -> some"]]
    assert not plan.fragments[0].keyed


def test_each_keyed_exchange_begins_a_fragment() -> None:
    flow = af.Flow("several")
    per_key = begun(flow).key_by(same, name="by a").reduce(max, name="first")
    per_other = per_key.map(same, name="map").key_by(same, name="by b").reduce(max, name="second")
    end(per_other, "out")

    plan = plan_fragments(flow.graph, key_groups=16)

    assert [names(one) for one in plan.fragments] == [
        ["numbers", "time of numbers", "by a"],
        ["first", "map", "by b"],
        ["second"],
    ]
    assert exit_list(plan) == [["by a -> first.0"], ["by b -> second.0"], ["second -> out"]]
    assert [one.keyed for one in plan.fragments] == [False, True, True]
    assert plan.key_groups == 16


def test_two_keyed_steps_after_one_key_by_are_two_fragments() -> None:
    flow = af.Flow("shared keys")
    keyed = begun(flow).key_by(same, name="keys")
    end(keyed.reduce(max, name="most"), "high")
    end(keyed.reduce(min, name="least"), "low")

    plan = plan_fragments(flow.graph)

    assert exit_list(plan) == [
        ["keys -> most.0", "keys -> least.0"],
        ["most -> high"],
        ["least -> low"],
    ]


def test_a_diamond_is_in_one_fragment_once() -> None:
    flow = af.Flow("diamond")
    numbers = begun(flow)
    both = numbers.map(same, name="left").union(numbers.map(same, name="right"), name="both")
    end(both, "out")

    plan = plan_fragments(flow.graph)

    assert [names(one) for one in plan.fragments] == [
        ["numbers", "time of numbers", "left", "right", "both"],
    ]
    assert exit_list(plan) == [["both -> out"]]


def test_steps_downstream_of_a_union_of_two_sources_are_in_both_fragments() -> None:
    flow = af.Flow("two sources")
    both = begun(flow, "a").union(begun(flow, "b"), name="both").map(same, name="map")
    end(both.key_by(same, name="keys").reduce(max, name="most"), "out")

    plan = plan_fragments(flow.graph)

    assert [names(one) for one in plan.fragments] == [
        ["a", "time of a", "both", "map", "keys"],
        ["b", "time of b", "both", "map", "keys"],
        ["most"],
    ]
    assert exit_list(plan) == [["keys -> most.0"], ["keys -> most.0"], ["most -> out"]]
    assert [(one.index, exit.number) for one, exit in plan.inputs_of(plan.fragments[2])] == [
        (0, 0),
        (1, 1),
    ]


def test_a_union_downstream_of_keyed_steps_is_copied_to_each_of_them() -> None:
    flow = af.Flow("keyed union")
    keyed = begun(flow).key_by(same, name="keys")
    most, least = keyed.reduce(max, name="most"), keyed.reduce(min, name="least")
    end(most.union(least, name="both"), "out")

    plan = plan_fragments(flow.graph)

    assert [names(one) for one in plan.fragments[1:]] == [["most", "both"], ["least", "both"]]
    assert exit_list(plan)[1:] == [["both -> out"], ["both -> out"]]


@pytest.mark.parametrize("what", ["window_join", "co_group", "interval_join", "as_of_join", "both"])
def test_a_step_with_two_keyed_inputs_reads_each_by_its_own_number(what: str) -> None:
    flow = af.Flow("joins")
    left = begun(flow, "a").key_by(same, name="left")
    right = begun(flow, "b").key_by(same, name="right")
    joined: af.Stream[Any]
    match what:
        case "window_join":
            joined = left.window_join(right, af.Tumbling(MINUTE)).inner(max, name="joined")
        case "co_group":
            joined = left.co_group(
                right, af.Tumbling(MINUTE), into=lambda a, b: len(a + b), name="joined"
            )
        case "interval_join":
            joined = left.interval_join(right, between=(-MINUTE, MINUTE)).inner(max, name="joined")
        case "as_of_join":
            joined = left.as_of_join(right).inner(max, name="joined")
        case _:
            joined = left.connect(right).process(Meet(), name="joined")
    end(joined, "out")

    plan = plan_fragments(flow.graph)

    assert exit_list(plan) == [["left -> joined.0"], ["right -> joined.1"], ["joined -> out"]]
    assert plan.fragments[2].watermark_per_timestamp is (what == "both")


def test_a_stream_that_is_joined_with_itself_has_two_exits() -> None:
    flow = af.Flow("self")
    keyed = begun(flow).key_by(same, name="keys")
    end(keyed.interval_join(keyed, between=(-MINUTE, MINUTE)).inner(max, name="pairs"), "out")

    plan = plan_fragments(flow.graph)

    assert exit_list(plan) == [["keys -> pairs.0", "keys -> pairs.1"], ["pairs -> out"]]


def test_a_fragment_may_read_its_inputs_from_fragments_far_apart() -> None:
    flow = af.Flow("far")
    keyed = begun(flow).key_by(same, name="keys")
    most = keyed.reduce(max, name="most").key_by(same, name="again")
    end(most.connect(keyed).process(Meet(), name="meet"), "out")

    plan = plan_fragments(flow.graph)

    inputs_of = [(one.index, said(plan, exit)) for one, exit in plan.inputs_of(plan.fragments[2])]
    assert inputs_of == [(0, "keys -> meet.1"), (1, "again -> meet.0")]


def test_side_outputs_and_late_records_have_their_own_exits() -> None:
    flow = af.Flow("sides")
    called = begun(flow).map_async(answer, name="call", on_error=af.calls.DeadLetter(BAD))
    end(called.side(BAD), "failed")
    windows = called.key_by(same, name="keys").window(af.Tumbling(MINUTE)).reduce(max, name="most")
    end(windows.late, "late")
    end(windows.late.map(same, name="map"), "late again")
    end(windows, "out")

    plan = plan_fragments(flow.graph)

    assert exit_list(plan) == [
        ["call[bad] -> failed", "keys -> most.0"],
        ["most[late] -> late", "most -> out", "map -> late again"],
    ]


def test_a_side_output_may_be_keyed_and_its_origin_nothing_but_side_outputs() -> None:
    flow = af.Flow("sides by key")
    processed = begun(flow).key_by(same, name="keys").process(Pass(), name="pass")
    end(processed.side(BAD).key_by(same, name="by bad").reduce(max, name="most"), "out")

    plan = plan_fragments(flow.graph)

    assert exit_list(plan) == [["keys -> pass.0"], ["by bad -> most.0"], ["most -> out"]]
    assert names(plan.fragments[1]) == ["pass", "by bad"]


def test_exchanges_without_keys_cut_nothing() -> None:
    flow = af.Flow("spread")
    spread = begun(flow).rebalance(3).map(same, name="map")
    end(spread.partition_by(lambda value, subtasks: value % subtasks).map(same, name="on"), "out")

    plan = plan_fragments(flow.graph)

    assert len(plan.fragments) == 1
    assert exit_list(plan) == [["on -> out"]]


def test_window_all_is_a_keyed_fragment() -> None:
    flow = af.Flow("all")
    end(begun(flow).window_all(af.Tumbling(MINUTE)).reduce(max, name="most"), "out")

    plan = plan_fragments(flow.graph)

    assert names(plan.fragments[1]) == ["most"]
    assert plan.fragments[1].keyed


def test_calls_on_a_keyed_stream_begin_a_fragment_and_others_do_not() -> None:
    flow = af.Flow("calls")
    called = begun(flow).map_async(answer, name="call")
    end(called.key_by(same, name="keys").map_async(answer, name="by key"), "out")

    plan = plan_fragments(flow.graph)

    assert [names(one) for one in plan.fragments] == [
        ["numbers", "time of numbers", "call", "keys"],
        ["by key"],
    ]


def test_two_pipelines_in_one_flow_are_cut_side_by_side() -> None:
    flow = af.Flow("two")
    for name in ("a", "b"):
        most = begun(flow, name).key_by(same, name=f"by {name}").reduce(max, name=f"of {name}")
        end(most, f"sink of {name}")

    plan = plan_fragments(flow.graph)

    assert exit_list(plan) == [
        ["by a -> of a.0"],
        ["of a -> sink of a"],
        ["by b -> of b.0"],
        ["of b -> sink of b"],
    ]


def test_numbers_of_exits_are_unique_in_the_plan() -> None:
    flow = af.Flow("numbers")
    both = begun(flow, "a").union(begun(flow, "b"))
    end(both, "all")
    end(both.key_by(same).reduce(max, name="most"), "out")

    plan = plan_fragments(flow.graph)

    assert [exit.number for one in plan.fragments for exit in one.exits] == list(range(5))


# ----------------------------------------------------------------------------------------------------- time


def test_history_is_cut_where_records_get_their_first_timestamps() -> None:
    flow = af.Flow("times")
    numbers = flow.source([1], name="numbers").map(same)
    first = numbers.event_time(same, name="first")
    end(first.map(same).event_time(same, name="second"), "out")
    end(numbers.event_time(same, name="other"), "out too")

    plan = plan_fragments(flow.graph)

    assert plan.fragments[0].cuts_at == {"first", "other"}


def test_one_step_may_cut_the_records_of_one_source_and_not_those_of_another() -> None:
    flow = af.Flow("times")
    both = begun(flow, "a").union(flow.source([1], name="b"))
    end(both.event_time(same, name="time of both"), "out")

    plan = plan_fragments(flow.graph)

    assert [one.cuts_at for one in plan.fragments] == [{"time of a"}, {"time of both"}]


def test_a_keyed_fragment_cuts_nothing_though_event_time_is_assigned_again_in_it() -> None:
    flow = af.Flow("times")
    most = begun(flow).key_by(same).reduce(max, name="most")
    end(most.event_time(same, name="again"), "out")

    plan = plan_fragments(flow.graph)

    assert plan.fragments[1].cuts_at == frozenset()


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (None, False),
        (triggers.EventTime(early=triggers.Count(3)), False),
        (triggers.Purging(triggers.Count(3)), False),
        (triggers.Purging(triggers.ContinuousEventTime(MINUTE)), True),
        (triggers.EventTime(early=triggers.ContinuousEventTime(MINUTE)), True),
        (triggers.EventTime(late=triggers.ContinuousEventTime(MINUTE)), True),
    ],
)
def test_windows_get_each_watermark_if_their_trigger_registers_timers(
    trigger: af.triggers.Trigger[Any] | None, expected: bool
) -> None:
    flow = af.Flow("moments")
    windows = begun(flow).key_by(same).window(af.Tumbling(MINUTE), trigger=trigger)
    end(windows.reduce(max, name="most"), "out")

    plan = plan_fragments(flow.graph)

    assert plan.fragments[1].watermark_per_timestamp is expected


@pytest.mark.parametrize(("step", "expected"), [(Pass, True), (Ask, True), (None, False)])
def test_functions_with_timers_get_each_watermark(step: type[Any] | None, expected: bool) -> None:
    flow = af.Flow("moments")
    keyed = begun(flow).key_by(same)
    if step is Pass:
        end(keyed.process(Pass(), name="step"), "out")
    elif step is Ask:
        end(keyed.process_async(Ask(), name="step"), "out")
    else:
        end(keyed.top(3, by=same, name="step"), "out")

    plan = plan_fragments(flow.graph)

    assert plan.fragments[1].watermark_per_timestamp is expected


@pytest.mark.asyncio
@pytest.mark.parametrize("block", [1, 2, 3, 100])
async def test_a_record_at_the_very_end_of_a_session_belongs_to_it_in_blocks_of_any_size(
    block: int,
) -> None:
    flow = af.Flow("sessions")
    keyed = begun(flow).key_by(lambda number: 0)
    end(keyed.sessions(timedelta(milliseconds=10), name="sessions"), "out")

    done = await backfill_locally(
        flow, {"numbers": [0, 10, 20, 31, 41, 60]}, parallelism=1, block=block
    )

    found = [session.value for session in done.results["out"]]
    assert found == [[0, 10, 20], [31, 41], [60]]


# -------------------------------------------------------------------------------------------------- refused


def test_an_incomplete_flow_is_refused() -> None:
    flow = af.Flow("loose")
    begun(flow).map(same, name="map")

    with pytest.raises(FlowDefinitionError, match="has no sink"):
        plan_fragments(flow.graph)


def test_a_flow_that_cannot_run_over_history_is_refused_first() -> None:
    flow = af.Flow("arrival")
    end(flow.source([1]).ingestion_time(name="now"), "out")

    with pytest.raises(FlowDefinitionError, match="step 'now'"):
        plan_fragments(flow.graph)


# --------------------------------------------------------------------------------------------------- any flow


@given(flows())
def test_every_step_is_in_a_fragment_and_nothing_else_is(flow: af.Flow) -> None:
    plan = plan_fragments(flow.graph)

    inside = {node.id for one in plan.fragments for node in one.nodes}
    assert inside == {node.id for node in flow.graph if node.kind is not Kind.SINK}


@given(flows())
def test_fragments_begin_with_their_only_head_and_steps_follow_their_inputs(
    flow: af.Flow,
) -> None:
    plan = plan_fragments(flow.graph)

    for index, one in enumerate(plan.fragments):
        assert one.index == index
        assert [is_head(node) for node in one.nodes] == [True] + [False] * (len(one.nodes) - 1)
        assert one.keyed is (one.head.source is None)
        before = {one.head.id}
        for node in one.nodes[1:]:
            origins = {edge.origin.id for edge in node.inputs}
            assert origins & before, "a step is here since one of its inputs is"
            assert not (origins - before) & {each.id for each in one.nodes}
            before.add(node.id)


@given(flows())
def test_each_way_out_of_a_step_is_an_exit_of_each_of_its_copies(flow: af.Flow) -> None:
    plan = plan_fragments(flow.graph)

    copies = Counter(node.id for one in plan.fragments for node in one.nodes)
    heads = {one.head.id: one.index for one in plan.fragments}
    expected: Counter[tuple[Any, ...]] = Counter()
    for node in flow.graph:
        for number, edge in enumerate(node.inputs):
            times = copies[edge.origin.id]
            if node.kind is Kind.SINK:
                expected[edge.origin.id, edge.side, node.id, None, 0] += times
            elif isinstance(edge.partitioning, HashByKey):
                expected[edge.origin.id, edge.side, None, heads[node.id], number] += times
    ways_out = [(one, exit) for one in plan.fragments for exit in one.exits]
    found = Counter(
        (exit.origin.id, exit.side, exit.sink and exit.sink.id, exit.reader, exit.input)
        for _, exit in ways_out
    )
    assert found == expected
    assert all(any(exit.origin is node for node in one.nodes) for one, exit in ways_out)
    assert [exit.number for _, exit in ways_out] == list(range(len(ways_out)))


@given(flows())
def test_each_fragment_follows_its_upstream_fragments(flow: af.Flow) -> None:
    plan = plan_fragments(flow.graph)

    for one in plan.fragments:
        inputs_of = plan.inputs_of(one)
        assert bool(inputs_of) is one.keyed
        assert all(other.index < one.index for other, _ in inputs_of)


@pytest.mark.parametrize("groups", [0, -1, "x", True], ids=repr)
def test_a_number_of_key_groups_that_is_none_is_refused(groups: Any) -> None:
    with pytest.raises(af.FlowDefinitionError, match="key_groups must be a whole number from 1 on"):
        plan_fragments(af.Flow("any").graph, key_groups=groups)
