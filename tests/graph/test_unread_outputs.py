"""Plans show side outputs that no step reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.graph.plan_graph import to_mermaid, to_text
from aflow.model.time import TimeDomain

SECOND = timedelta(seconds=1)
LATE = "late records dropped"


class Split(af.ProcessFunction[int, int]):
    def process(self, value: int, ctx: af.ProcessContext) -> Iterable[int]:
        return [value]


def stream(flow: af.Flow) -> af.KeyedStream[int, int]:
    return flow.source([1]).event_time(lambda n: n).key_by(abs)


def line(flow: af.Flow, step: str) -> str:
    """The line of ``step`` in the drawn plan."""
    [found] = [one for one in to_text(flow.plan()).splitlines() if f"{step}  " in one]
    return found


def summed(windows: Any) -> tuple[af.Flow, Any]:
    flow = af.Flow("sums")
    sums = stream(flow).window(windows).reduce(lambda a, n: a + n, name="sum")
    sums.to(af.CollectSink())
    return flow, sums


@pytest.mark.parametrize(
    "windows",
    [af.Tumbling(SECOND), af.Sliding(3 * SECOND, SECOND), af.Session(SECOND)],
    ids=["tumbling", "sliding", "sessions"],
)
def test_plans_show_windows_of_event_time_whose_late_records_no_step_reads(windows: Any) -> None:
    flow, _ = summed(windows)

    assert line(flow, "sum").endswith(f" · keyed state · {LATE}")
    assert LATE in to_mermaid(flow.plan())


def test_plans_do_not_show_windows_whose_late_records_are_read() -> None:
    flow, sums = summed(af.Tumbling(SECOND))
    sums.late.to(af.CollectSink())

    assert line(flow, "sum").endswith(" · keyed state")
    assert LATE not in to_mermaid(flow.plan())


@pytest.mark.parametrize(
    "windows",
    [af.Tumbling(SECOND, domain=TimeDomain.PROCESSING), af.Count(3)],
    ids=["processing time", "count"],
)
def test_windows_for_which_no_record_is_late_do_not_say_so(windows: Any) -> None:
    flow, _ = summed(windows)

    assert LATE not in to_text(flow.plan())


@pytest.mark.parametrize("read", ["left", "right", "none"])
def test_a_join_says_which_of_its_inputs_loses_late_records(read: str) -> None:
    flow = af.Flow("join")
    joined = (
        stream(flow)
        .interval_join(stream(flow), between=(-SECOND, SECOND))
        .inner(lambda a, b: a + b, name="pairs")
    )
    joined.to(af.CollectSink())
    if read != "none":
        {"left": joined.late_left, "right": joined.late_right}[read].to(af.CollectSink())

    said = line(flow, "pairs")

    assert ("late left records dropped" in said) is (read != "left")
    assert ("late right records dropped" in said) is (read != "right")


def test_a_process_function_of_which_no_side_output_is_read_says_so() -> None:
    flow = af.Flow("split")
    flow.source([1]).process(Split(), name="split").to(af.CollectSink())

    assert line(flow, "split").endswith("  process · no side output read")


def test_a_process_function_of_which_a_side_output_is_read_does_not_say_so() -> None:
    flow = af.Flow("split")
    done = flow.source([1]).process(Split(), name="split")
    done.to(af.CollectSink())
    done.side(af.Tag[int]("odd")).to(af.CollectSink())

    assert line(flow, "split").endswith("  process")


def test_a_side_output_that_a_step_in_another_task_reads_is_read() -> None:
    flow, sums = summed(af.Tumbling(SECOND))
    sums.late.rebalance(2).to(af.CollectSink())

    assert LATE not in to_text(flow.plan(parallelism=2))
