"""Parameters that are sources or sinks, by their annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest

import aflow as af
from aflow.graph.annotated_ends import EndKind, annotated_end

SOURCES: list[Any] = [
    af.Source,
    af.Source[int],
    af.Source[list[int]] | None,
    Annotated[af.Source[int], "of numbers"],
    "Source[int]",
    "af.Source[int] | None",
    "None | af.Source[int]",
    "'aflow.connect.Source[int]'",
    "Optional[Source]",
    "typing.Union[None, Source[int]]",
]

OTHERS: list[Any] = [
    int,
    None,
    "",
    list[af.Source[int]],
    Callable[[af.Sink[int]], None],
    af.PushSource[int],
    "dict[str, Sink[int]]",
    "SourceCode",
    "Resource",
]


@pytest.mark.parametrize("annotation", SOURCES, ids=str)
def test_the_outermost_name_tells_a_source(annotation: object) -> None:
    assert annotated_end(annotation) is EndKind.SOURCE


@pytest.mark.parametrize("annotation", [af.Sink[int], "af.Sink[int]"], ids=str)
def test_the_outermost_name_tells_a_sink(annotation: object) -> None:
    assert annotated_end(annotation) is EndKind.SINK


@pytest.mark.parametrize("annotation", OTHERS, ids=str)
def test_other_annotations_are_no_ends(annotation: object) -> None:
    assert annotated_end(annotation) is None
