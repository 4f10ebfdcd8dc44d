"""Declared types of keys, and the prefixes that they exclude."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypeVar
from uuid import UUID

import pytest

from aflow.state.key_types import classes_of, never_begins

UserId = NewType("UserId", str)
K = TypeVar("K")


class City(NamedTuple):
    name: str
    number: int


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("declared", "prefix"),
    [
        (int, "a"),
        (int, ("a",)),
        (UUID, "a"),
        (date | None, "2026"),
        (tuple[str, int], "a"),
        (City, "a"),
        (Literal[1, 2], "1"),
        (str, ("a",)),
        (UserId, ("a",)),
        (Colour, ("red",)),
        (tuple[str, int], (1,)),
        (tuple[int, str], ("1",)),
        (tuple[str, ...], (1,)),
        (City, (7,)),
        (City, ("a", "7")),
    ],
)
def test_a_prefix_of_another_kind_than_the_keys_begins_none(
    declared: object, prefix: str | tuple[Hashable, ...]
) -> None:
    assert never_begins(declared, prefix)


@pytest.mark.parametrize(
    ("declared", "prefix"),
    [
        (str, "a"),
        (UserId, "a"),
        (Annotated[str, "id"], "a"),
        (Colour, "red"),
        (Literal["a", 1], "a"),
        (str | int, "a"),
        (object, "a"),
        (object, ("a",)),
        (Any, ("a",)),
        (K, "a"),
        (Hashable, ("a",)),
        (tuple[str, int], ("a", 7)),
        (tuple[str, int], ()),
        (tuple, ("a", 7)),
        (tuple[str, int], ("a", 7, "longer")),
        (tuple[float, str], (7,)),
        (City, ("a", 7)),
        (tuple[Any, int], (1,)),
    ],
)
def test_a_prefix_that_keys_may_begin_with_is_not_excluded(
    declared: object, prefix: str | tuple[Hashable, ...]
) -> None:
    assert not never_begins(declared, prefix)


def test_the_classes_of_a_type_are_known_if_those_of_each_part_are() -> None:
    assert classes_of(str | None) == frozenset[type]({str, type(None)})
    assert classes_of(tuple[str, int]) == frozenset[type]({tuple})
    assert classes_of(str | K) is None
    assert classes_of(Any) is None
