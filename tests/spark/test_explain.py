"""The plan of a backfill, explained without Spark."""

from __future__ import annotations

from datetime import timedelta

import pytest

import aflow as af
from aflow.errors import FlowDefinitionError
from aflow_connectors.spark import explain


def build(bids: af.Source[int], counts: af.Sink[af.Windowed[int, int]]) -> af.Flow:
    flow = af.Flow("bids")
    clock = af.Tumbling(timedelta(seconds=1), domain=af.TimeDomain.PROCESSING)
    keyed = flow.source(bids, name="bids").event_time(lambda bid: bid).key_by(lambda bid: bid % 7)
    keyed.window(clock).fold(int, lambda count, _: count + 1, name="count").to(
        counts, name="counts"
    )
    return flow


def test_the_option_that_a_refused_window_asks_for_is_one_of_explain() -> None:
    with pytest.raises(FlowDefinitionError, match="event_time_for_processing_time=True"):
        explain(build, sources={"bids": None}, sinks={"counts": None}, until=5_000)

    told = explain(
        build,
        sources={"bids": None},
        sinks={"counts": None},
        until=5_000,
        event_time_for_processing_time=True,
    )

    assert "count  window.fold Tumbling(1s" in told
    assert "→ sink counts" in told


def test_an_end_that_the_flow_has_not_is_named() -> None:
    with pytest.raises(FlowDefinitionError, match="sink 'counts' of the flow is not in sinks"):
        explain(
            build,
            sources={"bids": None},
            sinks={"sums": None},
            event_time_for_processing_time=True,
        )
