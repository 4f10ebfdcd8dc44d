"""A source that falls silent does not hold back the watermark of a stream of micro-batches, if its flow says so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.backfill.epoch_time import EpochTime, SourceActivity
from aflow.backfill.fragment_planner import plan_fragments
from aflow.errors import FlowDefinitionError
from aflow.model.time import MIN_TIMESTAMP
from tests.backfill.items import millis

TWO = EpochTime({"left": 1, "right": 1}, idle_after={"right": 50})


def flow_of(*, advance_when_idle: bool = False) -> af.Flow:
    flow = af.Flow("two")
    left = flow.source([1], name="a").event_time(lambda n: n, name="left", max_delay=millis(10))
    right = flow.source([1], name="b").event_time(
        lambda n: n,
        name="right",
        idle_after=timedelta(seconds=5),
        advance_when_idle=advance_when_idle,
    )
    left.union(right).to(af.CollectSink[int](), name="out")
    return flow


def test_the_rule_of_a_flow_has_the_times_of_its_steps() -> None:
    time = EpochTime.of(plan_fragments(flow_of().graph))

    assert time.lags == {"left": 11, "right": 1}
    assert time.idle_after == {"right": 5000}


def test_time_that_advances_by_a_clock_is_refused() -> None:
    plan = plan_fragments(flow_of(advance_when_idle=True).graph)

    with pytest.raises(FlowDefinitionError, match=r"step 'right' .* has advance_when_idle=True"):
        EpochTime.of(plan)


def test_a_step_is_idle_without_records_for_its_time_and_active_with_the_next_one() -> None:
    activity = SourceActivity(TWO, now=1000)

    assert not activity.idle(1049)
    assert activity.idle(1050) == {"right"}

    activity.observe(["left"], 1060)
    assert activity.idle(1060) == {"right"}

    activity.observe(["right"], 1070)
    assert not activity.idle(1119)
    assert activity.idle(1120) == {"right"}


def test_an_idle_step_does_not_hold_back_the_others_and_time_stands_still_if_all_are_idle() -> None:
    earned = {"left": 300, "right": 100}

    assert TWO.after(90, earned) == 100
    assert TWO.after(90, earned, {"right"}) == 300
    assert TWO.after(90, {"left": 300}) == 90
    assert TWO.after(MIN_TIMESTAMP, {"left": 300}, {"right"}) == 300
    assert TWO.after(90, earned, {"left", "right"}) == 90


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["left", "right", "none"]), st.integers(0, 500)),
            st.integers(0, 80),
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_the_watermark_never_goes_back_and_stays_behind_the_active_sources(
    epochs: list[tuple[dict[str, int], int]],
) -> None:
    activity, now = SourceActivity(TWO, 0), 0
    watermark, earned = MIN_TIMESTAMP, dict[str, int]()
    newest, arrived = dict[str, int](), {"left": 0, "right": 0}
    for batch, wait in epochs:
        now += wait
        idle = activity.idle(now)
        after = TWO.after(watermark, earned, idle)

        silent = {"right"} if now - arrived["right"] >= 50 else set[str]()
        assert idle == silent
        active = {"left", "right"} - silent
        slowest = min(newest[one] - 1 if one in newest else MIN_TIMESTAMP for one in active)
        assert after == max(watermark, slowest)

        watermark, earned = after, TWO.earned(earned, batch)
        activity.observe(batch, now)
        for step, at in batch.items():
            newest[step] = max(at, newest.get(step, 0))
            arrived[step] = now
