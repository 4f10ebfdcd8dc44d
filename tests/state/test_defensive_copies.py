"""Mutable values are copied, immutable ones are not."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

import pytest

from aflow.state.defensive_copies import defensive_copy

T = TypeVar("T")


class Colour(Enum):
    RED = "red"


class Place(NamedTuple):
    name: str
    tags: object = ()


@dataclass(frozen=True, slots=True)
class Payment:
    card: str
    place: object = None


@dataclass(frozen=True)
class Pair(Generic[T]):
    one: T
    two: T


@dataclass(frozen=True)
class Refund(Payment):
    why: str = ""


class Marked(Payment):
    """A class with a ``__dict__``, so that attributes can be added."""


@dataclass
class Count:
    number: int = 0
    names: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 2.5, "text", b"bytes", Decimal("1.5"), datetime(2024, 1, 1, tzinfo=UTC)),
        *(Colour.RED, (1, ("a", None)), frozenset({1}), Place("x"), Payment("x", Place("y"))),
        *(Pair(1, 2), Refund("x", None, "late")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_immutable_value_is_not_copied(value: object) -> None:
    assert defensive_copy(value) is value


@pytest.mark.parametrize(
    "value",
    [
        *([1], {"x": 1}, {1}, bytearray(b"x"), Count(1)),
        *((1, [2]), Place("x", [1]), Payment("x", {"y": 1}), Pair([1], [2]), Marked("x")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_mutable_value_is_copied(value: object) -> None:
    copy = defensive_copy(value)

    assert copy is not value
    assert copy == value


def test_a_copy_shares_no_mutable_part() -> None:
    value = Pair(Count(1, ["a"]), Count())

    copy = defensive_copy(value)
    copy.one.names.append("b")

    assert value == Pair(Count(1, ["a"]), Count())
