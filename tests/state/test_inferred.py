"""Types that annotations tell: only those of records, which could not be stored otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

from aflow.state.inferred import codec_of_items, codec_of_reduced, codec_of_results
from tests.stable_ids import stable


@dataclass(frozen=True)
class Count:
    page: str = ""
    views: int = 0

    @classmethod
    def empty(cls) -> Count:
        return cls()


class Pair(NamedTuple):
    a: int = 0


class Struct(msgspec.Struct):
    a: int = 0


class Level(Enum):
    LOW = 1


class Typed(TypedDict):
    a: int


class Free:
    pass


@dataclass
class Unstorable:
    free: Free


def counted() -> Count:
    return Count()


def by_page() -> dict[str, Count]:
    return {}


def maybe() -> Count | None:
    return None


def whole() -> dict[str, int]:
    return {}


def unknown() -> object:
    raise NotImplementedError


#: As of a type that is imported only while types are checked.
unknown.__annotations__["return"] = "Unknown"


def plus(count: Count, view: str) -> Count:
    return count


@pytest.mark.parametrize(
    ("functions", "name"),
    [
        ([Count], "Count"),
        ([partial(Count, "home")], "Count"),
        ([Count.empty], "Count"),
        ([counted], "Count"),
        ([lambda: Count(), plus], "Count"),
        ([dict, by_page], "dict[str, "),
        ([maybe], "Count"),
        ([Pair], "Pair"),
        ([Struct], "Struct"),
        ([lambda: Level.LOW, Level], "Level"),
    ],
    ids=stable,
)
def test_records_that_are_told_give_a_codec(functions: list[Any], name: str) -> None:
    codec = codec_of_results(*functions)

    assert codec is not None
    assert name in codec.name


WITHOUT_CODEC: list[Any] = [
    int,
    float,
    dict,
    list,
    whole,
    Typed,
    Free,
    Unstorable,
    unknown,
    lambda: Count(),
    object(),
]


@pytest.mark.parametrize("function", WITHOUT_CODEC, ids=stable)
def test_what_is_plain_or_not_told_or_cannot_be_stored_gives_none(function: Any) -> None:
    assert codec_of_results(function) is None


def of_counts(values: list[Count]) -> int:
    return len(values)


def of_numbers(values: list[int]) -> int:
    return len(values)


def larger(a: Count, b: Count) -> Any:
    return max(a, b, key=lambda one: one.views)


def test_records_of_a_list_and_of_a_reduction_are_told_by_arguments() -> None:
    def first(a: Any, b: Any) -> Any:
        return a

    functions: list[tuple[Callable[..., Any], Callable[..., Any], bool]] = [
        (codec_of_items, of_counts, True),
        (codec_of_items, of_numbers, False),
        (codec_of_items, len, False),
        (codec_of_reduced, larger, True),
        (codec_of_reduced, max, False),
        (codec_of_reduced, first, False),
    ]

    assert [how(fn) is not None for how, fn, _ in functions] == [told for *_, told in functions]
