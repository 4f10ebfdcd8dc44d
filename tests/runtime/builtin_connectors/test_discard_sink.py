"""A sink that drops all records."""

from __future__ import annotations

import aflow as af
from aflow.graph.guarantee import Guarantee, RecoveryMode, after_crash
from aflow.testing import run_flow


def test_records_are_dropped_and_counted() -> None:
    flow = af.Flow("dropped")
    flow.source(["a", "b", "c"], name="words").to(af.DiscardSink(), name="out")

    result = run_flow(flow)

    assert result.metrics.steps["out"].records_in == 3


def test_a_restart_changes_nothing_that_is_visible() -> None:
    flow = af.Flow("dropped")
    flow.source([1], name="numbers").to(af.DiscardSink(), name="out")

    (entry,) = after_crash(flow.plan(), RecoveryMode.EXACTLY_ONCE)
    assert entry.guarantee is Guarantee.EFFECTIVELY_ONCE
