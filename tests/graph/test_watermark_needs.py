"""Needs for watermarks between records, from the steps that apply them up to where event time begins."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.graph.nodes import Node
from aflow.graph.plan import make_plan
from aflow.operators.event_time import EventTimeOperator
from tests.backfill.items import Item, at_of
from tests.runtime.batch_cases import SoonAfter

MINUTE = timedelta(minutes=1)


class Silent(af.KeyedProcess[int, Any, object]):
    def process(self, value: Any, ctx: af.Context[int]) -> Iterable[object]:
        return [value]


async def asked(item: Item) -> Item:
    return item


def planned(flow: af.Flow) -> dict[str, Node]:
    return {node.name: node for task in make_plan(flow.graph).tasks for node in task.nodes}


def sends(node: Node) -> bool:
    assert node.operator is not None
    operator = node.operator()
    assert isinstance(operator, EventTimeOperator)
    return operator.sends_met


def timed(flow: af.Flow) -> af.Stream[Item]:
    return flow.source(list[Item](), name="items").event_time(at_of, name="time")


def keyed(items: af.Stream[Item]) -> af.KeyedStream[int, Item]:
    return items.key_by(lambda item: item.key, name="key")


def test_windows_and_stateless_steps_need_none() -> None:
    flow = af.Flow("windows")
    items = timed(flow).map_async(asked, name="asked")
    keyed(items).window(af.Tumbling(MINUTE)).apply(len, name="windows").to(af.CollectSink())

    nodes = planned(flow)

    assert not sends(nodes["time"])
    assert not any(node.divides or node.fires_in_order or node.delay for node in nodes.values())


def test_a_step_with_timers_gets_them_through_all_steps_upstream() -> None:
    flow = af.Flow("timers")
    items = timed(flow).map(lambda item: item, name="map").map_async(asked, name="asked")
    keyed(items).process(Silent(), name="timers").to(af.CollectSink(), name="out")

    nodes = planned(flow)

    assert sends(nodes["time"])
    assert [name for name, node in nodes.items() if node.divides] == ["asked"]


def test_windows_upstream_of_timers_need_none_and_say_in_which_order_they_fire() -> None:
    flow = af.Flow("windows")
    windows = keyed(timed(flow)).window(af.Tumbling(MINUTE)).apply(len, name="windows")
    windows.key_by(lambda one: one.key).process(Silent(), name="timers").to(af.CollectSink())

    nodes = planned(flow)

    assert not sends(nodes["time"])
    assert [name for name, node in nodes.items() if node.fires_in_order] == ["windows"]


@pytest.mark.parametrize(
    ("windows", "trigger", "divides", "delay"),
    [
        (af.Tumbling(MINUTE), SoonAfter(), True, 0),
        (af.Tumbling(MINUTE), af.triggers.Purging(SoonAfter()), True, 0),
        (af.Tumbling(MINUTE), af.triggers.EventTime(early=SoonAfter()), True, 0),
        (af.Tumbling(MINUTE), af.triggers.Count(3), False, 0),
        (af.Session(MINUTE), None, False, 1),
        (af.Session(MINUTE), af.triggers.ContinuousEventTime(MINUTE), True, 1),
    ],
    ids=str,
)
def test_triggers_with_timers_of_their_own_divide_batches(
    windows: af.Tumbling | af.Session,
    trigger: af.triggers.Trigger[Item] | None,
    divides: bool,
    delay: int,
) -> None:
    flow = af.Flow("triggers")
    keyed(timed(flow)).window(windows, trigger=trigger).apply(len, name="windows").to(
        af.CollectSink()
    )

    nodes = planned(flow)

    assert (nodes["windows"].divides, nodes["windows"].delay) == (divides, delay)
    assert sends(nodes["time"]) is divides


def test_needs_end_where_event_time_begins_again() -> None:
    flow = af.Flow("again")
    again = timed(flow).map(lambda item: item).event_time(at_of, name="again")
    keyed(again).process(Silent(), name="timers").to(af.CollectSink(), name="out")

    nodes = planned(flow)

    assert (sends(nodes["time"]), sends(nodes["again"])) == (False, True)
