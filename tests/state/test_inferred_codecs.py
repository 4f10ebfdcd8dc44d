"""Codecs inferred from annotations: only of records, which could not be stored otherwise."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import partial
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

from aflow.model.codecs import CodecError, codec_for
from aflow.state.inferred_codecs import codec_of_items, codec_of_reduced, codec_of_results
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


#: A type that is imported only for type checkers.
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
def test_annotations_with_records_have_a_codec(functions: list[Any], name: str) -> None:
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
def test_annotations_that_are_plain_missing_or_unsupported_have_none(function: Any) -> None:
    assert codec_of_results(function) is None


def of_counts(values: list[Count]) -> int:
    return len(values)


def of_numbers(values: list[int]) -> int:
    return len(values)


def larger(a: Count, b: Count) -> Any:
    return max(a, b, key=lambda one: one.views)


def test_records_of_a_list_and_of_a_reduction_are_inferred_from_arguments() -> None:
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


class Rank(IntEnum):
    LOW = 1


class Longer(Count):
    """A subclass, which would be restored as its base."""


def ranked() -> Rank:
    return Rank.LOW


@pytest.mark.parametrize(
    ("tells", "value"),
    [
        (Pair, (4, 4)),
        (Pair, 3),
        (ranked, 1),
        (counted, {"page": "home"}),
        (maybe, {"page": "home"}),
        (counted, None),
        (counted, Count("home", 3)),
        (Pair, Pair(3)),
    ],
    ids=stable,
)
def test_an_inferred_codec_accepts_all_plain_values(
    tells: Callable[..., Any], value: object
) -> None:
    codec = codec_of_results(tells)
    assert codec is not None

    restored = codec.decode(codec.encode(value))

    assert restored == value
    assert type(restored) is type(value)


def test_values_of_an_inferred_type_are_stored_as_those_of_a_declared_one() -> None:
    codec = codec_of_results(Count)
    assert codec is not None

    assert codec.encode(Count("home", 3)) == codec_for(Count).encode(Count("home", 3))


def test_the_error_of_a_value_of_another_type_names_the_origin_of_the_type() -> None:
    codec = codec_of_results(Count)
    assert codec is not None

    with pytest.raises(
        CodecError, match=r"has type Longer, .* \(of=Count is inferred from annotations; of= "
    ):
        codec.encode(Longer("home", 3))


def test_an_inferred_codec_can_be_sent_to_executors() -> None:
    codec = codec_of_results(Count)
    assert codec is not None

    sent = pickle.loads(pickle.dumps(codec))

    assert sent.decode(codec.encode((1, 2))) == (1, 2)
    assert sent.decode(codec.encode(Count("home"))) == Count("home")
