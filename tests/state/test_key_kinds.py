"""Keys are of mixed kinds if two equal ones may have different bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import pytest

from aflow.state.key_kinds import KeyKinds


class Colour(Enum):
    RED = 1


class Word(StrEnum):
    RED = "red"


class Place(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Point:
    x: float | str
    y: int


@dataclass(frozen=True)
class Noted:
    x: int
    note: str = field(default="", compare=False)


AT = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([1, 2, "1", b"1", None], id="numbers beside text"),
        pytest.param([1.5, -2.0], id="floats"),
        pytest.param([("a", 1), ("b", 2), ("a",)], id="tuples"),
        pytest.param([("a", "b"), ("c",)], id="tuples of text"),
        pytest.param([Point(1.5, 2), Point(2.5, 3)], id="dataclasses"),
        pytest.param([Place(1, 2), Place(2, 3)], id="named tuples"),
        pytest.param([Colour.RED, Word.RED, 1], id="enums"),
        pytest.param([AT, AT + timedelta(1)], id="moments in one zone"),
    ],
)
def test_keys_of_one_kind_are_not_mixed(keys: list[Any]) -> None:
    kinds = KeyKinds()

    for key in keys:
        kinds.see([key])
    kinds.see(keys)

    assert not kinds.mixed


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([1, True], id="int and bool"),
        pytest.param([1, 1.0], id="int and float"),
        pytest.param([0.0], id="zero, which has two signs"),
        pytest.param([Decimal("1.0")], id="decimals"),
        pytest.param([("a", 1), ("a", True)], id="tuples"),
        pytest.param([(1, 2), Place(1, 2)], id="a tuple and a named one"),
        pytest.param([("a", (0.0,))], id="a zero inside"),
        pytest.param([Point(1.5, 2), Point(2, 2)], id="dataclasses"),
        pytest.param([Noted(1, "a")], id="a field that does not count"),
        pytest.param(["red", Word.RED], id="text and an enum of text"),
        pytest.param([AT, AT.astimezone(timezone(timedelta(hours=1)))], id="two zones"),
        pytest.param([AT.replace(fold=1)], id="a repeated hour, which has two folds"),
    ],
)
def test_keys_that_may_be_equal_and_stored_differently_are_mixed(keys: list[Any]) -> None:
    one_by_one, at_once = KeyKinds(), KeyKinds()

    for key in keys:
        one_by_one.see([key])
    at_once.see(keys)

    assert one_by_one.mixed
    assert at_once.mixed
