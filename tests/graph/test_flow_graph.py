"""Invalid pipelines; each message names the step and the remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from aflow import aggregates
from aflow.api.flow import Flow
from aflow.api.stream import Stream
from aflow.api.windowed import WindowedStream
from aflow.api.windows import Tumbling
from aflow.errors import FlowDefinitionError
from aflow.model.resource import Resource
from aflow.model.tags import Tag
from aflow.operators.context import Context, ProcessContext
from aflow.operators.keyed_function import KeyedProcess
from aflow.operators.process import ProcessFunction
from aflow.runtime.builtin_connectors import CollectSink, IterableSource, ThreadSource
from aflow.state.specs import ValueState

HOUR = timedelta(hours=1)


async def slow(value: int) -> int:
    return value


async def several(value: int) -> AsyncIterator[int]:
    yield value


class Awaited:
    async def __call__(self, value: int) -> int:
        return value


class Twice(ProcessFunction[int, int]):
    def process(self, value: int, ctx: ProcessContext) -> Iterable[int]:
        return [value, value]


class Count(KeyedProcess[int, int, int]):
    def process(self, value: int, ctx: Context[int]) -> Iterable[int]:
        return [1]


class AwaitedTwice(ProcessFunction[int, int]):
    async def process(self, value: int, ctx: ProcessContext) -> Iterable[int]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return [value]


class OneNameTwice(Count):
    first = ValueState("total", of=int)
    second = ValueState("total", of=str)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(FlowDefinitionError) as caught:
        act()
    return str(caught.value)


def untyped(value: object) -> Any:
    """``value`` for a call that a type checker would refuse."""
    return cast(Any, value)


def test_a_complete_flow_is_accepted() -> None:
    flow = Flow("complete")

    flow.source([1]).map(abs).to(CollectSink())

    assert [task.name for task in flow.plan().tasks] == ["source #1 → map #1 → to #1"]


@pytest.mark.parametrize("name", ["", "  ", None, 7], ids=["empty", "blank", "none", "number"])
def test_a_flow_needs_a_name(name: object) -> None:
    message = refusal(lambda: Flow(untyped(name)))

    assert repr(name) in message
    assert "Flow('orders')" in message


@pytest.mark.parametrize("name", ["", " ", 7], ids=["empty", "blank", "number"])
def test_a_step_has_a_real_name_or_none(name: object) -> None:
    stream = Flow("named").source([1])

    message = refusal(lambda: stream.map(abs, name=untyped(name)))

    assert f"non-empty string, not {name!r}" in message


def test_two_steps_of_one_name_are_refused_by_that_name() -> None:
    flow = Flow("orders")
    stream = flow.source([1], name="in").map(abs, name="parse")

    message = refusal(lambda: stream.filter(bool, name="parse"))

    assert "'orders'" in message
    assert "two steps named 'parse'" in message


def test_a_source_and_a_sink_share_one_set_of_names() -> None:
    stream = Flow("orders").source([1], name="orders")

    message = refusal(lambda: stream.to(CollectSink(), name="orders"))

    assert "two steps named 'orders'" in message


def test_a_made_up_name_makes_way_for_one_that_a_user_gave() -> None:
    flow = Flow("names")

    flow.source([1]).map(abs, name="map #2").map(abs).to(CollectSink())

    assert [node.name for node in flow.graph] == ["source #1", "map #2", "map #3", "to #1"]


def test_a_given_name_may_look_like_a_generated_one() -> None:
    flow = Flow("names")

    flow.source([1]).map(abs).map(abs, name="map-1").to(CollectSink(), name="map-2")

    assert [node.name for node in flow.graph] == ["source #1", "map #1", "map-1", "map-2"]


def test_a_given_name_that_was_generated_for_another_step_is_refused_with_the_remedy() -> None:
    stream = Flow("names").source([1]).map(abs)

    message = refusal(lambda: stream.map(abs, name="map #1"))

    assert "'map #1' was generated for a preceding step without a name" in message


def test_a_keyed_stream_without_a_keyed_step_is_refused_with_the_remedy() -> None:
    flow = Flow("dangling")
    stream = flow.source([1])
    stream.to(CollectSink())
    stream.key_by(abs, name="by size")

    message = refusal(flow.plan)

    assert "no step uses the keys of step 'by size'" in message
    assert "a keyed step such as .fold(" in message
    assert ".window(…).fold(…)" in message, "a window without a function adds no step"
    assert ".inner(…)" in message, "neither does a join"
    assert ".to(" not in message


@pytest.mark.parametrize("wrap", [iter, IterableSource, ThreadSource])
def test_an_iterator_that_another_source_reads_already_is_refused(
    wrap: Callable[[Any], Any],
) -> None:
    flow = Flow("twice")
    numbers = (n for n in range(3))
    flow.source(wrap(numbers), name="first")

    message = refusal(lambda: flow.source(wrap(numbers), name="second"))

    assert "source 'first' already reads" in message
    assert "union" in message or "several times" in message


def test_an_async_generator_that_another_source_reads_already_is_refused() -> None:
    flow = Flow("twice")
    numbers = several(1)
    flow.source(numbers, name="first")

    assert "source 'first' already reads" in refusal(lambda: flow.source(numbers))


def test_a_list_may_be_read_by_several_sources() -> None:
    flow, numbers = Flow("twice"), [1, 2]

    flow.source(numbers).union(flow.source(numbers)).to(CollectSink())

    assert len(flow.plan().tasks) == 3


class Dataless:
    """No type of values that a snapshot could store."""


STORING: dict[str, Callable[[Stream[int]], object]] = {
    "key_by": lambda stream: stream.key_by(abs, of=untyped(Dataless), name="step"),
    "fold": lambda stream: stream.key_by(abs).fold(int, max, name="step", of=untyped(Dataless)),
    "reduce": lambda stream: stream.key_by(abs).reduce(max, name="step", of=untyped(Dataless)),
    "window.fold": lambda stream: hourly(stream).fold(int, max, name="step", of=untyped(Dataless)),
    "window.reduce": lambda stream: hourly(stream).reduce(max, name="step", of=untyped(Dataless)),
    "window.aggregate": lambda stream: hourly(stream).aggregate(
        Sum(), name="step", of=untyped(Dataless)
    ),
}


def hourly(stream: Stream[int]) -> WindowedStream[int, int]:
    return stream.key_by(abs).window(Tumbling(HOUR))


@pytest.mark.parametrize("step", STORING.values(), ids=STORING)
def test_a_type_that_cannot_be_stored_is_refused_where_it_is_written(
    step: Callable[[Stream[int]], object],
) -> None:
    stream = Flow("types").source([1])

    message = refusal(lambda: step(stream))

    assert "step 'step'" in message
    assert "Dataless" in message


class Sum:
    def create(self) -> int:
        return 0

    def add(self, acc: int, value: int) -> int:
        return acc + value

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


class AwaitedSum(Sum):
    async def add(self, acc: int, value: int) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return acc + value


class Unmergeable(Sum):
    merge = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


@pytest.mark.parametrize(
    ("aggregate", "reason"),
    [
        (Sum, "an Aggregate object is needed, not its class; write Sum()"),
        (aggregates.count, "an Aggregate object is needed, not the function count; call one of"),
        (AwaitedSum(), "AwaitedSum.add must be a plain function"),
        (Unmergeable(), "Unmergeable.merge must be a function"),
    ],
    ids=["a class", "a function", "async", "without merge"],
)
def test_an_object_that_is_no_aggregate_is_refused_as_in_a_state(
    aggregate: object, reason: str
) -> None:
    windows = Flow("windows").source([1]).key_by(abs).window(Tumbling(HOUR))

    message = refusal(lambda: windows.aggregate(untyped(aggregate), name="sum"))

    assert "'sum'" in message
    assert reason in message


def test_a_step_that_keeps_state_must_be_named() -> None:
    keyed = Flow("stateful").source([1]).key_by(abs)
    name = untyped(None)

    messages = [
        refusal(lambda: keyed.process(Count(), name=name)),
        refusal(lambda: keyed.reduce(max, name=name)),
        refusal(lambda: keyed.window(Tumbling(HOUR)).reduce(max, name=name)),
    ]

    assert [message.partition(" keeps state")[0] for message in messages] == [
        "process()",
        "reduce()",
        "window.reduce()",
    ]
    assert all("name='…'" in message for message in messages)


def test_a_stream_that_no_step_reads_is_named() -> None:
    flow = Flow("dangling")
    stream = flow.source([1]).map(abs, name="parsed")
    stream.to(CollectSink())
    stream.filter(bool, name="forgotten")

    message = refusal(flow.plan)

    assert "'forgotten' (filter)" in message
    assert ".to(sink)" in message


def test_keys_that_no_step_uses_are_a_stream_that_no_step_reads() -> None:
    flow = Flow("dangling")
    stream = flow.source([1])
    stream.to(CollectSink())
    stream.key_by(abs, name="by size").window(Tumbling(HOUR))

    message = refusal(flow.plan)

    assert "'by size' (key_by)" in message


def test_a_flow_without_a_sink_is_refused() -> None:
    flow = Flow("orders")
    flow.source([1]).map(abs)

    message = refusal(flow.plan)

    assert "'orders' has no sink" in message
    assert ".to(sink)" in message


def test_a_flow_without_a_source_is_refused() -> None:
    message = refusal(Flow("orders").plan)

    assert "'orders' has no source" in message
    assert "flow.source(" in message


def test_an_incomplete_flow_is_refused_before_a_job_exists() -> None:
    flow = Flow("orders")

    assert "has no source" in refusal(flow.start)


def test_a_number_is_no_source() -> None:
    message = refusal(lambda: Flow("orders").source(untyped(7)))

    assert "not 7" in message


def test_a_string_is_no_source_although_it_can_be_iterated() -> None:
    message = refusal(lambda: Flow("orders").source("orders.jsonl"))

    assert "not 'orders.jsonl'" in message


def test_a_function_is_no_sink_and_the_message_names_the_sink_for_it() -> None:
    message = refusal(lambda: Flow("orders").source([1]).to(untyped(print)))

    assert "CallbackSink(fn)" in message


@pytest.mark.parametrize(
    "function",
    [slow, several, Awaited(), partial(slow)],
    ids=["coroutine", "async generator", "async __call__", "partial"],
)
@pytest.mark.parametrize(
    "method", ["map", "filter", "flat_map", "map_batch", "key_by", "event_time", "partition_by"]
)
def test_a_function_that_would_have_to_be_awaited_is_refused_by_name_of_the_method(
    method: str, function: object
) -> None:
    stream = Flow("awaited").source([1])

    message = refusal(lambda: getattr(stream, method)(function))

    assert message.startswith(f"{method}() calls plain functions")
    assert "map_async" in message


def test_functions_of_keyed_steps_may_not_be_awaited_either() -> None:
    keyed = Flow("awaited").source([1]).key_by(abs)
    windows = keyed.window(Tumbling(HOUR))
    fn = untyped(slow)

    messages = [
        refusal(lambda: keyed.reduce(fn, name="a")),
        refusal(lambda: keyed.fold(int, fn, name="a")),
        refusal(lambda: windows.reduce(fn, name="a")),
        refusal(lambda: windows.fold(fn, max, name="a")),
    ]

    assert all("is a coroutine function" in message for message in messages)


def test_an_object_that_is_not_callable_is_no_function() -> None:
    message = refusal(lambda: Flow("orders").source([1]).map(untyped("parse")))

    assert message == "map() takes a function, not 'parse'"


def test_a_process_function_is_given_as_an_object_not_as_its_class() -> None:
    message = refusal(lambda: Flow("orders").source([1]).process(untyped(Twice)))

    assert "write Twice()" in message


def test_a_keyed_process_needs_a_keyed_stream() -> None:
    message = refusal(lambda: Flow("orders").source([1]).process(untyped(Count())))

    assert "a ProcessFunction is needed" in message


def test_a_process_function_without_keys_does_not_run_on_a_keyed_stream() -> None:
    keyed = Flow("orders").source([1]).key_by(abs)

    message = refusal(lambda: keyed.process(untyped(Twice()), name="twice"))

    assert "a KeyedProcess is needed" in message


def test_a_handler_that_would_have_to_be_awaited_is_refused_by_its_name() -> None:
    message = refusal(lambda: Flow("orders").source([1]).process(AwaitedTwice()))

    assert "AwaitedTwice.process is a coroutine function" in message


def test_two_states_of_one_name_are_refused_when_the_step_is_described() -> None:
    keyed = Flow("orders").source([1]).key_by(abs)

    message = refusal(lambda: keyed.process(OneNameTwice(), name="count"))

    assert "'total'" in message


def test_streams_of_two_flows_do_not_mix() -> None:
    here, there = Flow("here").source([1]), Flow("there").source([2])

    message = refusal(lambda: here.union(there))

    assert "'here' and 'there'" in message
    assert "the same Flow" in message


def test_only_streams_can_be_mixed() -> None:
    message = refusal(lambda: Flow("here").source([1]).union(untyped([2])))

    assert message == "union() takes streams, not [2]"


def test_a_side_output_is_selected_by_tag() -> None:
    stream = Flow("sides").source([1]).process(Twice())

    assert "aflow.Tag, not 'bad'" in refusal(lambda: stream.side(untyped("bad")))


def test_a_side_output_has_no_side_outputs() -> None:
    bad = Tag[int]("bad")
    stream = Flow("sides").source([1]).process(Twice())

    message = refusal(lambda: stream.side(bad).side(bad))

    assert "side('bad') belongs directly after the step that writes to it" in message


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, True, "2"], ids=repr)
def test_parallelism_is_a_positive_whole_number_in_all_methods(parallelism: object) -> None:
    flow = Flow("wide")
    stream = flow.source([1])
    stream.to(CollectSink())
    wrong = untyped(parallelism)

    messages = [
        refusal(lambda: flow.source([1], parallelism=wrong)),
        refusal(lambda: stream.key_by(abs, parallelism=wrong)),
        refusal(lambda: stream.rebalance(wrong)),
        refusal(lambda: stream.broadcast(wrong)),
        refusal(lambda: stream.partition_by(max, wrong)),
        refusal(lambda: flow.plan(parallelism=wrong)),
    ]

    assert all(f"from 1 on, not {parallelism!r}" in message for message in messages)


def test_a_class_of_sinks_is_no_sink() -> None:
    message = refusal(lambda: Flow("orders").source([1]).to(untyped(CollectSink)))

    assert "takes an aflow.Sink, not <class" in message
    assert message.endswith("call the class to get one: CollectSink(…)")


def resource(shared: str | None) -> Resource[int]:
    return Resource(lambda: nullcontext(1), shared=shared)


def calling(*resources: Resource[int]) -> Flow:
    """A flow with a step for each of ``resources``."""

    async def call(value: int, resource: int) -> int:
        return value + resource

    flow = Flow("calls")
    for number, one in enumerate(resources):
        flow.source([1], name=f"in {number}").map_async(call, name=f"step {number}", using=one)
    return flow


def test_two_resources_of_one_shared_name_are_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"step 'step 0' has another Resource .* 'http'"):
        calling(resource("http"), resource("http"))


def test_steps_may_share_a_resource_and_have_others_of_other_names_or_of_none() -> None:
    shared, own = resource("http"), resource(None)

    flow = calling(shared, shared, own, own, resource(None), resource("other"))

    assert len(flow.graph.nodes) == 12
