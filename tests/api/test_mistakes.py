"""Mistakes of users without a type checker: each is refused where it is made, with the correction."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow_connectors.files import JsonLinesSource


class Keyed(af.KeyedProcess[int, int, int]):
    last = af.ValueState("last", of=int)

    def process(self, value: int, ctx: af.Context[int]) -> Iterable[int]:
        ctx.state("last").get()  # type: ignore[arg-type]
        return [value]


def test_a_keyed_process_needs_keys() -> None:
    numbers: Any = af.Flow("mistake").source([1])

    with pytest.raises(af.FlowDefinitionError, match=r"call \.key_by"):
        numbers.process(Keyed())


@pytest.mark.parametrize(
    ("method", "cure"),
    [
        ("window", r"call \.key_by\(…\) before, or window_all\(\)"),
        ("fold", r"call \.key_by\(…\) before$"),
        ("deduplicate", r"call \.key_by\(…\) before$"),
        ("interval_join", r"call \.key_by\(…\) before$"),
        ("aggregate", r"call \.key_by\(…\)\.window\(…\) before, or \.window_all"),
    ],
)
def test_a_method_that_needs_keys_says_so_on_a_stream_without_keys(method: str, cure: str) -> None:
    numbers: Any = af.Flow("mistake").source([1]).map(abs)

    with pytest.raises(
        af.FlowDefinitionError, match=rf"^Stream has no method {method}\(\): .*{cure}"
    ):
        getattr(numbers, method)
    assert not hasattr(numbers, method)


@pytest.mark.parametrize("method", ["to", "map_batch", "event_time", "union"])
def test_a_method_of_streams_without_keys_names_the_remedy_on_a_keyed_stream(method: str) -> None:
    keyed: Any = af.Flow("mistake").source([1]).key_by(abs).map(str)

    with pytest.raises(
        af.FlowDefinitionError,
        match=rf"^KeyedStream has no method {method}\(\): call it before \.key_by",
    ):
        getattr(keyed, method)
    assert not hasattr(keyed, method)
    assert not hasattr(keyed, "flatmap")


@pytest.mark.parametrize("method", ["aggregate", "apply"])
def test_a_method_of_windows_names_the_remedy_on_a_keyed_stream(method: str) -> None:
    keyed: Any = af.Flow("mistake").source([1]).key_by(abs)

    with pytest.raises(
        af.FlowDefinitionError,
        match=rf"^KeyedStream has no method {method}\(\): it needs windows; call \.window\(…\) before",
    ):
        getattr(keyed, method)


def test_a_class_in_place_of_a_process_function_is_refused_with_an_article_that_fits() -> None:
    keyed: Any = af.Flow("mistake").source([1]).key_by(abs)

    with pytest.raises(af.FlowDefinitionError, match=r"^an AsyncKeyedProcess object is needed"):
        keyed.process_async(af.AsyncKeyedProcess, name="asked")


def builders() -> tuple[Any, Any, Any]:
    numbers = af.Flow("mistake").source([1]).event_time(lambda n: n).key_by(abs)
    second = timedelta(seconds=1)
    near = numbers.interval_join(numbers, between=(-second, second))
    return near, numbers.as_of_join(numbers), numbers.window(af.Tumbling(second))


def test_a_join_or_window_without_its_step_names_the_remedy() -> None:
    near, as_of, windowed = builders()

    for builder, remedy in (
        (near, r"JoinedStreams has no method to\(\): .*\.inner\(into, name=…\), .*\.full\(…\)"),
        (as_of, r"AsOfJoinedStreams has no method to\(\): .*\.inner\(into, name=…\) or \.left"),
        (windowed, r"WindowedStream has no method to\(\): add a function of the window"),
    ):
        with pytest.raises(af.FlowDefinitionError, match=remedy):
            builder.to(af.CollectSink())
        assert not hasattr(builder, "to")
        assert not hasattr(builder, "tto")
        copy.copy(builder)


def test_an_as_of_join_refuses_the_kinds_that_it_does_not_have() -> None:
    _, as_of, _ = builders()

    with pytest.raises(af.FlowDefinitionError, match=r"only \.inner\(…\) and \.left\(…\)"):
        as_of.full(print)


def test_a_method_that_no_stream_has_is_an_attribute_error_with_a_suggestion() -> None:
    numbers: Any = af.Flow("mistake").source([1])

    with pytest.raises(
        AttributeError, match="'Stream' object has no attribute 'flatmap'"
    ) as caught:
        numbers.flatmap(str)

    assert not isinstance(caught.value, af.FlowDefinitionError)
    assert caught.value.name == "flatmap"
    assert copy.copy(numbers).step_input == numbers.step_input


def test_state_is_reached_by_its_declaration_and_not_by_its_name() -> None:
    flow = af.Flow("mistake")
    flow.source([1]).key_by(lambda n: n).process(Keyed(), name="keyed").to(af.CollectSink())

    with pytest.raises(af.OperatorError, match=r"ctx\.state\(self\.…\) instead"):
        asyncio.run(flow.run())


def test_dead_letters_that_no_step_reads_are_refused(tmp_path: Path) -> None:
    bad = af.Tag[af.connect.BadRecord]("bad lines")
    flow = af.Flow("mistake")
    flow.source(JsonLinesSource(tmp_path / "in.jsonl", dead_letters=bad), name="in").to(
        af.CollectSink()
    )

    with pytest.raises(
        af.FlowDefinitionError, match=r"'in' sends bad records.*which no step reads"
    ):
        flow.plan()


def test_a_side_output_is_read_directly_after_the_step_that_writes_to_it() -> None:
    mapped = af.Flow("mistake").source([1]).map(lambda n: n, name="same")

    with pytest.raises(af.FlowDefinitionError, match=r"'same' \(map\) has no side outputs"):
        mapped.side(af.Tag[int]("odd"))


def test_a_source_that_cannot_be_divided_refuses_more_subtasks() -> None:
    flow = af.Flow("mistake")
    flow.source([1], name="one", parallelism=4).to(af.CollectSink())

    with pytest.raises(af.FlowDefinitionError, match=r"'one' can be read by 1.*rebalance\(4\)"):
        flow.plan()


@pytest.mark.parametrize("method", ["sink", "for_each", "print"])
def test_a_method_that_ends_a_stream_elsewhere_names_the_one_of_aflow(method: str) -> None:
    stream: Any = af.Flow("mistake").source([1])

    with pytest.raises(
        af.FlowDefinitionError, match=rf"^Stream has no method {method}\(\): .*\.to\("
    ):
        getattr(stream, method)
