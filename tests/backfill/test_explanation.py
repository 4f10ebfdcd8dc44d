"""Explanation of a plan as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import aflow as af
from aflow.backfill.explanation import explain
from aflow.backfill.fragment_planner import plan_fragments
from aflow.model.time import to_timestamp
from tests.backfill.any_flow import flows

JULY = to_timestamp(datetime(2013, 7, 1, tzinfo=UTC), what="until")
BAD = af.Tag[Any]("bad")


class Dormant(af.CoProcess[Any, Any, int, int]):
    def process_left(self, value: Any, ctx: af.Context[Any]) -> Iterable[int]:
        return (1,)

    def process_right(self, value: int, ctx: af.Context[Any]) -> Iterable[int]:
        return (value,)


async def score(value: int) -> int:
    return value


def same(value: Any) -> Any:
    return value


def end(stream: af.Stream[Any], name: str) -> None:
    stream.to(af.CollectSink[Any](), name=name)


def totals() -> af.Flow:
    """Two sources, a union, calls with dead letters, a window, and a step that reads its results and the records."""
    flow = af.Flow("card-totals")
    payments = flow.source([1], name="payments")
    end(payments, "archive")
    refunds = flow.source([1], name="refunds").event_time(same, name="refunded")
    both = payments.event_time(same, name="paid").union(refunds, name="both")
    scored = both.map_async(score, name="score", on_error=af.calls.DeadLetter(BAD))
    end(scored.side(BAD), "failed")
    cards = scored.key_by(same, name="card")
    sums = cards.window(af.Tumbling(timedelta(minutes=5))).reduce(max, name="per-card")
    end(sums, "totals")
    again = sums.key_by(same, name="again").connect(cards).process(Dormant(), name="dormant")
    end(again, "silent")
    return flow


def test_the_whole_of_a_plan_is_drawn() -> None:
    plan = plan_fragments(totals().graph)

    drawn = explain(plan, until=JULY)

    assert drawn == (
        """\
flow 'card-totals' over history up to 2013-07-01T00:00:00.000+00:00: 4 fragments, 5 keyed exchanges, 128 key groups

fragment 0: the rows given for source 'payments', in any order
  payments  source
  ├─ paid  event_time · cut: leaves records at 2013-07-01T00:00:00.000+00:00 and later to the live job
  │  └─ both  union · a copy from here on, others in fragment 1
  │     └─ score  map_async ordered, 100 at once, failures to 'bad'
  │        ├─ card  key_by
  │        │  ├─ → fragment 2 (per-card), by key
  │        │  └─ → fragment 3 (dormant) as its right input, by key
  │        └─ → sink failed ← side output 'bad'
  └─ → sink archive

fragment 1: the rows given for source 'refunds', in any order
  refunds  source
  └─ refunded  event_time · cut: leaves records at 2013-07-01T00:00:00.000+00:00 and later to the live job
     └─ both  union · a copy from here on, others in fragment 0
        └─ score  map_async ordered, 100 at once, failures to 'bad'
           ├─ card  key_by
           │  ├─ → fragment 2 (per-card), by key
           │  └─ → fragment 3 (dormant) as its right input, by key
           └─ → sink failed ← side output 'bad'

fragment 2: by key, in the order of event time
  reads card of fragment 0
  reads card of fragment 1
  per-card  window.reduce Tumbling(5m)
  ├─ again  key_by
  │  └─ → fragment 3 (dormant) as its left input, by key
  └─ → sink totals

fragment 3: by key, in the order of event time
  reads card of fragment 0, as its right input
  reads card of fragment 1, as its right input
  reads again of fragment 2, as its left input
  dormant  connect.process · sees time pass from each timestamp to the next
  └─ → sink silent

written, from one pass
  sink archive: payments (all rows of source 'payments': it has no event time to be cut at)
  sink failed: score, side output 'bad'
  sink totals: per-card
  sink silent: dormant
  state as it is at 2013-07-01T00:00:00.000+00:00: per-card, dormant
"""
    )


def test_without_an_end_nothing_is_cut_and_no_state_is_kept() -> None:
    drawn = explain(plan_fragments(totals().graph))

    assert drawn.startswith("flow 'card-totals' over history to its end: ")
    assert "plan_fragments" not in drawn
    assert "  sink archive: payments\n" in drawn
    assert drawn.endswith(
        "  state: not kept, since no end of the history was given for a live job to start from\n"
    )


def test_a_flow_without_keyed_steps_keeps_no_state() -> None:
    flow = af.Flow("plain")
    end(flow.source([1]).map(same), "out")

    drawn = explain(plan_fragments(flow.graph), until=JULY)

    assert drawn.startswith(
        "flow 'plain' over history up to 2013-07-01T00:00:00.000+00:00: 1 fragment, 0 keyed exchanges, "
    )
    assert drawn.endswith("  state: none, since no step keeps any\n")


def test_a_step_with_several_inputs_is_drawn_once_and_then_named() -> None:
    flow = af.Flow("diamond")
    numbers = flow.source([1], name="numbers")
    halves = (numbers.map(same, name="left"), numbers.map(same, name="right"))
    end(halves[0].union(halves[1], name="both"), "out")

    drawn = explain(plan_fragments(flow.graph))

    assert (
        """\
  numbers  source
  ├─ left  map
  │  └─ both  union
  │     └─ → sink out
  └─ right  map
     └─ both  as above
"""
        in drawn
    )


def test_only_records_that_have_no_event_time_are_said_to_be_uncut() -> None:
    flow = af.Flow("half")
    timed = flow.source([1], name="timed").event_time(same)
    end(timed.union(flow.source([1], name="timeless"), name="both"), "out")

    drawn = explain(plan_fragments(flow.graph), until=JULY)

    assert (
        "  sink out: both, both (all rows of source 'timeless': it has no event time to be cut at)\n"
        in drawn
    )


def test_a_chain_longer_than_python_recurses_is_drawn() -> None:
    flow = af.Flow("long")
    stream: af.Stream[int] = flow.source([1])
    for _ in range(1_200):
        stream = stream.map(same)
    end(stream, "out")

    drawn = explain(plan_fragments(flow.graph))

    assert drawn.count("─ map #") == 1_200


@given(flows(), st.none() | st.just(JULY))
def test_each_step_sink_and_exchange_of_any_flow_is_shown(flow: af.Flow, until: int | None) -> None:
    plan = plan_fragments(flow.graph)

    drawn = explain(plan, until=until)

    for node in flow.graph:
        assert node.name in drawn
    exchanges = sum(exit.reader is not None for one in plan.fragments for exit in one.exits)
    assert drawn.count("─ → fragment ") == exchanges
    assert drawn == explain(plan, until=until)
