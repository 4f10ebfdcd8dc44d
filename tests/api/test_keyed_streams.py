"""``map``, ``filter`` and ``flat_map`` of keyed streams: values change, keys and the exchange do not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.graph.nodes import HashByKey
from aflow.testing import run_flow

Keyed = af.KeyedStream[int, int]


class Labelled(af.KeyedProcess[int, int, tuple[int, int, int | None]]):
    """Emit key, value and timestamp of each record."""

    def process(self, value: int, ctx: af.Context[int]) -> Iterable[tuple[int, int, int | None]]:
        yield ctx.key, value, ctx.timestamp


def digits(number: int) -> list[int]:
    return [int(digit) for digit in str(abs(number))[1:]]


def transformed(keyed: Keyed, shape: str) -> Keyed:
    for step in shape:
        if step == "m":
            keyed = keyed.map(lambda n: n * 3 + 1)
        elif step == "f":
            keyed = keyed.filter(lambda n: n % 4)
        else:
            keyed = keyed.flat_map(digits)
    return keyed


def by_hand(number: int, shape: str) -> list[int]:
    values = [number]
    for step in shape:
        if step == "m":
            values = [n * 3 + 1 for n in values]
        elif step == "f":
            values = [n for n in values if n % 4]
        else:
            values = [digit for n in values for digit in digits(n)]
    return values


def labelled(
    numbers: list[int], shape: str, *, timed: bool, parallelism: int, chaining: bool = True
) -> list[tuple[int, int, int | None]]:
    flow, sink = af.Flow("keyed"), af.CollectSink[tuple[int, int, int | None]]()
    stream = flow.source(numbers)
    if timed:
        stream = stream.event_time(lambda n: n, max_delay=timedelta(seconds=1))
    keyed = transformed(stream.key_by(lambda n: n % 7), shape)
    keyed.process(Labelled(), name="labelled").to(sink)
    run_flow(flow, parallelism=parallelism, options=af.Options(batch_records=5, chaining=chaining))
    return sink.values


@given(
    numbers=st.lists(st.integers(0, 999), max_size=30),
    shape=st.text("mfx", min_size=1, max_size=5),
    timed=st.booleans(),
    parallelism=st.sampled_from([1, 3]),
    chaining=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_each_result_has_the_key_and_the_timestamp_of_its_record(
    numbers: list[int], shape: str, timed: bool, parallelism: int, chaining: bool
) -> None:
    found = labelled(numbers, shape, timed=timed, parallelism=parallelism, chaining=chaining)

    for key in range(7):
        assert [one for one in found if one[0] == key] == [
            (key, value, number if timed else None)
            for number in numbers
            if number % 7 == key
            for value in by_hand(number, shape)
        ]


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_a_keyed_stream_is_exchanged_once(parallelism: int) -> None:
    flow = af.Flow("keyed")
    keyed = flow.source([1]).key_by(abs, parallelism=parallelism)
    keyed.map(abs).filter(bool).flat_map(digits).reduce(max, name="top").to(af.CollectSink())

    plan = flow.plan()

    exchanges = [channels for task in plan.tasks for channels in task.incoming]
    assert [type(one.edge.partitioning) for one in exchanges] == [HashByKey] * (parallelism > 1)
    assert next(node for node in flow.graph if node.name == "top").parallelism == parallelism


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_keyed_stream_can_be_read_several_times(parallelism: int) -> None:
    flow, sums, mapped = af.Flow("keyed"), af.CollectSink[int](), af.CollectSink[int]()
    keyed = flow.source([1, 2, 3, 4]).key_by(lambda n: n % 2)
    keyed.reduce(lambda a, b: a + b, name="sums").to(sums)
    keyed.map(lambda n: -n).reduce(lambda a, b: a + b, name="mapped").to(mapped)

    run_flow(flow, parallelism=parallelism)

    assert sorted(sums.values) == [1, 2, 4, 6]
    assert sorted(mapped.values) == [-6, -4, -2, -1]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_mapped_streams_are_joined_by_their_keys(parallelism: int) -> None:
    flow, pairs = af.Flow("keyed"), af.CollectSink[tuple[str, int]]()
    numbers = flow.source([1, 2, 3], name="numbers").event_time(lambda n: n).key_by(lambda n: n)
    others = flow.source([2, 3, 4], name="others").event_time(lambda n: n).key_by(lambda n: n)
    instant = timedelta(0)
    numbers.map(str).interval_join(
        others.filter(lambda n: n > 2), between=(instant, instant)
    ).inner(lambda left, right: (left, right), name="pairs").to(pairs)

    run_flow(flow, parallelism=parallelism)

    assert pairs.values == [("3", 3)]


def test_a_failure_names_the_step_the_record_and_its_key() -> None:
    flow = af.Flow("keyed")
    keyed = flow.source([5]).key_by(lambda n: f"key {n}").map(lambda n: n // 0, name="divide")
    keyed.reduce(max, name="max").to(af.CollectSink())

    with pytest.raises(af.OperatorError, match="'divide' failed on record 5, key 'key 5'"):
        run_flow(flow)


@pytest.mark.parametrize("method", ["map", "filter", "flat_map"])
def test_a_step_of_a_keyed_stream_takes_a_plain_function(method: str) -> None:
    async def fn(value: int) -> Any: ...

    keyed = af.Flow("keyed").source([1]).key_by(abs)

    with pytest.raises(af.FlowDefinitionError, match=rf"{method}\(\) calls plain functions"):
        getattr(keyed, method)(fn)


def test_a_mapped_keyed_stream_without_a_keyed_step_is_refused_with_the_remedy() -> None:
    flow = af.Flow("dangling")
    stream = flow.source([1])
    stream.to(af.CollectSink())
    stream.key_by(abs).map(abs).filter(bool, name="positive")

    with pytest.raises(
        af.FlowDefinitionError, match=r"no step uses the keys of step 'positive' \(filter\); add a"
    ):
        flow.plan()
