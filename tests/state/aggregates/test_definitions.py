"""Definitions of aggregates that are refused, and results of no records."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from aflow import aggregates
from aflow.errors import FlowDefinitionError
from aflow.model.codecs import CodecError
from aflow.state.aggregate import Aggregate, accumulator_codec
from aflow.state.specs import AggregatingState
from tests.state.aggregates.laws import Agg, added, stored

#: The same functions, for calls that type checkers reject.
untyped: Any = aggregates


@dataclass(frozen=True)
class Plain:
    n: int
    total: int = 0


class Named(NamedTuple):
    n: int
    total: int = 0


class Packed(msgspec.Struct):
    n: int
    total: int = 0


class Both(NamedTuple):
    left: int
    right: int


def function(*, n: int, total: int = 0) -> tuple[int, int]:
    return n, total


def max_of(key: int, record: int) -> int:
    return max(key, record)


async def later(record: int) -> int:
    return record


@pytest.mark.parametrize("into", [Plain, Named, Packed, function])
def test_fields_call_anything_with_such_fields(into: Callable[..., Any]) -> None:
    both: Agg = aggregates.fields(into, n=aggregates.count(), total=aggregates.sum())
    one: Agg = aggregates.fields(into, n=aggregates.count())

    assert both.result(added(both, [3, 4])) == into(n=2, total=7)
    assert one.result(added(one, [3, 4])) == into(n=2, total=0)


@pytest.mark.parametrize("into", [Plain, Named, Packed, function])
def test_fields_have_the_names_that_the_result_requires(into: Callable[..., Any]) -> None:
    with pytest.raises(
        FlowDefinitionError, match=rf"{into.__name__} takes .*, but is given total: .*'n'"
    ):
        aggregates.fields(into, total=aggregates.count())
    with pytest.raises(FlowDefinitionError, match=r"given n, x: .*'x'"):
        aggregates.fields(into, n=aggregates.count(), x=aggregates.count())


def test_fields_require_aggregates_and_a_callable() -> None:
    with pytest.raises(FlowDefinitionError, match="no aggregate is given"):
        aggregates.fields(Plain)
    with pytest.raises(FlowDefinitionError, match=r"fields: n: .*create"):
        untyped.fields(Plain, n=3)
    with pytest.raises(
        FlowDefinitionError, match="must be callable, such as a dataclass, not 'Plain'"
    ):
        untyped.fields("Plain", n=aggregates.count())
    with pytest.raises(FlowDefinitionError, match="has no signature"):
        untyped.fields(dict, n=aggregates.count())


def test_stored_fields_can_be_removed_and_not_added() -> None:
    one: Any = aggregates.fields(Plain, n=aggregates.count())
    both: Any = aggregates.fields(Plain, n=aggregates.count(), total=aggregates.count())

    assert one.result(one.codec.decode(stored(both, added(both, [1, 2])))) == Plain(2)
    with pytest.raises(CodecError, match="nothing is stored for total, only for n"):
        both.codec.decode(stored(one, one.create()))


@pytest.mark.parametrize(
    "name", ["sum", "mean", "min", "max", "first", "last", "collect", "distinct"]
)
def test_a_selector_is_a_plain_function(name: str) -> None:
    with pytest.raises(FlowDefinitionError, match=f"{name}: of must be a function .* not 'price'"):
        getattr(untyped, name)("price")
    with pytest.raises(FlowDefinitionError, match=f"{name}: of must be a plain function"):
        getattr(untyped, name)(later)


@pytest.mark.parametrize("name", ["sum", "collect", "distinct"])
def test_a_selector_takes_the_record_alone(name: str) -> None:
    with pytest.raises(FlowDefinitionError, match=f"{name}: of must be a function of one argument"):
        getattr(untyped, name)(max_of)


def test_a_type_in_the_place_of_a_selector_is_refused_with_the_name_of_the_right_argument() -> None:
    with pytest.raises(
        FlowDefinitionError, match=r"collect: of .*; a type is given as stored_as=Both"
    ):
        untyped.collect(Both)


@pytest.mark.parametrize("of", [int, str, Plain, len, float.__abs__], ids=repr)
def test_a_selector_may_be_a_class_or_a_builtin_of_one_argument(of: Any) -> None:
    aggregates.collect(of)


@pytest.mark.parametrize("name", ["min", "max"])
def test_a_rank_function_is_a_plain_function(name: str) -> None:
    with pytest.raises(FlowDefinitionError, match=f"{name}: by must be a function"):
        getattr(untyped, name)(by="price")
    with pytest.raises(FlowDefinitionError, match="top_k: by must be a plain function"):
        untyped.top_k(1, by=later)


@pytest.mark.parametrize("k", [0, -1, 2.0, True, "3"])
def test_top_k_takes_a_number_of_records(k: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="k is a number of records from 1 on"):
        aggregates.top_k(k)


def test_no_records_count_nothing_and_have_no_mean_or_end() -> None:
    of_none: dict[str, Agg] = {
        "count": aggregates.count(),
        "sum": aggregates.sum(),
        "distinct": aggregates.distinct(),
        "collect": aggregates.collect(),
        "top_k": aggregates.top_k(2),
    }
    without: list[Agg] = [
        aggregates.mean(float),
        aggregates.min(),
        aggregates.max(),
        aggregates.min(by=float),
        aggregates.first(),
        aggregates.last(),
    ]

    assert {name: one.result(one.create()) for name, one in of_none.items()} == {
        "count": 0,
        "sum": 0,
        "distinct": 0,
        "collect": [],
        "top_k": [],
    }
    for one in without:
        with pytest.raises(ValueError, match="no records"):
            one.result(one.create())


def test_the_minimum_of_nan_alone_is_nan() -> None:
    ends: list[Agg] = [aggregates.min(), aggregates.max(), aggregates.max(by=float)]
    for one in ends:
        assert math.isnan(one.result(added(one, [math.nan, math.nan])))


def test_equal_values_rank_in_the_order_of_arrival() -> None:
    top: Agg = aggregates.top_k(2, by=len)
    least: Agg = aggregates.min(by=len)

    older, newer = ["aa", "b"], ["cc", "dd", "e"]
    assert top.result(top.merge(added(top, older), added(top, newer))) == ["aa", "cc"]
    assert least.result(least.merge(added(least, older), added(least, newer))) == "b"


@pytest.mark.parametrize(
    "make",
    [lambda: aggregates.quantile(0.5), lambda: aggregates.distinct(approximate=True)],
    ids=["quantile", "distinct"],
)
def test_without_the_package_of_sketches_an_error_names_the_extra(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)

    with pytest.raises(FlowDefinitionError, match=r'pip install "aflow-streams\[sketch\]"'):
        make()


class Longest(Aggregate[str, list[str], str]):
    """An aggregate whose ``codec`` is no codec."""

    codec = "utf-8"

    def create(self) -> list[str]:
        return [""]

    def add(self, acc: list[str], value: str) -> list[str]:
        return max(acc, [value], key=lambda held: len(held[0]))

    def merge(self, a: list[str], b: list[str]) -> list[str]:
        return self.add(a, b[0])

    def result(self, acc: list[str]) -> str:
        return acc[0]


def test_an_attribute_codec_must_be_a_codec() -> None:
    with pytest.raises(FlowDefinitionError, match=r"Longest.codec must be a Codec .* 'utf-8'"):
        AggregatingState("longest", Longest())


def test_a_declared_type_takes_precedence_over_the_codec_of_the_aggregate() -> None:
    collected = aggregates.collect(stored_as=Plain)

    assert accumulator_codec(collected, None).name == "list of Plain"
    assert accumulator_codec(collected, list[Plain]).name == "list[" + f"{Plain.__module__}.Plain]"
