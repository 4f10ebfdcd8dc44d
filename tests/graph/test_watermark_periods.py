"""Periods of triggers, as passed to the steps where event time begins."""

from __future__ import annotations

from datetime import timedelta

import aflow as af
from aflow.graph.plan import make_plan
from aflow.operators.event_time import EventTimeOperator


def continuous(milliseconds: int) -> af.triggers.Trigger[object]:
    return af.triggers.ContinuousEventTime(timedelta(milliseconds=milliseconds))


def periods(flow: af.Flow) -> dict[str, tuple[int, ...]]:
    """Return the periods of each step where event time begins, by name."""
    found: dict[str, tuple[int, ...]] = {}
    for task in make_plan(flow.graph).tasks:
        for node in task.nodes:
            operator = None if node.operator is None else node.operator()
            if isinstance(operator, EventTimeOperator):
                found[node.name] = operator.periods
    return found


MINUTE = timedelta(minutes=1)


def test_event_time_has_the_periods_of_all_downstream_triggers() -> None:
    flow = af.Flow("periods")
    timed = flow.source([1]).event_time(lambda n: n, name="time").key_by(lambda n: n)
    first = timed.window(af.Tumbling(MINUTE), trigger=continuous(20)).apply(len, name="first")
    early = af.triggers.EventTime(early=continuous(5))
    behind = first.key_by(lambda one: one.key).window(af.Tumbling(MINUTE), trigger=early)
    behind.apply(len, name="behind").to(af.CollectSink())
    timed.window(af.Tumbling(MINUTE)).apply(len, name="plain").to(af.CollectSink(), name="out")

    assert periods(flow) == {"time": (5, 20)}


def test_periods_end_where_event_time_begins_again() -> None:
    flow = af.Flow("periods")
    first = flow.source([1]).event_time(lambda n: n, name="first")
    again = first.map(lambda n: n + 1).event_time(lambda n: n, name="again")
    windows = again.key_by(lambda n: n).window(af.Tumbling(MINUTE), trigger=continuous(20))
    windows.apply(len, name="windows").to(af.CollectSink())

    assert periods(flow) == {"first": (), "again": (20,)}


def test_both_inputs_of_a_join_have_the_period_of_its_trigger() -> None:
    flow = af.Flow("periods")
    left = flow.source([1], name="lefts").event_time(lambda n: n, name="left")
    right = flow.source([1], name="rights").event_time(lambda n: n, name="right")
    joined = left.key_by(lambda n: n).co_group(
        right.key_by(lambda n: n),
        af.Tumbling(MINUTE),
        into=lambda some, others: len(some) + len(others),
        name="joined",
        trigger=continuous(20),
    )
    joined.to(af.CollectSink())

    assert periods(flow) == {"left": (20,), "right": (20,)}
