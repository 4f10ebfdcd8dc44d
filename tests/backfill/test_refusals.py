"""Flows that cannot run over history are refused before anything runs: by step, with all reasons at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

import aflow as af
from aflow import triggers
from aflow.backfill.refusals import refuse_unsupported
from aflow.errors import FlowDefinitionError
from aflow.graph.nodes import Edge
from aflow.operators.stateless import PassThroughOperator
from tests.backfill.any_flow import flows

MINUTE = timedelta(minutes=1)
BY_CLOCK = af.TimeDomain.PROCESSING


class Obey(af.BroadcastProcess[Any, int, int, int]):
    def process(self, value: int, ctx: af.BroadcastContext[Any]) -> Iterable[int]:
        return (value,)

    def process_broadcast(self, value: int, ctx: af.ControlContext) -> Iterable[int]:
        return ()


class Meet(af.CoProcess[int, int, int, int]):
    def process_left(self, value: int, ctx: af.Context[int]) -> Iterable[int]:
        return (value,)

    def process_right(self, value: int, ctx: af.Context[int]) -> Iterable[int]:
        return (value,)


class EveryOther(af.triggers.Trigger[Any]):
    """A user's trigger, whose behaviour is unknown."""

    def on_element(
        self, value: Any, timestamp: int, window: af.TimeWindow, ctx: triggers.TriggerContext
    ) -> triggers.TriggerResult:
        return triggers.TriggerResult.CONTINUE


def same(value: Any) -> Any:
    return value


def timed(flow: af.Flow, name: str = "numbers") -> af.Stream[int]:
    return flow.source([1], name=name).event_time(same, name=f"time of {name}")


def end(stream: af.Stream[Any]) -> None:
    stream.to(af.CollectSink[Any]())


def reason(flow: af.Flow) -> str:
    """Reason of the refusal."""
    with pytest.raises(FlowDefinitionError) as refused:
        refuse_unsupported(flow.graph)
    return str(refused.value)


@pytest.mark.parametrize(
    "windows",
    [
        af.Tumbling(MINUTE, domain=BY_CLOCK),
        af.Sliding(MINUTE, MINUTE / 2, domain=BY_CLOCK),
        af.Session(MINUTE, domain=BY_CLOCK),
        af.windows.DynamicSession[Any](lambda value: MINUTE, domain=BY_CLOCK),
    ],
)
def test_windows_of_processing_time_are_refused(windows: Any) -> None:
    flow = af.Flow("clock")
    end(timed(flow).key_by(same).window(windows).reduce(max, name="most"))

    said = reason(flow)

    assert said.startswith(
        "flow 'clock' cannot run over history: step 'most' (window.reduce) has windows of processing time"
    )
    assert said.endswith(
        "use windows of event time, or have these fire in event time over history: "
        "event_time_for_processing_time=True"
    )


@pytest.mark.parametrize("what", ["window_join", "co_group"])
def test_joins_in_windows_of_processing_time_are_refused(what: str) -> None:
    flow = af.Flow("clock")
    left, right = timed(flow, "a").key_by(same), timed(flow, "b").key_by(same)
    windows = af.Tumbling(MINUTE, domain=BY_CLOCK)
    if what == "window_join":
        end(left.window_join(right, windows).inner(max, name="join"))
    else:
        end(left.co_group(right, windows, into=lambda a, b: len(a + b), name="join"))

    assert f"step 'join' ({what}) has windows of processing time" in reason(flow)


@pytest.mark.parametrize(
    ("trigger", "name"),
    [
        (triggers.ProcessingTime(), "ProcessingTime"),
        (triggers.ContinuousProcessingTime(MINUTE), "ContinuousProcessingTime"),
        (triggers.Purging(triggers.ContinuousProcessingTime(MINUTE)), "ContinuousProcessingTime"),
        (
            triggers.EventTime(late=triggers.Purging(triggers.ContinuousProcessingTime(MINUTE))),
            "ContinuousProcessingTime",
        ),
    ],
)
def test_triggers_that_wait_for_the_clock_are_refused_wherever_they_are(
    trigger: af.triggers.Trigger[Any], name: str
) -> None:
    flow = af.Flow("clock")
    end(timed(flow).key_by(same).window(af.Global(), trigger=trigger).reduce(max, name="most"))

    assert f"step 'most' (window.reduce) has trigger {name}, which waits for the clock" in reason(
        flow
    )


@pytest.mark.parametrize(
    "trigger",
    [
        triggers.Count(3),
        triggers.Never(),
        triggers.ContinuousEventTime(MINUTE),
        triggers.EventTime(early=triggers.Purging(triggers.Count(3))),
        EveryOther(),
    ],
)
def test_other_triggers_are_not(trigger: af.triggers.Trigger[Any]) -> None:
    flow = af.Flow("fine")
    windows = timed(flow).key_by(same).window(af.Tumbling(MINUTE), trigger=trigger)
    end(windows.reduce(max, name="most"))

    refuse_unsupported(flow.graph)


def test_ingestion_time_is_refused() -> None:
    flow = af.Flow("arrival")
    end(flow.source([1]).ingestion_time(name="now"))

    said = reason(flow)

    assert "step 'now' (ingestion_time) takes the moment of arrival for event time" in said
    assert said.endswith("give records their own time with .event_time(…)")


@pytest.mark.parametrize("keyed", [True, False])
def test_a_live_control_stream_is_refused(keyed: bool) -> None:
    flow = af.Flow("control")
    numbers, rules = timed(flow), flow.source([1], name="rules")
    if keyed:
        end(numbers.key_by(same).connect_broadcast(rules).process(Obey(), name="obey"))
    else:
        end(numbers.connect_broadcast(rules).process(Obey(), name="obey"))

    said = reason(flow)

    assert "step 'obey' (connect_broadcast.process) reads a live control stream" in said
    assert ".as_of_join(…)" in said


def test_a_broadcast_is_refused_since_copies_are_counted_by_subtasks() -> None:
    flow = af.Flow("copies")
    end(timed(flow).broadcast(2).map(same))

    assert "step 'broadcast #1' (broadcast) gives every record to every subtask" in reason(flow)


@pytest.mark.parametrize("step", ["reduce", "process", "window", "top", "map_async"])
def test_keyed_steps_without_event_time_are_refused(step: str) -> None:
    flow = af.Flow("arrival")
    keyed = flow.source([1]).key_by(same)

    async def answer(value: int) -> int:
        return value

    class Pass(af.KeyedProcess[int, int, int]):
        def process(self, value: int, ctx: af.Context[int]) -> Iterable[int]:
            return (value,)

    made: dict[str, Any] = {
        "reduce": lambda: keyed.reduce(max, name="step"),
        "process": lambda: keyed.process(Pass(), name="step"),
        "window": lambda: keyed.window(af.Count(3)).reduce(max, name="step"),
        "top": lambda: keyed.top(3, by=same, name="step"),
        "map_async": lambda: keyed.map_async(answer, name="step"),
    }
    end(made[step]())

    said = reason(flow)

    assert "step 'step' (" in said
    assert "goes by the order of arrival, since its stream has no event time" in said
    assert said.endswith("call .event_time(…) before .key_by(…)")


@pytest.mark.parametrize(
    ("left", "right", "lacks"),
    [
        (True, False, "its right stream has"),
        (False, True, "its left stream has"),
        (False, False, "its streams have"),
    ],
)
def test_of_two_streams_that_without_event_time_is_named(
    left: bool, right: bool, lacks: str
) -> None:
    flow = af.Flow("arrival")
    streams = [
        timed(flow, name) if has else flow.source([1], name=name)
        for name, has in (("a", left), ("b", right))
    ]
    end(streams[0].key_by(same).connect(streams[1].key_by(same)).process(Meet(), name="meet"))

    assert f"step 'meet' (connect.process) goes by the order of arrival, since {lacks} no" in (
        reason(flow)
    )


def test_a_union_of_which_one_stream_has_no_event_time_has_none() -> None:
    flow = af.Flow("half")
    both = timed(flow, "a").union(flow.source([1], name="b"))
    end(both.key_by(same).reduce(max, name="most"))

    assert "step 'most' (reduce) goes by the order of arrival" in reason(flow)


def test_event_time_after_such_a_union_is_accepted() -> None:
    flow = af.Flow("whole")
    both = timed(flow, "a").union(flow.source([1], name="b")).event_time(same)
    end(both.key_by(same).reduce(max, name="most"))

    refuse_unsupported(flow.graph)


def test_steps_without_state_need_no_event_time() -> None:
    flow = af.Flow("plain")
    end(flow.source([1]).map(same).rebalance(2).filter(same))

    refuse_unsupported(flow.graph)


def test_state_without_keys_is_refused() -> None:
    flow = af.Flow("state")
    numbers = timed(flow)
    edge = numbers.step_input.edge
    node = flow.graph.add_step("count", "count", (edge,), PassThroughOperator, stateful=True)
    flow.graph.add_sink(af.CollectSink[Any](), None, Edge(node))

    assert "step 'count' (count) keeps state that does not belong to keys" in reason(flow)


def test_two_streams_without_keys_are_refused() -> None:
    flow = af.Flow("zip")
    edges = (timed(flow, "a").step_input.edge, timed(flow, "b").step_input.edge)
    node = flow.graph.add_step("zip", "zip", edges, PassThroughOperator)
    flow.graph.add_sink(af.CollectSink[Any](), None, Edge(node))

    assert "step 'zip' (zip) reads two streams without keys" in reason(flow)


def test_all_reasons_are_in_one_error_each_on_its_line() -> None:
    flow = af.Flow("all of it")
    numbers = timed(flow)
    end(flow.source([1], name="others").ingestion_time(name="now"))
    end(numbers.key_by(same).window(af.Tumbling(MINUTE, domain=BY_CLOCK)).reduce(max, name="most"))
    end(flow.source([1], name="timeless").key_by(same).reduce(max, name="least"))

    lines = reason(flow).split("\n")

    assert lines[0] == "flow 'all of it' cannot run over history, for 3 reasons:"
    assert [line.split(" (")[0] for line in lines[1:]] == [
        "  step 'now'",
        "  step 'most'",
        "  step 'least'",
    ]


@given(flows())
def test_flows_of_steps_that_can_run_over_history_are_not_refused(flow: af.Flow) -> None:
    refuse_unsupported(flow.graph)
