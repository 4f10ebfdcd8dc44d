"""The form of a fragment for executors: its steps, and nothing that they do not need."""

from __future__ import annotations

import pickle
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given

import aflow as af
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.portable_fragment import check_picklable, portable_copy
from aflow.errors import FlowDefinitionError
from aflow.graph.nodes import Forward, Kind, Node
from tests.backfill.any_flow import flows

cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="pickles what __main__ defines")

MINUTE = timedelta(minutes=1)

#: Pickled size (bytes) of the steps of a small fragment. The data below is a hundred times as much.
SMALL = 10_000


def dumps(value: object) -> bytes:
    data = cloudpickle.dumps(value)
    assert isinstance(data, bytes)
    return data


def reachable(node: Node) -> list[Node]:
    """``node``, and all nodes that its inputs lead to."""
    return [node, *(one for edge in node.inputs for one in reachable(edge.origin))]


def plan_of(step: Callable[[af.KeyedStream[int, int]], af.Stream[Any]]) -> FragmentPlan:
    """A source with much data, and ``step`` after its key_by."""
    flow = af.Flow("big")
    numbers = flow.source(list(range(10**6)), name="numbers").event_time(lambda n: n)
    step(numbers.key_by(lambda n: n)).to(af.CollectSink[Any](), name="sink")
    return plan_fragments(flow.graph)


class Client:
    """An object that cannot be pickled."""

    def __init__(self) -> None:
        self.name = "client"
        self._lock = threading.Lock()

    async def ask(self, value: int) -> int:
        return value


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


@asynccontextmanager
async def opened() -> AsyncGenerator[str, None]:
    yield "session"


async def answer_with(value: int, session: Any) -> int:
    return value


STEPS: dict[str, Callable[[af.KeyedStream[int, int]], af.Stream[Any]]] = {
    "process": lambda keyed: keyed.process(Pass(), name="step"),
    "process_async": lambda keyed: keyed.process_async(Ask(), name="step"),
    "connect": lambda keyed: keyed.connect(keyed).process(Meet(), name="step"),
    "reduce": lambda keyed: keyed.reduce(max, name="step"),
    "fold": lambda keyed: keyed.fold(int, lambda total, n: total + n, name="step"),
    "deduplicate": lambda keyed: keyed.deduplicate(name="step", within=MINUTE),
    "top": lambda keyed: keyed.top(3, by=lambda n: n, name="step"),
    "window": lambda keyed: keyed.window(af.Tumbling(MINUTE)).reduce(max, name="step"),
    "sessions": lambda keyed: keyed.sessions(MINUTE, name="step"),
    "trigger": lambda keyed: keyed.window(
        af.Sliding(MINUTE, MINUTE / 2),
        trigger=af.triggers.EventTime(early=af.triggers.Count(2)),
        evictor=af.evictors.Count(3),
        lateness=MINUTE,
    ).apply(len, name="step"),
    "window_join": lambda keyed: keyed.window_join(keyed, af.Tumbling(MINUTE)).inner(
        max, name="step"
    ),
    "co_group": lambda keyed: keyed.co_group(
        keyed, af.Tumbling(MINUTE), into=lambda a, b: len(a + b), name="step"
    ),
    "interval_join": lambda keyed: keyed.interval_join(keyed, between=(-MINUTE, MINUTE)).inner(
        max, name="step"
    ),
    "as_of_join": lambda keyed: keyed.as_of_join(keyed).inner(max, name="step"),
    "map_async": lambda keyed: keyed.map_async(
        answer_with,
        using=af.Resource(opened),
        name="step",
        capacity=af.calls.Adaptive(),
        timeout=MINUTE,
        retry=af.Retry(attempts=3, delay=MINUTE, on=OSError),
        rate=af.calls.RateLimit(5, per=MINUTE),
        breaker=af.calls.CircuitBreaker(),
        cache=af.calls.Cache(size=10),
        on_error=af.calls.Drop(),
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_each_kind_of_step_is_sent_without_the_data_of_its_source(step: str) -> None:
    plan = plan_of(STEPS[step])

    sent = [check_picklable(fragment, dumps) for fragment in plan.fragments]

    assert all(len(data) < SMALL for data in sent)
    arrived: list[Fragment] = [pickle.loads(data) for data in sent]
    assert [one.keyed for one in arrived] == [False, True]
    made = arrived[1].head.operator
    assert made is not None
    assert type(made()) is type(_operator(plan.fragments[1].head))


def _operator(node: Node) -> object:
    assert node.operator is not None
    return node.operator()


def test_the_plan_itself_is_left_as_it_is() -> None:
    plan = plan_of(STEPS["reduce"])

    sent = portable_copy(plan.fragments[0])

    assert sent.head.source is None
    assert sent.head.kind is Kind.SOURCE
    assert plan.fragments[0].head.source is not None


def test_a_fragment_arrives_with_all_that_the_contract_says_of_it() -> None:
    plan = plan_of(STEPS["process"])

    sent = [portable_copy(fragment) for fragment in plan.fragments]

    for one, was in zip(sent, plan.fragments, strict=True):
        assert (
            one.index,
            one.cuts_at,
            one.watermark_per_timestamp,
            one.watermark_lag,
            one.keyed,
        ) == (
            was.index,
            was.cuts_at,
            was.watermark_per_timestamp,
            was.watermark_lag,
            was.keyed,
        )
        assert [(node.id, node.name, node.what) for node in one.nodes] == [
            (node.id, node.name, node.what) for node in was.nodes
        ]
    assert sent[0].exits[0].reader == 1
    assert sent[1].exits[0].sink is not None
    assert sent[1].exits[0].sink.name == "sink"
    assert sent[1].exits[0].sink.sink is None


def test_the_inputs_of_a_head_keep_their_number_and_names() -> None:
    plan = plan_of(STEPS["connect"])

    head = portable_copy(plan.fragments[1]).head

    assert head.roles == ("left", "right")
    assert [edge.origin.name for edge in head.inputs] == ["key_by #1", "key_by #1"]
    assert all(edge.origin.operator is None for edge in head.inputs)


def test_a_step_downstream_of_a_union_is_copied_with_its_own_inputs_only() -> None:
    flow = af.Flow("union")
    streams = [flow.source([1], name=name).event_time(int) for name in ("a", "b")]
    both = streams[0].union(streams[1], name="both").rebalance(7).map(int, name="map")
    both.to(af.CollectSink[int]())

    sent = portable_copy(plan_fragments(flow.graph).fragments[1])

    named = {node.name: node for node in sent.nodes}
    assert [edge.origin.name for edge in named["both"].inputs] == ["event_time #2"]
    assert named["map"].inputs[0].origin is named["rebalance #1"]
    assert isinstance(named["rebalance #1"].inputs[0].partitioning, Forward)
    assert named["rebalance #1"].parallelism is None


@given(flows())
def test_no_fragment_refers_to_steps_of_another_or_to_sources_and_sinks(flow: af.Flow) -> None:
    plan = plan_fragments(flow.graph)

    for fragment in plan.fragments:
        sent = portable_copy(fragment)
        inside = {id(node) for node in sent.nodes}
        for node in sent.nodes:
            for one in reachable(node):
                assert one.source is None
                assert one.sink is None
                assert id(one) in inside or (one.operator is None and not one.inputs)
        for exit in sent.exits:
            assert id(exit.origin) in inside
            assert exit.sink is None or (exit.sink.sink is None and not exit.sink.inputs)


# ------------------------------------------------------------------------------------- pickling errors


def refusal(plan: FragmentPlan) -> FlowDefinitionError:
    """Reason why a fragment of ``plan`` cannot be sent."""
    with pytest.raises(FlowDefinitionError) as refused:
        _ = [check_picklable(fragment, dumps) for fragment in plan.fragments]
    return refused.value


def calling(fn: Callable[[int], Awaitable[int]]) -> FragmentPlan:
    flow = af.Flow("calls")
    called = flow.source([1]).map(lambda n: n).map_async(fn, name="score")
    called.to(af.CollectSink[int]())
    return plan_fragments(flow.graph)


def test_a_step_that_cannot_be_pickled_is_named_with_the_path_to_the_object() -> None:
    client = Client()

    async def score(value: int) -> int:
        return await client.ask(value)

    refused = refusal(calling(score))

    assert str(refused) == (
        "step 'score' cannot be sent to executors: cannot pickle '_thread.lock' object (score → client → _lock); "
        "open it in a Resource, or inside the function"
    )
    assert isinstance(refused.__cause__, TypeError)


@pytest.mark.parametrize(
    ("fn", "exit"),
    [
        (Client().ask, "(ask → Client → _lock)"),
        (partial(Client.ask, Client()), "(partial → [0] → _lock)"),
    ],
)
def test_methods_and_partial_functions_are_looked_into(fn: Any, exit: str) -> None:
    assert exit in str(refusal(calling(fn)))


def test_defaults_and_collections_are_looked_into() -> None:
    clients = {"a": [Client()]}

    async def score(value: int, known: dict[str, list[Client]] = clients) -> int:
        return value

    assert "(score → [0] → ['a'] → [0] → _lock)" in str(refusal(calling(score)))


def test_an_error_with_its_own_message_keeps_it() -> None:
    class Stubborn:
        def __reduce__(self) -> str:
            raise RuntimeError("I stay here")

    stubborn = Stubborn()

    async def score(value: int) -> int:
        return id(stubborn)

    assert str(refusal(calling(score))).startswith(
        "step 'score' cannot be sent to executors: I stay here (score → stubborn); "
    )


def test_of_a_plain_function_it_is_said_to_make_it_inside() -> None:
    client = Client()
    flow = af.Flow("maps")
    flow.source([1]).map(lambda n: (n, client), name="pair").to(af.CollectSink[Any]())

    assert str(refusal(plan_fragments(flow.graph))) == (
        "step 'pair' cannot be sent to executors: cannot pickle '_thread.lock' object (<lambda> → client → _lock); "
        "make it inside the function, or in a module that executors import"
    )


def test_of_a_process_function_it_is_said_to_make_it_in_open() -> None:
    class Scoring(Pass):
        def __init__(self) -> None:
            self.client = Client()

    refused = refusal(plan_of(lambda keyed: keyed.process(Scoring(), name="score")))

    assert str(refused) == (
        "step 'score' cannot be sent to executors: cannot pickle '_thread.lock' object (Scoring → client → _lock); "
        "make it in the open() of the process function"
    )


def test_of_a_resource_it_is_said_to_make_it_where_that_is_opened() -> None:
    client = Client()

    @asynccontextmanager
    async def connected() -> AsyncGenerator[Client, None]:
        yield client

    flow = af.Flow("resources")
    called = flow.source([1]).map_async(answer_with, using=af.Resource(connected), name="score")
    called.to(af.CollectSink[int]())

    assert str(refusal(plan_fragments(flow.graph))).endswith(
        "client → _lock); make it inside the function that opens the Resource"
    )
