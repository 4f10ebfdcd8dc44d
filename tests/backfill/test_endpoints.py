"""Parameters of the function that builds a flow, when it runs over history."""

from __future__ import annotations

import re

import pytest

import aflow as af
from aflow.backfill.endpoints import build_graph
from aflow.errors import FlowDefinitionError


def named_otherwise(orders: af.Source[int], results: af.Sink[int], factor: int = 2) -> af.Flow:
    flow = af.Flow("doubling")
    flow.source(orders, name="numbers").map(lambda n: factor * n, name="double").to(
        results, name="doubled"
    )
    return flow


def with_a_setting(numbers: af.Source[int], factor: int) -> af.Flow:
    return named_otherwise(numbers, af.CollectSink[int](), factor)


def test_parameters_annotated_as_source_or_sink_need_not_be_named_as_their_steps() -> None:
    graph = build_graph(named_otherwise, sources=["numbers"], sinks=["doubled"])

    assert [node.name for node in graph.nodes] == ["numbers", "double", "doubled"]


def test_other_parameters_need_a_value() -> None:
    message = (
        "build() has a parameter 'factor', which is none of the sources ('numbers') and none of the sinks ('doubled'): "
        "if it is one, name it as its step, or annotate it with aflow.Source or aflow.Sink; else give it a value by "
        "functools.partial(build, factor=…)"
    )

    with pytest.raises(FlowDefinitionError, match=re.escape(message)):
        build_graph(with_a_setting, sources=["numbers"], sinks=["doubled"])


def of_several(numbers: list[af.Source[int]]) -> af.Flow:
    return named_otherwise(numbers[0], af.CollectSink[int]())


def of_an_optional(orders: af.Source[int] | None, results: af.Sink[int] | None) -> af.Flow:
    assert orders is not None
    assert results is not None
    return named_otherwise(orders, results)


def test_only_the_outermost_name_of_an_annotation_counts() -> None:
    graph = build_graph(of_an_optional, sources=["numbers"], sinks=["doubled"])
    assert len(graph.nodes) == 3

    with pytest.raises(FlowDefinitionError, match="has a parameter 'numbers', which is none of"):
        build_graph(of_several, sources=["orders"], sinks=["doubled"])
